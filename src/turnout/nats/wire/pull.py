"""A range of a stream's sequences as Arrow record batches, read through an ephemeral pull consumer.

Two requests are always under way, so that the server need not wait for us between them, and each is bounded in
bytes, so that a slow reader is not cut off. A lost connection is opened again and reading continues behind the
last message that was handed out.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.errors import ConnectionLostError, StreamError
from turnout.loops.frames import GAP, ORDERED, fill_request, survey
from turnout.nats.protocol.frames import PullStatus, ephemeral_config, frame, next_request, pull_body
from turnout.nats.protocol.headers import NO_RESPONDERS, REQUEST_TIMEOUT, read_status
from turnout.nats.protocol.positions import Position, StreamIdentity, older_data_error
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.records import SCHEMA, Integers, Received, decode, locate, shift, with_room, with_stream
from turnout.nats.wire.streams import create_consumer, delete_consumer, position_problem, state_of
from turnout.records.batch import ListedRecords
from turnout.records.types import ArrowBatch

_OPEN_REQUESTS = 2
_REQUEST_MESSAGES = 50_000
_REQUEST_BYTES = 8 << 20
# How far an estimate of how many messages a filter has may be below the truth without another round trip.
_MARGIN = 1.1
_SPARE_MESSAGES = 64
_EXPIRES_SECONDS = 5.0
_BUFFER_BYTES = 2 << 20
# Decoding costs some 800 us for a buffer, however small: if much is pending, it waits for more.
_ENOUGH_BYTES = 1 << 20
_MANY_MESSAGES = 5000
_LINGER_SECONDS = 0.002
_LONGEST_LINGER_SECONDS = 0.02
# The consumer lives this long without us: long enough for a task that waits for Spark to take a batch.
_INACTIVE_SECONDS = 300
# No responders, or JetStream is not ready: once a read has begun, the server is restarting.
_PASSING = frozenset({REQUEST_TIMEOUT, NO_RESPONDERS})


@dataclass(frozen=True, slots=True)
class Range:
    """The sequences of *stream* from *start* up to, not including, *end*; of the subjects *filters*, if any.

    With an *identity* another stream of the name is not read, nor one that has lost the range; *time* is that of the
    message before *start*, if it is known, in microseconds since 1970.

    >>> part = Range("ORDERS", 1, 10, ("orders.eu.>",))
    >>> part.end - part.start
    9
    """

    stream: str
    start: int
    end: int
    filters: tuple[str, ...] = ()
    identity: StreamIdentity | None = None
    time: int | None = None

    def check(self, connection: Connection, following: int, time: int | None) -> None:
        """Check that the stream of the range is still there, and has its messages from *following* on.

        Args:
            connection: connection for the requests.
            following: the next sequence.
            time: when the message before it was stored; None if that is unknown.

        Raises:
            StreamReplacedError: it is another stream, or has been restored to older data.
        """
        if self.identity is None:
            return
        state = state_of(connection, self.stream)
        position = Position(self.identity, following, time)
        problem = position_problem(connection, self.stream, position, state)
        if problem is None and state.next < self.end < LARGEST_SEQUENCE:
            problem = older_data_error(self.stream, replace(position, next=self.end), state.next)
        if problem is not None:
            raise problem


@dataclass(slots=True)
class _PullRequest:
    """Outstanding pull request: the messages and bytes that it may still deliver."""

    inbox: str
    left: int
    room: int


@dataclass(slots=True)
class _Progress:
    """Progress of a reader."""

    next: int
    max_bytes: int
    consumer_sequence: int = 0
    done: bool = False
    requests: deque[_PullRequest] = field(default_factory=deque)
    barren: int = 0


class PullReader:
    """Reads one `Range`, once.

    Args:
        connection: connection for reading.
        range_: range to read.
        partition: value of the column of that name.
        stream_end: the sequence behind the stream's last, if known: it tells how many messages a filter has in the
            range.
        begun: whether the server has answered before, so that one that does not now is waited for.

    Attributes:
        hole: the lowest sequence that the last record batch steps over, None where it steps over none.
        time: when the message before `next` was stored, in microseconds since 1970; None if that is unknown.
        messages: number of received messages.
        bytes: how many bytes they were on the wire.
    """

    def __init__(
        self, connection: Connection, range_: Range, partition: int = 0, *, stream_end: int = 0, begun: bool = False
    ) -> None:
        self._begun = begun
        self._stream_end = stream_end
        self._density = 1.0
        self._subscription = 0
        self._connection = connection
        self._range = range_
        self._partition = partition
        self._at = _Progress(max(1, range_.start), _REQUEST_BYTES)
        self._memory = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._longest_linger = _LONGEST_LINGER_SECONDS
        self._inbox = ""
        self._consumer = ""
        self._requested = 0
        self.time = range_.time
        self.hole: int | None = None
        self.messages = 0
        self.bytes = 0

    @property
    def next(self) -> int:
        """Sequence after the last message received; after the read, the rest of the range holds no messages."""
        return self._at.next

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches, of `turnout.nats.wire.records.SCHEMA`, in the order of the stream.

        Raises:
            StreamError: the server refuses, or the stream does not exist.
            ConnectionLostError: no reconnection in time.
        """
        retries = self._connection.retry_window()
        while not self._at.done and self._at.next < self._range.end:
            try:
                self._begin()
                for batch in self._read():
                    retries.progress()
                    yield batch
            except (ConnectionLostError, StreamError) as failure:
                if isinstance(failure, StreamError) and not (self._begun and failure.code in _PASSING):
                    raise
                if retries.is_over:
                    raise
                self._connection.close()
                self._connection.reconnect(retries.until)
        self._end()

    # -- the consumer

    def _begin(self) -> None:
        """Create a consumer that starts at the next sequence, and an inbox for its messages."""
        connection, at = self._connection, self._at
        if not connection.is_open:
            connection.reconnect()
        range_ = self._range
        filters = range_.filters
        config = ephemeral_config(at.next, filters, idle_seconds=_INACTIVE_SECONDS, max_waiting=8)
        info = create_consumer(connection, range_.stream, config)
        self._consumer = info["name"]
        self._begun = True
        # A consumer ends with its stream: of which stream it is, is known once it is there.
        range_.check(connection, at.next, self.time)
        at.consumer_sequence = 0
        at.requests.clear()
        at.barren = 0
        pending = info.get("num_pending", 1)
        at.done = pending == 0
        if filters and range_.end < self._stream_end:
            self._density = min(1.0, pending / max(1, self._stream_end - at.next))
        self._filled = 0
        self._inbox = connection.new_inbox()
        self._subscription = connection.subscribe(f"{self._inbox}.*")

    def _end(self) -> None:
        """Remove the consumer. One that cannot be reached removes itself later."""
        if self._consumer and self._connection.is_open:
            with contextlib.suppress(StreamError, ConnectionLostError):
                # The bytes behind the range end within a message, and the answer follows it.
                self._connection.give_back(memoryview(self._memory)[: self._filled])
                self._filled = 0
                self._connection.unsubscribe(self._subscription)
                delete_consumer(self._connection, self._range.stream, self._consumer)

    def _ask(self) -> None:
        """Keep two requests under way, but for no more than the range can hold."""
        at, range_ = self._at, self._range
        frames = []
        left = range_.end - at.next
        if self._density < 1:
            # A filter may have few messages in the range: more requests than these would return messages behind it.
            left = min(left, int(left * self._density * _MARGIN) + _SPARE_MESSAGES)
        while len(at.requests) < _OPEN_REQUESTS:
            outstanding = sum(request.left for request in at.requests)
            count = min(_REQUEST_MESSAGES, left - outstanding)
            if count <= 0:
                break
            self._requested += 1
            request = _PullRequest(f"{self._inbox}.{self._requested}", count, at.max_bytes)
            body = pull_body(count, expires=_EXPIRES_SECONDS, max_bytes=at.max_bytes)
            subject = self._connection.api_subject(next_request(range_.stream, self._consumer))
            frames.append(frame(subject, body, request.inbox))
            at.requests.append(request)
        if frames:
            self._connection.send(b"".join(frames))

    # -- the bytes

    def _read(self) -> Iterator[ArrowBatch]:
        at = self._at
        heard = time.monotonic()
        while not at.done and at.next < self._range.end and self._connection.is_open:
            self._ask()
            self._receive()
            received, count = self._take_received()
            if received is not None and count:
                yield received.batch(count, self._partition)
            if received is not None:
                # The consumer of the batches may be slow.
                heard = time.monotonic()
            elif time.monotonic() > heard + self._patience:
                # A server that talks of other things only is as good as one that is silent.
                raise self._silent()

    def _take_received(self) -> tuple[Received | None, int]:
        """Decode the whole messages of the buffer, if there are any; return how many are within the range."""
        connection = self._connection
        with connection.reading():
            located = locate(self._memory, self._filled, connection.largest_message)
        for line in located.lines:
            connection.control(line)
        received, count = None, 0
        if len(located):
            with connection.reading():
                received = decode(self._memory, located)
            count = self._account(received)
            self.bytes += located.consumed
        self._filled = shift(self._memory, self._filled, located.consumed)
        return received, count

    def _receive(self) -> None:
        """Wait for more bytes, then take what else is there."""
        self._memory = with_room(self._memory, self._filled)
        view = memoryview(self._memory)
        try:
            before = self._filled
            count = self._connection.receive_into(view[self._filled :], self._patience)
            if count == 0:
                # The server sends a status when a request expires, so silence means that the connection is dead.
                raise self._silent()
            self._filled += count
            linger = _LINGER_SECONDS if sum(request.left for request in self._at.requests) > _MANY_MESSAGES else 0.0
            until = time.monotonic() + self._longest_linger
            enough = min(before + _ENOUGH_BYTES, len(self._memory))
            while self._filled < enough and time.monotonic() < until:
                count = self._connection.receive_into(view[self._filled :], linger)
                if count == 0:
                    break
                self._filled += count
        finally:
            view.release()

    @property
    def _patience(self) -> float:
        return _EXPIRES_SECONDS + self._connection.options.timeout

    def _silent(self) -> ConnectionLostError:
        server = self._connection.server
        self._connection.close()
        return ConnectionLostError(f"{server} has been silent for {self._patience:.0f} s")

    # -- received data

    def _account(self, batch: Received) -> int:
        """Record the messages of *batch*; return the number of leading messages within the range."""
        at = self._at
        count = len(batch)
        last = 0
        for index, subject, block in batch.statuses:
            self._take(batch.positions, last, index)
            last = index
            self._receive_status(subject, block)
        self._take(batch.positions, last, count)
        if not count:
            return 0
        in_range, stepped_over, order = survey(batch.positions, count, at.next, at.consumer_sequence, self._range.end)
        if order != ORDERED:
            self._connection.close()
            if order == GAP:
                raise ConnectionLostError("the consumer's sequences have a gap: messages were lost on the way")
            raise ConnectionLostError("the stream's sequences do not ascend")
        at.consumer_sequence += count
        if in_range:
            self.hole = stepped_over or None
            self.messages += in_range
            at.next = batch.sequence(in_range - 1) + 1
            self.time = batch.time(in_range - 1)
        at.done = at.done or in_range < count or batch.pending == 0
        return in_range

    def _take(self, positions: Integers, begin: int, end: int) -> None:
        """Count messages against the requests, the oldest first.

        A request that the next message would not fit into is ended with a status. One whose bytes are used up to the
        last one is ended without a word.
        """
        requests = self._at.requests
        if begin < end:
            self._at.barren = 0
        while begin < end and requests:
            request = requests[0]
            taken, used = fill_request(positions, begin, end, request.left, request.room)
            request.left -= taken
            request.room -= used
            begin += taken
            if request.left == 0 or request.room == 0:
                requests.popleft()

    def _receive_status(self, subject: str, block: bytes) -> None:
        """Handle a status for the request with the inbox *subject*."""
        at = self._at
        code, text = read_status(block) or (0, "")
        meaning = PullStatus.of(code, text)
        if meaning is PullStatus.HEARTBEAT:
            return
        known = next((request for request in at.requests if request.inbox == subject), None)
        if meaning in (PullStatus.DELETED, PullStatus.MOVED):
            self._connection.close()
            raise ConnectionLostError(f"the consumer was ended: {text}")
        if meaning is PullStatus.NO_RESPONDERS:
            self._connection.close()
            raise ConnectionLostError("the consumer no longer answers")
        if not meaning.ends_request:
            raise StreamError(f"stream {self._range.stream}: {text or 'refused'}", code=code)
        if known is None:
            # The server ends a request with max_bytes by a status even after its last message.
            return
        at.requests.remove(known)
        at.barren += 1
        if at.barren > _OPEN_REQUESTS:
            at.barren = 0
            if meaning is not PullStatus.EXPIRED:
                # Not one message fits.
                at.max_bytes *= 2
            else:
                self._expired_empty()

    def _expired_empty(self) -> None:
        """Start over: nothing arrived, though messages were pending; a new consumer shows whether they still are."""
        self._connection.close()


