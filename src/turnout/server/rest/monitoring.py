"""Events of routes as they happen, liveness, readiness and metrics, for machines and browsers that watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, Field

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.errors import ConfigError, Mistake
from turnout.server.events import Event, Events
from turnout.server.rest.dependencies import PartsDep, Reads, in_pool
from turnout.server.rest.models import SequenceNumber
from turnout.server.routes.state import State

events_router = APIRouter(prefix="/v1", tags=["events"])

_RETRY_MILLISECONDS = 2000


@events_router.get(
    "/events",
    summary="Changes of state as they happen; progress of each route at most once a second",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
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
async def live(parts: PartsDep) -> JSONResponse:
    reason = parts.health.live()
    return JSONResponse({"live": reason is None, "reason": reason}, 200 if reason is None else 503)


@probes_router.get(
    "/ready",
    summary="Readiness of the server, or health of a route; 503 with the reasons",
    responses={200: {"model": ReadyModel}, 404: {}, 503: {"model": ReadyModel, "description": "Something is away"}},
)
async def ready(
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
async def metrics(parts: PartsDep, _: Reads) -> Response:
    return Response(await in_pool(parts.scrapes, parts.metrics.text), media_type=CONTENT_TYPE_PLAIN_0_0_4)
