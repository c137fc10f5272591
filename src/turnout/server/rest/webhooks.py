"""Webhooks: endpoints of a route and their dead letters; requests of others that become messages of a stream."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field, StrictStr

from turnout.history.masking import Hidden, hidden_anywhere
from turnout.routes import Route
from turnout.server.deliveries import dead_letters, enable, redrive
from turnout.server.errors import ConflictError
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, Writes, asks_servers, is_masked, parts_of, redrives
from turnout.server.rest.models import RequestForm
from turnout.server.sandbox import route_of
from turnout.server.security import Principal

router = APIRouter(prefix="/v1/routes/{name}/webhooks", tags=["webhooks"])

_MAX_LETTERS = 1_000
_ERRORS: dict[int | str, dict[str, object]] = {409: {}, 422: {}, 502: {}, 503: {}}
"""The route may have no webhooks, and its server or its stream may be away."""


class EndpointModel(BaseModel):
    """Endpoint under the same delivery settings. Times are seconds since the epoch."""

    destination: str
    subscription: str = Field(description='the one with settings of its own; "" for all others')
    state: str = Field(description="closed, open (the circuit breaker) or disabled")
    reason: str = Field(description='what has disabled it: 410, or its failures since a time; "" for others')
    consent: str = Field(description='granted, refused or unknown; "" for an endpoint that is not asked')
    waiting: int
    in_flight: int
    last_status: int | None
    last_error: str
    last_at: float | None
    tenant: str = Field(description='the one whose quota of deliveries applies; "" for none')


class AttemptModel(BaseModel):
    """Request that failed."""

    at: float
    status: int | None = Field(description="null for no response")
    error: str


class DeadDeliveryModel(BaseModel):
    """Delivery that was given up."""

    position: str = Field(description="sequence in the stream of the letters; of Kafka partition:offset")
    destination: str
    subscription: str
    at: float | None
    reason: str
    webhook_id: str
    attempts: list[AttemptModel]
    size: int


class LettersForm(RequestForm):
    """Letters to move back among the deliveries."""

    letters: list[Annotated[StrictStr, Field(max_length=40)]] | None = Field(
        max_length=_MAX_LETTERS, description="their positions; null for all"
    )


class EnableForm(RequestForm):
    """Endpoint that gets requests again."""

    destination: StrictStr


@router.get("", summary="Endpoints that have had deliveries; null while no dispatcher runs", responses=_ERRORS)
@asks_servers
def list_webhook_endpoints(name: str, parts: PartsDep, principal: Reads) -> list[EndpointModel] | None:
    hidden = hidden_of(webhook_route(parts, name), principal)
    endpoints = parts.webhooks.endpoints(name)
    if endpoints is None:
        return None
    return [
        EndpointModel.model_validate(replace(one, last_error=hidden.failure(one.last_error)), from_attributes=True)
        for one in endpoints
    ]


@router.get("/dead-letters", summary="The last dead letters of deliveries, the newest first", responses=_ERRORS)
@asks_servers
def list_webhook_letters(
    name: str, parts: PartsDep, principal: Reads, limit: Annotated[int, Query(ge=1, le=_MAX_LETTERS)] = 100
) -> list[DeadDeliveryModel]:
    route = webhook_route(parts, name)
    hidden = hidden_of(route, principal)
    return [
        DeadDeliveryModel(
            position=letter.position,
            destination=letter.destination,
            subscription=letter.subscription,
            at=letter.at.timestamp() if letter.at is not None else None,
            reason=letter.reason,
            webhook_id=letter.webhook_id,
            attempts=[
                AttemptModel(at=attempt.at.timestamp(), status=attempt.status, error=hidden.failure(attempt.error))
                for attempt in letter.attempts
            ],
            size=letter.size,
        )
        for letter in dead_letters(route, limit)
    ]


@router.post("/redrive", summary="Move dead letters back among the deliveries", responses=_ERRORS)
@redrives
def redrive_webhook_letters(name: str, form: LettersForm, parts: PartsDep, _: Writes) -> dict[str, int]:
    return {"moved": redrive(webhook_route(parts, name), form.letters)}


@router.post("/enable", summary="Send requests again to a disabled endpoint", responses=_ERRORS)
@asks_servers
def enable_webhook_endpoint(name: str, form: EnableForm, parts: PartsDep, _: Writes) -> dict[str, bool]:
    return {"enabled": enable(webhook_route(parts, name), form.destination)}


def webhook_route(parts: Parts, name: str) -> Route:
    """Return a route with webhooks.

    Raises:
        ConflictError: it has none.
    """
    route = route_of(parts.routes.entry(name))
    if route.webhooks is None:
        raise ConflictError(f"the route {name} has no webhooks")
    return route


def hidden_of(route: Route, principal: Principal) -> Hidden:
    """Return what is hidden from a caller in responses of endpoints, which may repeat the message."""
    return hidden_anywhere(route.chain) if is_masked(principal) else Hidden()


inputs_router = APIRouter(prefix="/v1/in", tags=["inputs"])


class StoredModel(BaseModel):
    """Outcome of a request whose messages are in the stream."""

    messages: int = Field(description="messages of the request, all of which are stored")
    duplicates: int = Field(description="number of these that were stored before under the same id")


@inputs_router.post(
    "/{name}",
    summary="Store the messages of a request; it proves its sender by the input's secret",
    responses={429: {}, 503: {}},
)
async def store_input(name: str, request: Request) -> StoredModel:
    intake = parts_of(request).intake
    answer = None if intake is None else await intake.take(name, request.headers, await request.body())
    if answer is None:
        raise HTTPException(404, "there is no such input")
    if answer.status != 200:
        headers = {"Retry-After": f"{ceil(answer.retry_after)}"} if answer.retry_after else None
        raise HTTPException(answer.status, answer.detail, headers)
    return StoredModel(messages=answer.stored, duplicates=answer.duplicates)
