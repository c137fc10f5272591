"""Range of a route's history: a range of sequences of each of its streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnout.nats.protocol.identity import StreamIdentity
from turnout.nats.wire.positions import StreamPosition, position_of
from turnout.routes import Route
from turnout.runtime.endpoints import SourceHistory, adapter_of


@dataclass(frozen=True, slots=True)
class StreamRange:
    """A part of one stream, or of one partition of Kafka.

    Attributes:
        start: its first sequence.
        end: the sequence behind its last.
        records: how many messages the stream holds there on the subjects that are read; of a work queue or an interest
            stream, on some subjects, how many it holds at most; of Kafka the number of offsets.
        identity: identity of the stream, which others of its name do not have; None if it is unknown, or has none.
    """

    stream: str
    start: int
    end: int
    records: int
    identity: StreamIdentity | None = None


def ranges_of(
    route: Route, start: StreamPosition, end: StreamPosition, filters: Sequence[str] = ()
) -> tuple[StreamRange, ...]:
    """Return the ranges of the route's streams from one position up to, not including, another.

    Raises:
        ConfigError: a position is none, or the source keeps no history.
        StreamError: a stream does not exist.
        ConnectionLostError: the server cannot be reached.
    """
    source = route.source_with_history()
    bounds = position_of("start", start), position_of("end", end)
    with adapter_of(source).history() as history:
        return tuple(_ranges(history, *bounds, filters))


def _ranges(
    history: SourceHistory, start: StreamPosition, end: StreamPosition, filters: Sequence[str]
) -> Iterable[StreamRange]:
    for stream in history.streams:
        bounds = history.bounds(stream)
        first = min(max(bounds.first, history.resolve(stream, start)), bounds.next)
        last = max(first, min(bounds.next, history.resolve(stream, end)))
        identity = StreamIdentity.of(bounds.created) if bounds.created else None
        yield StreamRange(stream, first, last, history.count(stream, first, last, filters), identity)
