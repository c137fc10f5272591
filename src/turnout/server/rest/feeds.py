"""``/v1/feeds/{id}``: the messages of one subscription, as pages with a cursor, as events, or over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, StringConstraints, ValidationError, WithJsonSchema

from turnout.errors import SubscriptionNotFoundError, TurnoutError, message_of
from turnout.history.feed import MOST_MESSAGES, FeedPage
from turnout.rpc.caller import Caller, Right
from turnout.runtime.cursors import MAX_CURSOR, FeedCursor, cursor_in
from turnout.server.errors import problem, status_of
from turnout.server.feeds import Feed
from turnout.server.rest.dependencies import Parts, Reads, in_pool, parts_of
from turnout.server.rest.models import JsonSequenceNumber, RequestForm
from turnout.server.security import Principal

router = APIRouter(prefix="/v1/feeds", tags=["feeds"])

_NUMBER = r"[0-9]{1,19}(\.[0-9]{1,7})?"
_OFFSETS = rf"^{_NUMBER}$|^[^\s,]{{1,255}}:{_NUMBER}(,[^\s,]{{1,255}}:{_NUMBER})*$"
_MAX_IN_ADDRESS = 5_000
"""Characters of a cursor in an address: a request line of 64 KiB is refused before it is read."""

_POLL_SECONDS = 0.5
_QUIET_SECONDS = 15.0
_LONGEST_WAIT_SECONDS = 30.0
_STATUSES: dict[int | str, dict[str, object]] = {404: {}, 409: {}, 503: {}}


_PAIR = {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2, "maxItems": 2}


class FeedMessageModel(BaseModel):
    """Message of a feed. Bytes that are no UTF-8 are ``keyBase64`` and ``valueBase64``."""

    cursor: int | str = Field(
        description="the value of *after* for what follows: sequence of its record, or offsets of partitions;"
        " with the number of messages behind one that is not its record's last"
    )
    topic: str
    id: str | None = Field(description="id of the message, the same at its destination")
    key: str | None = None
    keyBase64: str | None = None  # noqa: N815 - the name in JSON
    value: str | None = None
    valueBase64: str | None = None  # noqa: N815 - the name in JSON
    headers: list[Annotated[tuple[str, str | None], WithJsonSchema(_PAIR)]] = Field(description="names and values")
    timestamp: str | None


class FeedPageModel(BaseModel):
    """Part of a feed."""

    messages: list[FeedMessageModel]
    cursor: int | str = Field(description="the value of *after* for the next page, and for its acknowledgement")
    last: bool = Field(description="whether the feed has nothing more at this moment")
    removed: int = Field(description="records of this page that the stream no longer holds")


class Acknowledgement(RequestForm):
    """Acknowledgement of a feed up to a cursor."""

    reader: str = Field(min_length=1, max_length=128)
    cursor: JsonSequenceNumber | Annotated[str, StringConstraints(pattern=_OFFSETS, max_length=MAX_CURSOR)]


class AcknowledgedModel(BaseModel):
    """Position of a named reader."""

    cursor: int | str


async def _parts(request: Request) -> Parts:
    """Return the parts of the server; a tenant's token reads the feeds of its own subscriptions."""
    return parts_of(request)


PartsOfAny = Annotated[Parts, Depends(_parts)]
Reader = Annotated[
    str | None,
    Query(min_length=1, max_length=128, description="name of a reader: continues from its position"),
]
After = Annotated[
    str | None,
    Query(
        pattern=_OFFSETS,
        max_length=_MAX_IN_ADDRESS,
        description="cursor of the page before; the oldest if 0",
    ),
]
RouteName = Annotated[str | None, Query(description="the route; may be left out if only one stores feeds")]


@router.get(
    "/{id:id}",
    summary="The next messages of a feed; with Accept: text/event-stream all as they arrive",
    response_model=FeedPageModel,
    responses={**_STATUSES, 200: {"content": {"text/event-stream": {}}}, 429: {}},
)
async def read_feed(
    id: str,
    request: Request,
    parts: PartsOfAny,
    principal: Reads,
    route: RouteName = None,
    after: After = None,
    reader: Reader = None,
    limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES, description="number of records")] = 100,
    wait: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_SECONDS, description="seconds to wait for a message")] = 0,
    last_event_id: Annotated[str | None, Header(description="cursor of the last event that was seen")] = None,
) -> FeedPageModel | StreamingResponse:
    feed = _Feed(parts, route, principal.caller, id)
    begin = await feed.begin(after, reader) if not last_event_id else cursor_in("Last-Event-ID", last_event_id)
    if "text/event-stream" in request.headers.get("accept", ""):
        # The first page raises errors before the answer begins.
        first = await feed.page(begin, limit)
        parts.feeds.begin_following()
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(_events(feed, first, limit), media_type="text/event-stream", headers=headers)
    page = await feed.page(begin, limit)
    deadline = time.monotonic() + wait
    while not page.messages and page.is_last and time.monotonic() < deadline:
        await asyncio.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        page = await feed.page(page.cursor, limit)
    messages = [FeedMessageModel.model_validate(message.as_dict()) for message in page.messages]
    return FeedPageModel(messages=messages, cursor=page.cursor, last=page.is_last, removed=page.removed)


@router.post("/{id:id}", summary="Acknowledge a feed up to a cursor, for a named reader", responses=_STATUSES)
async def acknowledge_feed(
    id: str, form: Acknowledgement, parts: PartsOfAny, principal: Reads, route: RouteName = None
) -> AcknowledgedModel:
    feed = _Feed(parts, route, principal.caller, id)
    cursor = await feed.acknowledge(form.reader, form.cursor)
    return AcknowledgedModel(cursor=cursor)


