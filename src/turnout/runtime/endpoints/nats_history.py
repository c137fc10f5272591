"""History of NATS streams: messages by sequence, read by consumers that acknowledge nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Final

from turnout.nats.protocol.identity import StreamIdentity
from turnout.nats.wire import Connection, Range
from turnout.nats.wire.per_filter_reader import reader_of
from turnout.nats.wire.positions import StreamPosition, count_about, count_exactly, resolve, state_of
from turnout.nats.wire.read_strategy import BY_SEQUENCE, observer_strategy
from turnout.nats.wire.rows import with_stream
from turnout.runtime.endpoints.adapter import StreamEnd
from turnout.runtime.message_wait import wait_for_more

if TYPE_CHECKING:
    from turnout.records.types import ArrowBatch

_WAIT_SECONDS: Final = 0.5


class NatsHistory:
    """Reading of streams.

    Args:
        connection: an open one.
        streams: their names.
        filters: patterns of the subjects that are read; empty for all.
    """

    def __init__(self, connection: Connection, streams: Sequence[str], filters: tuple[str, ...]) -> None:
        self._connection = connection
        self.streams = streams
        self._filters = filters
        # An observer must not be one of the consumers that count.
        states = {name: state_of(connection, name) for name in streams}
        self._strategies = {name: observer_strategy(state) for name, state in states.items()}
        self._identities = {name: StreamIdentity.of(state.created) for name, state in states.items()}

    def bounds(self, stream: str) -> StreamEnd:
        """Return the bounds of a stream now."""
        state = state_of(self._connection, stream)
        self._identities[stream] = StreamIdentity.of(state.created)
        return StreamEnd(state.first, state.next, state.created)

    def resolve(self, stream: str, position: StreamPosition) -> int:
        """Return the sequence in a stream that a place means now."""
        return resolve(self._connection, stream, position)

    def read(self, stream: str, start: int, end: int) -> Iterator[ArrowBatch]:
        """Yield the messages of a range, of the stream as it was when its bounds were requested last."""
        identity = self._identities[stream]
        span = Range(stream, start, end, self._filters, identity)
        for batch in reader_of(self._connection, span, self._strategies[stream]).batches():
            yield with_stream(batch, stream, identity)

    def count(self, stream: str, start: int, end: int, filters: Sequence[str]) -> int:
        """Return the number of messages in a range; an upper bound for work-queue and interest streams."""
        exact = count_exactly(self._connection, stream, start, end, filters)
        if exact is not None:
            return exact
        # Too many messages arrive or are deleted now for an exact number, or counting would take a consumer in
        # a stream that counts its consumers; it is shown, and nothing more.
        if state_of(self._connection, stream).consumed:
            return end - start
        return count_about(self._connection, stream, start, end, filters)

    def wait(self, positions: Mapping[str, int], stop: Event) -> None:
        """Wait for the next message; where no consumer may be made, for a moment."""
        if BY_SEQUENCE in self._strategies.values():
            stop.wait(_WAIT_SECONDS)
        else:
            wait_for_more(self._connection, dict(positions), self._filters, 2 * _WAIT_SECONDS)
