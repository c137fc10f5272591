"""A stream from a sequence on, without an end: each batch is handed out as soon as it arrives."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.nats.protocol.identity import StreamIdentity
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.pull import PullReader, Range
from turnout.nats.wire.records import SCHEMA, Received
from turnout.nats.wire.rows import with_stream
from turnout.records.listed import ListedRecords
from turnout.records.types import ArrowBatch

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
