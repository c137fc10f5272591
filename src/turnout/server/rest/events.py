"""``/v1/events``: what happens to routes, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.errors import ConfigError, Mistake
from turnout.server.events import Event, Events
from turnout.server.rest.dependencies import PartsDep, Reads
from turnout.server.rest.models import SequenceNumber

router = APIRouter(prefix="/v1", tags=["events"])

_RETRY_MILLISECONDS = 2000


@router.get(
    "/events",
    summary="Changes of state as they happen; progress of each route at most once a second",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    parts: PartsDep,
    _: Reads,
    after: SequenceNumber | None = None,
    last_event_id: Annotated[str | None, Header(description="id of the last event that the browser saw")] = None,
) -> StreamingResponse:
    last_sent = after
    if last_event_id:
        last_sent = decimal(last_event_id, LARGEST_SEQUENCE)
        if last_sent is None:
            mistake = Mistake("Last-Event-ID", f"expected the id of an event, found {last_event_id!r:.80}")
            raise ConfigError([mistake], what="bad request")
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(parts.events, last_sent), media_type="text/event-stream", headers=headers)


async def _stream(events: Events, after: int | None) -> AsyncIterator[str]:
    yield f"retry: {_RETRY_MILLISECONDS}\n\n"
    async for event in events.listen(after):
        yield ": nothing new\n\n" if event is None else _written(event)


def _written(event: Event) -> str:
    number = "" if event.id is None else f"id: {event.id}\n"
    body = json.dumps({"route": event.route, "at": event.at, **event.detail}, ensure_ascii=False)
    return f"{number}event: {event.kind}\ndata: {body}\n\n"