def hole(sequences: Integers, expected: int) -> int | None:
    """The lowest sequence from *expected* on that the ascending *sequences* step over; None where they have no gap."""
    count = len(sequences)
    if int(sequences[-1]) == expected + count - 1:
        return None
    return expected + int(np.argmax(sequences != np.arange(expected, expected + count)))


_FEW_MESSAGES: Final = 200
"""Up to so many messages are handed out as lists."""

# Arrow imports pandas, if it is there, to make arrays of Python's lists.
_EMPTY: Final = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)


class OpenReader(PullReader):
    """Reader that never reaches its end; it blocks at the server until messages arrive, or another thread calls.

    Args:
        connection: connection for reading.
        stream: stream of the messages.
        start: the first sequence.
        filters: the subjects to read, none for all.
        calls: a socket; bytes on it interrupt the wait for messages.
        tick: seconds after which a wait ends in any case.
        identity: identity of the stream; another one of the name is not read. None for any.
        time: when the message before *start* was stored, in microseconds since 1970; None if that is unknown.

    Attributes:
        tick: likewise; it may be set between two batches.
        pending: how many messages the server had beyond the last batch; 1 before anything is known.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        start: int,
        filters: tuple[str, ...],
        *,
        calls: socket.socket,
        tick: float,
        identity: StreamIdentity | None = None,
        time: int | None = None,
    ) -> None:
        super().__init__(connection, Range(stream, start, LARGEST_SEQUENCE, filters, identity, time))
        self._longest_linger = 0.0
        self._calls = calls
        self.tick = tick
        self.pending = 1

    def close(self) -> None:
        """Remove the consumer; messages that were not handed out are left to the next reader."""
        self._end()

    def _begin(self) -> None:
        super()._begin()
        if self._at.done:
            self.pending = 0
        # An empty stream is not at its end: messages may arrive.
        self._at.done = False

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """The messages as they arrive, with their stream: few of them as lists; see `PullReader.batches`."""
        return super().batches()

    def _read(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield batches as they arrive, and one without rows whenever a wait ends without messages."""
        heard = time.monotonic()
        while self._connection.is_open:
            self._ask()
            if not self._connection.wait(self.tick, self._calls):
                if time.monotonic() > heard + self._patience:
                    raise self._silent()
                yield _EMPTY
                continue
            self._receive()
            received, count = self._take_received()
            if received is not None and count:
                yield self._handed_out(received, count)
            if received is not None:
                heard = time.monotonic()

    def _handed_out(self, received: Received, count: int) -> ArrowBatch | ListedRecords:
        """Return the first *count* messages, with their stream."""
        stream, identity = self._range.stream, self._range.identity

        def batch() -> ArrowBatch:
            return with_stream(received.batch(count, self._partition), stream, identity)

        if count > _FEW_MESSAGES or count < len(received):
            return batch()
        return received.listed(stream if identity is None else identity.label(stream), batch)

    def _account(self, batch: Received) -> int:
        count = super()._account(batch)
        self._at.done = False
        if count:
            self.pending = batch.pending
        return count

    def _expired_empty(self) -> None:
        """Continue: requests of an idle stream expire without a message."""
