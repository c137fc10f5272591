"""Range of a route's history: a range of sequences of each of its streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnout.nats.wire import Connection
from turnout.nats.wire.positions import Place, count_about, count_exactly, place_of, resolve, state_of
from turnout.routes import Route


@dataclass(frozen=True, slots=True)
class StreamRange:
    """A part of one stream.

    Attributes:
        start: its first sequence.
        end: the sequence behind its last.
        records: how many messages the stream holds there on the subjects that are read; of a work queue or an interest
            stream, on some subjects, how many it holds at most.
    """

    stream: str
    start: int
    end: int
    records: int


def ranges_of(route: Route, start: Place, end: Place, filters: Sequence[str] = ()) -> tuple[StreamRange, ...]:
    """Return the ranges of the route's streams from one position up to, not including, another.

    Raises:
        ConfigError: a position is none, or the source is not NATS.
        StreamError: a stream does not exist.
        ConnectionLostError: the server cannot be reached.
    """
    source = route.nats_source()
    bounds = place_of("start", start), place_of("end", end)
    with Connection.open(source.connection) as connection:
        return tuple(_ranges(connection, source.streams, *bounds, filters))


def _ranges(
    connection: Connection, streams: Iterable[str], start: Place, end: Place, filters: Sequence[str]
) -> Iterable[StreamRange]:
    for stream in streams:
        state = state_of(connection, stream)
        first = min(max(state.first, resolve(connection, stream, start)), state.next)
        last = max(first, min(state.next, resolve(connection, stream, end)))
        records = count_exactly(connection, stream, first, last, filters)
        if records is None:
            # So much arrives or goes at this moment that there is no exact number, or to count would take a consumer in
            # a stream that counts its consumers; it is shown, and nothing more.
            records = last - first if state.consumed else count_about(connection, stream, first, last, filters)
        yield StreamRange(stream, first, last, records)