@router.websocket("/{id:id}")
async def socket(
    websocket: WebSocket,
    id: str,
    route: str | None = None,
    after: After = None,
    reader: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = 100,
) -> None:
    """Send messages as they arrive, as texts of JSON; a named reader sends back ``{"cursor": …}`` to acknowledge."""
    try:
        feed, first = await _opened(websocket, route, id, after, reader, limit)
    except TurnoutError as failure:
        await websocket.send_denial_response(problem(status_of(failure), failure))
        return
    except HTTPException as refused:
        await websocket.send_denial_response(problem(refused.status_code, refused.detail))
        return
    try:
        await websocket.accept()
        await _converse(websocket, feed, first, limit, reader)
    finally:
        feed.end_following()


async def _opened(
    websocket: WebSocket,
    route: str | None,
    id_: str,
    after: str | None,
    reader: str | None,
    limit: int,
) -> tuple[_Feed, FeedPage]:
    """Return the feed that a WebSocket asks for, and its first page; the feed counts as followed from then on.

    Raises:
        TurnoutError: it cannot be read.
        HTTPException: the caller may not read it.
    """
    parts: Parts = websocket.app.state.parts
    principal: Principal = websocket.state.principal
    if Right.READ not in principal.caller.rights:
        raise HTTPException(403, f"this token does not give the right to {Right.READ}")
    feed = _Feed(parts, route, principal.caller, id_)
    first = await feed.page(await feed.begin(after, reader), limit)
    parts.feeds.begin_following()
    return feed, first


async def _converse(websocket: WebSocket, feed: _Feed, first: FeedPage, limit: int, reader: str | None) -> None:
    """Send a feed and take acknowledgements, until either side ends it."""
    tasks = [
        asyncio.create_task(_send_messages(websocket, feed, first, limit)),
        asyncio.create_task(_take_acknowledgements(websocket, feed, reader)),
    ]
    code, reason = 1011, "internal error"
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except WebSocketDisconnect:
        return
    except SubscriptionNotFoundError as ended:
        code, reason = 1000, message_of(ended)
    except ValidationError:
        code, reason = 1008, 'expected {"cursor": …} as messages have it, on a feed that is read with reader=NAME'
    except TurnoutError as failure:
        code, reason = 1011, message_of(failure)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        # The protocol has 123 bytes for a reason.
        await websocket.close(code, reason.encode()[:120].decode("utf-8", "ignore"))


async def _send_messages(websocket: WebSocket, feed: _Feed, page: FeedPage, limit: int) -> None:
    async for part in _followed(feed, page, limit):
        for message in part.messages:
            await websocket.send_text(json.dumps(message.as_dict(), ensure_ascii=False))
        if not part.messages:
            await websocket.send_text(json.dumps({"cursor": part.cursor, "last": True}))


async def _take_acknowledgements(websocket: WebSocket, feed: _Feed, reader: str | None) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        form = Acknowledgement.model_validate({**_object(message.get("text")), "reader": reader})
        await feed.acknowledge(form.reader, form.cursor)


def _object(text: str | None) -> dict[str, object]:
    """Return the object that a text is in JSON; an empty one for another text."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class _Feed:
    """Feed of one subscription, whose calls run on the threads for requests to servers."""

    def __init__(self, parts: Parts, route: str | None, caller: Caller, id_: str) -> None:
        self._threads = parts.threads.servers
        self._feed = Feed.of(parts.feeds, parts.routes, route, caller, id_)

    async def begin(self, after: str | None, reader: str | None) -> FeedCursor:
        """Return the cursor of a text, or of a named reader; the beginning without either."""
        if after is not None:
            return cursor_in("after", after)
        return 0 if reader is None else await in_pool(self._threads, self._feed.acknowledged, reader)

    async def page(self, after: FeedCursor, limit: int) -> FeedPage:
        """Return a page."""
        return await in_pool(self._threads, self._feed.page, after, limit)

    async def acknowledge(self, reader: str, cursor: FeedCursor) -> FeedCursor:
        """Move the cursor of a named reader forward, and return it."""
        return await in_pool(self._threads, self._feed.acknowledge, reader, cursor)

    def end_following(self) -> None:
        """Make room for another follower."""
        self._feed.feeds.end_following()


async def _followed(feed: _Feed, page: FeedPage, limit: int) -> AsyncIterator[FeedPage]:
    """Yield pages with messages as they arrive, and one without after a quiet time.

    A connection whose peer is gone is noticed when something is sent.
    """
    sent = time.monotonic()
    while True:
        if page.messages or (page.is_last and time.monotonic() - sent > _QUIET_SECONDS):
            yield page
            sent = time.monotonic()
        if page.is_last:
            await asyncio.sleep(_POLL_SECONDS)
        page = await feed.page(page.cursor, limit)


async def _events(feed: _Feed, page: FeedPage, limit: int) -> AsyncIterator[str]:
    """Yield messages as events until the client disconnects, or the feed ends."""
    try:
        yield "retry: 5000\n\n"
        async for part in _followed(feed, page, limit):
            for message in part.messages:
                text = json.dumps(message.as_dict(), ensure_ascii=False)
                yield f"id: {message.cursor}\nevent: message\ndata: {text}\n\n"
            if not part.messages:
                yield ": nothing new\n\n"
    except SubscriptionNotFoundError as ended:
        yield f"event: end\ndata: {json.dumps({'detail': message_of(ended)})}\n\n"
    except TurnoutError as failure:
        yield f"event: problem\ndata: {json.dumps({'detail': message_of(failure)})}\n\n"
    finally:
        feed.end_following()
