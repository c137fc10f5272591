"""State of a NATS stream: losses and harmless holes, and waiting at the server for the next message."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar

from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.errors import PermissionDeniedError, StreamNotFoundError, StreamReplacedError
from turnout.nats.protocol.frames import ephemeral_config, next_request, pull_body
from turnout.nats.wire import Connection, create_consumer, delete_consumer, stream_info
from turnout.runtime.driver import tell_loss
from turnout.runtime.nats.source import SourceOptions

_log = logging.getLogger(__name__)

_denied: set[str] = set()
"""Streams at which a warning has said that this user may not wait."""

_DENIED_SECONDS = 0.5
"""Poll interval in seconds of a stream whose consumers this user may not make."""

_POLL_SECONDS = 0.05
"""Poll interval in seconds of a stream without a consumer to wait on."""


def wait_for_more(connection: Connection, positions: dict[str, int], filters: tuple[str, ...], seconds: float) -> None:
    """Return when one of the streams has a message at or after its sequence, or after *seconds*.

    A consumer for each stream hands over the headers of one message. It is a hint only: an error here repeats, and is
    reported, when the state of the stream is requested. A permission that is missing for the consumer alone is not: a
    warning says so, once in a process.
    """
    consumers: list[tuple[str, str]] = []
    try:
        _wait(connection, positions, filters, seconds, consumers)
    except PermissionDeniedError as denied:
        names = ", ".join(positions)
        if names not in _denied:
            _denied.add(names)
            text = "waiting for messages of %s is not permitted, so the state of the stream is requested instead: %s;"
            _log.warning(f"{text} a user who reads needs this subject for short-lived consumers", names, denied)
        time.sleep(min(seconds, _DENIED_SECONDS))
    except StreamError:
        # A stream whose consumers must not overlap has none to wait with.
        time.sleep(min(seconds, _POLL_SECONDS))
    except (ConnectionLostError, TimeoutError):
        pass
    for stream, name in consumers:
        with contextlib.suppress(StreamError, ConnectionLostError):
            delete_consumer(connection, stream, name)


def _wait(
    connection: Connection,
    positions: dict[str, int],
    filters: tuple[str, ...],
    seconds: float,
    consumers: list[tuple[str, str]],
) -> None:
    """Wait for a message in one of the streams; append the consumers to remove afterwards to *consumers*."""
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    try:
        for stream, position in positions.items():
            config = ephemeral_config(position, filters, headers_only=True)
            consumers.append((stream, create_consumer(connection, stream, config)["name"]))
        request = pull_body(1, expires=seconds)
        for stream, name in consumers:
            connection.publish_api(next_request(stream, name), request, inbox)
        for message in connection.messages(time.monotonic() + seconds + 1):
            if message.subject == inbox or message.reply.startswith("$JS.ACK."):
                break
    finally:
        with contextlib.suppress(ConnectionLostError):
            connection.unsubscribe(number)


_CHECK_SECONDS = 1.0
"""Seconds between two looks of a task that reads with filters."""

_LISTED = 10_000
"""Maximum number of deleted sequences to request: the server lists them in one answer."""


def lost_error(stream: str, start: int, end: int) -> StreamError:
    """Return the error for sequences that were to be read and are no longer stored."""
    return StreamError(
        f"stream {stream!r} no longer has the sequences {start:,} to {end - 1:,}: they were removed by its limits, a"
        " purge, or the stream is another one; set failOnDataLoss=false to continue without them",
        code=404,
    )


def report_loss(options: SourceOptions, failure: StreamError) -> None:
    """Warn of a loss that is stepped over, in the log of this process and, where it can be told, in the run's own."""
    _log.warning("%s", failure)
    if options.open_splits is not None:
        try:
            tell_loss(options.open_splits, str(failure))
        except ConnectionLostError as away:
            _log.warning("the run could not be told of the loss: %s", away)


_Batch = TypeVar("_Batch")


def until_replaced(batches: Iterator[_Batch], options: SourceOptions) -> Iterator[_Batch]:
    """Yield batches as long as their stream is there; the next micro-batch reads the one that has replaced it.

    Raises:
        StreamError: the stream is another one now, or has other data, or there is none, and ``failOnDataLoss`` is on.
    """
    try:
        yield from batches
    except (StreamReplacedError, StreamNotFoundError) as failure:
        if options.fail_on_data_loss:
            raise
        report_loss(options, failure)


class LossWatch:
    """Distinguishes the holes in a task's range from messages that the stream dropped before they were read.

    A hole below which the stream still has messages was there before. One that reaches to the stream's beginning
    was not, or cannot be told from such; with a filter, the messages that it passes by make holes as well.
    """

    def __init__(self, options: SourceOptions, stream: str, end: int, *, passing_by: bool = False) -> None:
        self._options = options
        self._stream = stream
        self._end = end
        self._warned = 0
        self._hole: int | None = None
        self._pause = _CHECK_SECONDS if passing_by else 0.0
        self._next_look = time.monotonic() + self._pause
        # The task's own connection is full of messages: a request would wait behind them.
        self._connection = Connection(options.connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def note(self, hole: int) -> None:
        """Check *hole* too: immediately, or, with filters, which make holes everywhere, within a second.

        Raises:
            StreamError: as `look`.
        """
        self._hole = hole if self._hole is None else min(hole, self._hole)
        if time.monotonic() >= self._next_look:
            self.look()

    def look(self) -> None:
        """Check that the stream still has messages below the holes noted since the last check, if any.

        Raises:
            StreamError: when it does not, and ``failOnDataLoss`` is on.
        """
        if self._hole is None:
            return
        hole, self._hole = self._hole, None
        self._next_look = time.monotonic() + self._pause
        try:
            state = stream_info(self._connection, self._stream)["state"]
        except StreamNotFoundError as failure:
            if self._options.fail_on_data_loss:
                raise
            # What follows is reported with the next micro-batch.
            report_loss(self._options, failure)
            return
        # A stream without messages says that its first is one above its last.
        first = min(self._end, state["first_seq"])
        if first <= max(hole, self._warned):
            return
        missing = lost_error(self._stream, max(hole, self._warned), first)
        if self._options.fail_on_data_loss:
            raise missing
        report_loss(self._options, missing)
        self._warned = first


class HoleCounter:
    """Counts the sequences between two offsets that hold no message, for the log and the query's progress.

    Attributes:
        missing: stream → how many there were since the query was started.
    """

    def __init__(self) -> None:
        self.missing: dict[str, int] = {}
        self._silent: set[str] = set()

    def count(self, connection: Connection, stream: str, start: int, end: int, deleted: int) -> int:
        """Count the sequences from *start* up to, not including, *end* that hold no message.

        Args:
            connection: connection for the requests.
            stream: the stream.
            start: the first sequence.
            end: the sequence behind the last.
            deleted: number of holes of the whole stream; the server is queried only if there are some. Where there
                are more than it should list, they are not counted, which is said once.
        """
        if not deleted or start >= end:
            return 0
        if deleted > _LISTED:
            if stream not in self._silent:
                self._silent.add(stream)
                _log.warning("stream %r has %d holes, too many to count", stream, deleted)
            return 0
        listed: list[int] = stream_info(connection, stream, deleted_details=True)["state"].get("deleted") or []
        holes = sum(start <= sequence < end for sequence in listed)
        if holes:
            self.missing[stream] = self.missing.get(stream, 0) + holes
            warning = "%d of the sequences %d to %d of stream %r hold no message: they were deleted one by one"
            _log.warning(warning, holes, start, end - 1, stream)
        return holes
