"""Events of routes as they happen, liveness, readiness and metrics, for machines and browsers that watch."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.errors import ConfigError, Mistake
from turnout.server.election import Elector
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, Writes, in_pool
from turnout.server.rest.models import SequenceNumber
from turnout.server.routes.events import Event, Events
from turnout.server.routes.state import State

_log = logging.getLogger("turnout.server")

events_router = APIRouter(prefix="/v1", tags=["events"])

_RETRY_MILLISECONDS = 2000


@events_router.get(
    "/events",
    summary="Changes of state as they happen; progress of each route at most once a second",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def follow_events(
    parts: PartsDep,
    _: Reads,
    after: SequenceNumber | None = None,
    follow: Annotated[bool, Query(description="false: end after the stored events")] = True,
    last_event_id: Annotated[str | None, Header(description="id of the last event that the browser saw")] = None,
) -> StreamingResponse:
    last_sent = after
    if last_event_id:
        last_sent = decimal(last_event_id, LARGEST_SEQUENCE)
        if last_sent is None:
            mistake = Mistake("Last-Event-ID", f"expected the id of an event, found {last_event_id!r:.80}")
            raise ConfigError([mistake], what="bad request")
    headers = {"X-Accel-Buffering": "no"}
    stream = _stream(parts.events, last_sent) if follow else _stored(parts.state, last_sent or 0)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(events: Events, after: int | None) -> AsyncIterator[str]:
    yield f"retry: {_RETRY_MILLISECONDS}\n\n"
    async for event in events.listen(after):
        yield ": nothing new\n\n" if event is None else _written(event)


async def _stored(state: State, last: int) -> AsyncIterator[str]:
    while page := await asyncio.to_thread(state.events, last):
        for stored in page:
            last = stored.id
            yield _written(Event.of(stored))


def _written(event: Event) -> str:
    number = "" if event.id is None else f"id: {event.id}\n"
    body = json.dumps({"route": event.route, "at": event.at, **event.detail}, ensure_ascii=False)
    return f"{number}event: {event.kind}\ndata: {body}\n\n"


leader_router = APIRouter(prefix="/v1/leader", tags=["leader"])


class LeaderModel(BaseModel):
    """The leader of several servers."""

    holder: str = Field(description="host, process and a random part")
    term: int = Field(description="number of the leadership, which grows with each")
    url: str = Field(description="where it answers")
    lease_seconds: float = Field(description="length of its lease")
    remaining_seconds: float = Field(description="for so long it leads without another renewal")


def _elector(parts: Parts) -> Elector:
    if parts.elector is None:
        raise HTTPException(404, "this server has no standby: there is no ha in its turnout.yaml")
    return parts.elector


@leader_router.get("", summary="The leader of several servers", responses={404: {}})
def read_leader(parts: PartsDep, _: Reads) -> LeaderModel:
    elector = _elector(parts)
    lease = elector.lease
    assert lease is not None
    return LeaderModel(
        holder=lease.holder,
        term=lease.term,
        url=lease.member.url,
        lease_seconds=lease.member.seconds,
        remaining_seconds=round(max(0.0, elector.remaining()), 3),
    )


@leader_router.post(
    "/hand-over",
    status_code=202,
    summary="End this server after the micro-batches under way, so that a standby leads at once",
    responses={404: {}},
)
def hand_over_leadership(parts: PartsDep, principal: Writes) -> LeaderModel:
    elector = _elector(parts)
    _log.warning("handing over, as %s asks", principal.name)
    elector.hands_over = True
    return read_leader(parts, principal)


probes_router = APIRouter(tags=["health"])
# Coroutines that wait for no store and no thread: a restart helps neither.


class LiveModel(BaseModel):
    """Liveness of the process."""

    live: bool
    reason: str | None = Field(description="reason if it is not live")


class ReadyModel(BaseModel):
    """Readiness of the server."""

    ready: bool
    problems: dict[str, str] = Field(description="reasons by the parts that are not ready")


@probes_router.get(
    "/live",
    summary="Liveness of the process; 503 requests a restart",
    responses={200: {"model": LiveModel}, 503: {"model": LiveModel, "description": "It does not"}},
)
async def read_liveness(parts: PartsDep) -> JSONResponse:
    reason = parts.health.live()
    return JSONResponse({"live": reason is None, "reason": reason}, 200 if reason is None else 503)


@probes_router.get(
    "/ready",
    summary="Readiness of the server, or health of a route; 503 with the reasons",
    responses={200: {"model": ReadyModel}, 404: {}, 503: {"model": ReadyModel, "description": "Something is away"}},
)
async def read_readiness(
    parts: PartsDep, route: Annotated[str | None, Query(description="name of a route; the server if not given")] = None
) -> JSONResponse:
    readiness = parts.health.ready() if route is None else parts.health.route(route)
    return JSONResponse({"ready": readiness.ready, "problems": readiness.problems}, 200 if readiness.ready else 503)


@probes_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def read_metrics(
    parts: PartsDep, _: Reads, accept: Annotated[str, Header(include_in_schema=False)] = ""
) -> Response:
    text, content_type = await in_pool(parts.scrapes, parts.metrics.answer, accept)
    return Response(text, headers={"Content-Type": content_type})
