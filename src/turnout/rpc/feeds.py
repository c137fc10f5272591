"""``turnout.feeds.v1.Feeds``: the messages of a subscription, with acknowledgements over the same call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from turnout.errors import SubscriptionInvalidError
from turnout.rpc.caller import CallContext, Caller
from turnout.rpc.status import UNAVAILABLE, RefusedError, Slots
from turnout.rpc.v1 import feeds_pb2 as pb
from turnout.rpc.v1.feeds_pb2_grpc import FeedsServicer as _Servicer

_MAX_RECORDS: Final = 1_000
_USUAL_RECORDS: Final = 100
_MAX_NAME: Final = 128
_MAX_BYTES: Final = 1 << 20
"""Bytes of a response that gets no further record: clients refuse more than 4 MB."""

_POLL_SECONDS: Final = 0.5
_QUIET_SECONDS: Final = 15.0


class Message(Protocol):
    """Message of a feed."""

    @property
    def cursor(self) -> object: ...  # noqa: D102
    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def id(self) -> str | None: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...  # noqa: D102
    @property
    def timestamp(self) -> int | None: ...  # noqa: D102


class Page(Protocol):
    """Part of a feed."""

    @property
    def messages(self) -> Sequence[Message]: ...  # noqa: D102
    @property
    def cursor(self) -> object: ...  # noqa: D102
    @property
    def is_last(self) -> bool: ...  # noqa: D102
    @property
    def removed(self) -> int: ...  # noqa: D102


class OpenFeed(Protocol):
    """Feed of one subscription. Its methods raise TurnoutError or RefusedError."""

    def begin(self, after: str, reader: str) -> str:
        """Return the cursor to begin behind; both may be ""."""

    def page(self, after: str, limit: int) -> Page:
        """Return the page behind a cursor."""

    def acknowledge(self, reader: str, cursor: str) -> None:
        """Move the position of a named reader forward."""

    def following(self) -> AbstractContextManager[None]:
        """Count the feed as followed, unless too many are."""


class FeedAccess(Protocol):
    """Access to the feeds of a server's routes."""

    def open(self, caller: Caller, subscription_id: str, route: str) -> OpenFeed:
        """Return the feed of a caller's subscription; *route* is "" for the only one that stores feeds."""


class FeedsServicer(_Servicer):
    """Reads feeds.

    Args:
        access: access to the feeds.
        streams: limit of the calls that hold a thread.
        stopping: set when the server shuts down, so that followers end.
    """

    def __init__(self, access: FeedAccess, *, streams: Slots, stopping: threading.Event) -> None:
        self._access = access
        self._streams = streams
        self._stopping = stopping

    def Read(  # noqa: N802
        self, request_iterator: Iterable[pb.ReadRequest], context: CallContext
    ) -> Iterator[pb.ReadResponse]:
        """Yield the messages of a feed, and take acknowledgements."""
        requests = iter(request_iterator)
        start = _start_of(next(requests, None))
        limit = start.limit or _USUAL_RECORDS
        with self._streams:
            feed = self._access.open(context.caller, start.subscription_id, start.route)
            page = feed.page(feed.begin(start.after, start.reader), limit)
            acknowledging = _Acknowledging(feed, start.reader, requests)
            with feed.following() if start.follow else nullcontext():
                yield from _responses(page)
                sent = time.monotonic()
                while start.follow or not page.is_last:
                    acknowledging.check()
                    if page.is_last:
                        self._wait(_POLL_SECONDS)
                    if not context.is_active():
                        return
                    page = feed.page(str(page.cursor), limit)
                    if page.messages or not page.is_last or time.monotonic() - sent > _QUIET_SECONDS:
                        yield from _responses(page)
                        sent = time.monotonic()
            while start.reader and acknowledging.is_open() and context.is_active():
                # The acknowledgement of the last page is still to come.
                self._wait(0.0)
            acknowledging.check()

    def _wait(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise RefusedError(UNAVAILABLE, "the server is shutting down: read again from the last cursor")


class _Acknowledging:
    """Thread that takes the acknowledgements of one call until its client sends no more."""

    def __init__(self, feed: OpenFeed, reader: str, requests: Iterator[pb.ReadRequest]) -> None:
        self._feed = feed
        self._reader = reader
        self._requests = requests
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="turnout-feed-acks", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for request in self._requests:
                self._take(request)
        except Exception as failure:  # noqa: BLE001 - the thread of the call raises it
            self._failure = failure

    def _take(self, request: pb.ReadRequest) -> None:
        if request.WhichOneof("command") != "ack":
            raise SubscriptionInvalidError("only the first request of a call has start; expected ack")
        if not self._reader:
            raise SubscriptionInvalidError("ack: expected a feed that is read with the name of a reader")
        self._feed.acknowledge(self._reader, request.ack.cursor)

    def is_open(self) -> bool:
        """Return True after a short wait if the client may send more."""
        self._thread.join(_POLL_SECONDS)
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise the exception that an acknowledgement has failed with."""
        if self._failure is not None:
            raise self._failure


def _start_of(request: pb.ReadRequest | None) -> pb.Start:
    """Return the start of a call.

    Raises:
        SubscriptionInvalidError: it is missing, or has wrong values.
    """
    if request is None or request.WhichOneof("command") != "start":
        raise SubscriptionInvalidError("the first request of a call has start, with the id of a subscription")
    start = request.start
    if start.limit > _MAX_RECORDS:
        raise SubscriptionInvalidError(f"start.limit: {start.limit} records, at most {_MAX_RECORDS:,} are returned")
    if len(start.reader) > _MAX_NAME:
        found = len(start.reader)
        raise SubscriptionInvalidError(f"start.reader: a name of {found} characters, at most {_MAX_NAME} are taken")
    return start


def _responses(page: Page) -> Iterator[pb.ReadResponse]:
    """Yield a page in responses of bounded size, each with the cursor behind its last message."""
    response = pb.ReadResponse()
    size, cursor = 0, ""
    for message in page.messages:
        following = str(message.cursor)
        if size >= _MAX_BYTES and following != cursor:
            response.cursor = cursor
            yield response
            response, size = pb.ReadResponse(), 0
        cursor = following
        written = _written(message, cursor)
        response.messages.append(written)
        size += written.ByteSize()
    response.cursor = str(page.cursor)
    response.last = page.is_last
    response.removed = page.removed
    yield response


def _written(message: Message, cursor: str) -> pb.FeedMessage:
    return pb.FeedMessage(
        cursor=cursor,
        topic=message.topic,
        id=message.id,
        key=message.key,
        value=message.value,
        headers=[pb.Header(name=name, value=value) for name, value in message.headers],
        timestamp=message.timestamp,
    )
