"""Reader of a tap: a route's streams in parts, live or for a range, without disturbing a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnout.nats.wire import Connection, ConnectionOptions, Range
from turnout.nats.wire.per_filter_reader import reader_of
from turnout.nats.wire.positions import Place, place_of, resolve, state_of
from turnout.nats.wire.read_strategy import BY_SEQUENCE, observer_strategy
from turnout.nats.wire.records import with_stream
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.runtime.waiting import wait_for_more

_AT_ONCE = 2_000
"""This many sequences are read at once."""

_WAIT = 0.5


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Some records of one stream, as record batches."""

    stream: str
    batches: Sequence[ArrowBatch]


class _Stream:
    """Reader of one stream that does not affect its consumers."""

    def __init__(self, connection: Connection, name: str, filters: Sequence[str]) -> None:
        self._connection = connection
        self.name = name
        self._filters = tuple(filters)
        # A tap must be no consumer of those that count.
        self.way = observer_strategy(state_of(connection, name))

    def read(self, start: int, end: int) -> StreamPart:
        """The records of a range."""
        span = Range(self.name, start, end, self._filters)
        # Read to its end, so that a consumer is deleted, however long a caller looks at what it brought.
        batches = list(reader_of(self._connection, span, self.way).batches())
        return StreamPart(self.name, [with_stream(batch, self.name) for batch in batches if batch.num_rows])


def parts(
    route: Route, start: Place | None, end: Place | None, stop: threading.Event, *, newest: int | None
) -> Iterator[StreamPart]:
    """Return an iterator of the parts of a route's streams from one position to another, or without end.

    Args:
        route: whose source.
        start: the first position; what comes from now on if None.
        end: the position after the last record; None for no end.
        stop: set it to end.
        newest: of what came in the meantime, so many of the newest records are read; None for all of them.

    Raises:
        ConfigError: the source is not NATS, or a position is none.
        StreamError: a stream does not exist, or cannot be read beside its consumers.
        ConnectionLostError: the server cannot be reached.
    """
    source = route.nats_source()
    first = place_of("start", "latest" if start is None else start)
    last = None if end is None else place_of("end", end)
    return _parts(source.connection, source.streams, source.filters, first, last, stop, newest)


def _parts(
    options: ConnectionOptions,
    names: Sequence[str],
    filters: tuple[str, ...],
    first: Place,
    last: Place | None,
    stop: threading.Event,
    newest: int | None,
) -> Iterator[StreamPart]:
    with Connection.open(options) as connection:
        streams = [_Stream(connection, name, filters) for name in names]
        next_sequences = {stream.name: resolve(connection, stream.name, first) for stream in streams}
        ends = None if last is None else {stream.name: resolve(connection, stream.name, last) for stream in streams}
        while not stop.is_set():
            idle = True
            for stream in streams:
                state = state_of(connection, stream.name)
                end = state.next if ends is None else min(state.next, ends[stream.name])
                start = max(next_sequences[stream.name], state.first, 0 if newest is None else end - newest)
                if start >= end:
                    continue
                idle = False
                next_sequences[stream.name] = min(end, start + _AT_ONCE)
                yield stream.read(start, next_sequences[stream.name])
            if idle and ends is not None:
                return
            if idle:
                _wait(connection, streams, next_sequences, filters, stop)


def _wait(
    connection: Connection,
    streams: Sequence[_Stream],
    next_sequences: dict[str, int],
    filters: tuple[str, ...],
    stop: threading.Event,
) -> None:
    """Wait for the next record; where no consumer may be made, for a moment."""
    if any(stream.way == BY_SEQUENCE for stream in streams):
        stop.wait(_WAIT)
    else:
        wait_for_more(connection, next_sequences, filters, 2 * _WAIT)
