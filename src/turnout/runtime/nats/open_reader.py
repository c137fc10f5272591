"""Reader of an open split of a NATS stream."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection
from turnout.nats.wire.pull import OpenReader
from turnout.nats.wire.streams import state_of
from turnout.records.listed import ListedRecords
from turnout.records.types import ArrowBatch
from turnout.runtime.nats.source import LossWatch, SourceOptions, until_replaced


class NatsOpenReader:
    """Records of a stream as they arrive; see `turnout.runtime.open_task.OpenRecords`.

    Attributes:
        next: the next sequence.
        time: time of the message before it, in microseconds since 1970; None if unknown.
    """

    def __init__(self, reader: OpenReader, options: SourceOptions, watch: LossWatch, end: int) -> None:
        self._reader = reader
        self._options = options
        self._watch = watch
        self._end = end
        self.next, self.time = reader.next, reader.time

    @property
    def repeats(self) -> bool:
        """True up to the end that the stream had at the beginning."""
        return self.next < self._end

    @property
    def pending(self) -> int:
        """Number of messages that the server had beyond the last batch."""
        return self._reader.pending

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield the records as they arrive, and a batch without any when a wait ends.

        Raises:
            StreamError: messages were deleted, or the stream is another one, and ``failOnDataLoss`` is on.
            ConnectionLostError: no reconnection in time.
        """
        for batch in until_replaced(self._reader.batches(), self._options):
            if batch.num_rows and self._reader.hole is not None:
                self._watch.note(self._reader.hole)
            self.next, self.time = self._reader.next, self._reader.time
            yield batch

    def check(self) -> bool:
        """Return True: a stream that is replaced ends its consumer."""
        return True

    def wait_at_most(self, seconds: float) -> None:
        """Set the length of the longest wait."""
        self._reader.tick = seconds


@contextmanager
def opened(
    options: SourceOptions,
    stream: str,
    start: int,
    calls: socket.socket,
    seconds: float,
    time: int | None = None,
    *,
    identity: StreamIdentity | None = None,
) -> Iterator[NatsOpenReader]:
    """Open the reader of a split; its consumer is removed at the end.

    Args:
        options: how the source is read.
        stream: stream to read.
        start: the first sequence.
        calls: bytes on it end a wait for messages.
        seconds: the longest wait.
        time: when the message before *start* was stored, in microseconds since 1970; None if that is unknown.
        identity: identity of the stream; another one of the name is not read. None for any.
    """
    with Connection(options.connection) as connection:
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        connection.reconnect()
        end, filters = state_of(connection, stream).next, options.filters
        reader = OpenReader(connection, stream, start, filters, calls=calls, tick=seconds, identity=identity, time=time)
        with LossWatch(options, stream, LARGEST_SEQUENCE, passing_by=bool(filters)) as watch:
            yield NatsOpenReader(reader, options, watch, end)
            watch.look()
        reader.close()
