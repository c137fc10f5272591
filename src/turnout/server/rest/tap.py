"""``/v1/tap/{name}``: live records before and after one stage of a route, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse

from turnout.base.background import run_once
from turnout.conditions import parse
from turnout.errors import TurnoutError
from turnout.history.tap import DELIVERED, Tapped, taps
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import PartsDep, Reads, is_masked
from turnout.server.rest.store_calls import in_pool
from turnout.server.sandbox import route_of

router = APIRouter(prefix="/v1/tap", tags=["routes"])

_TAP_SLOTS = threading.BoundedSemaphore(8)
_QUIET_SECONDS = 15.0
_BEHIND = 100


@router.get(
    "/{name}",
    summary="Live records at one stage of a route; masked fields need the right unmasked",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, 409: {}, 429: {}},
)
async def tap(
    name: str,
    parts: PartsDep,
    principal: Reads,
    stage: str = DELIVERED,
    where: Annotated[str, Query(description="a condition, over the metadata as it is there")] = "",
    rate: Annotated[float, Query(gt=0, le=50, description="records a second at most")] = 5.0,
    start: Annotated[
        str,
        Query(description="a sequence, an ISO time, earliest, or {topic:partition: offset}; new records if not given"),
    ] = "",
) -> StreamingResponse:
    route = route_of(parts.routes.entry(name))
    stop = threading.Event()
    condition = parse(where) if where.strip() else None
    # The first use of a store reads it, for which other requests must not wait.
    index = await in_pool(parts.threads.matches, parts.matchers.index, route) if stage == DELIVERED else None
    unmasked = not is_masked(principal)
    records = taps(
        route,
        stage,
        where=condition,
        rate=rate,
        start=start.strip() or None,
        stop=stop,
        index=index,
        unmasked=unmasked,
        strict=True,
    )
    if not _TAP_SLOTS.acquire(blocking=False):
        raise HTTPException(429, "too many taps are open already: try again later")
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(records, stop), media_type="text/event-stream", headers=headers)


async def _stream(records: Iterator[Tapped], stop: threading.Event) -> AsyncIterator[str]:
    """Yield the events of a reader thread, until the client disconnects or the route cannot be read."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def put(event: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(queue.put_nowait, event)

    run_once("tap", lambda: _read(records, put, stop, lambda: queue.qsize() > _BEHIND))
    try:
        yield "retry: 5000\n\n"
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _QUIET_SECONDS)
            except TimeoutError:
                yield ": nothing new\n\n"
                continue
            if event is None:
                return
            yield event
    finally:
        stop.set()


def _read(
    records: Iterator[Tapped],
    put: Callable[[str | None], None],
    stop: threading.Event,
    is_behind: Callable[[], bool],
) -> None:
    try:
        for record in records:
            if is_behind():
                # A slow client misses records: a tap is a sample.
                continue
            put(_event("record", record.as_dict()))
    except TurnoutError as failure:
        put(_event("problem", {"detail": masked_url(str(failure))}))
    except Exception as failure:
        put(_event("problem", {"detail": f"internal error: {type(failure).__name__}; the server's log has the rest"}))
        raise
    finally:
        stop.set()
        put(None)
        _TAP_SLOTS.release()


def _event(kind: str, body: dict[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(body, ensure_ascii=False, default=str)}\n\n"
