"""Reader of a tap: a route's streams in parts, live or for a range, without disturbing a run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnout.nats.protocol.errors import StreamReplacedError
from turnout.nats.wire.positions import StreamPosition, position_of
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.runtime.endpoints import EndpointAdapter, adapter_of
from turnout.runtime.endpoints.adapter import StreamEnd

_log = logging.getLogger(__name__)

_READ_SEQUENCES = 2_000
"""This many sequences are read at once."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Some records of one stream, or partition, as record batches."""

    stream: str
    batches: Sequence[ArrowBatch]


def parts(
    route: Route, start: StreamPosition | None, end: StreamPosition | None, stop: threading.Event, *, newest: int | None
) -> Iterator[StreamPart]:
    """Return an iterator of the parts of a route's streams from one position to another, or without end.

    Args:
        route: route with the source.
        start: the first position; None for new records only.
        end: the position after the last record; None for no end.
        stop: set it to end.
        newest: maximum number of records to read of those since the last read, newest ones; None for all.

    Raises:
        ConfigError: the source keeps no history, or a position is none.
        StreamError: a stream does not exist, or cannot be read beside its consumers.
        ConnectionLostError: the server cannot be reached.
    """
    adapter = adapter_of(route.source_with_history())
    first = position_of("start", "latest" if start is None else start)
    last = None if end is None else position_of("end", end)
    return _parts(adapter, first, last, stop, newest)


def _report(stream: str, before: StreamEnd, bounds: StreamEnd, *, lasting: bool) -> None:
    """Warn that a stream is another one now, or has older data; a range of it is no more.

    Raises:
        StreamError: the tap is for a range.
    """
    former, present = (f"created at {end.created}, " if end.created else "" for end in (before, bounds))
    text = (
        f"the stream {stream!r} was made anew, or restored to older data: before it was {former}with the next position"
        f" {before.next:,}, now it is {present}with {bounds.next:,}"
    )
    if not lasting:
        raise StreamReplacedError(f"{text}; begin again with a position in it", code=404)
    _log.warning("%s; it is read from its first message", text)


def _parts(
    adapter: EndpointAdapter,
    first: StreamPosition,
    last: StreamPosition | None,
    stop: threading.Event,
    newest: int | None,
) -> Iterator[StreamPart]:
    with adapter.history() as history:
        positions = {stream: history.resolve(stream, first) for stream in history.streams}
        ends = None if last is None else {stream: history.resolve(stream, last) for stream in history.streams}
        seen = {stream: history.bounds(stream) for stream in history.streams}
        while not stop.is_set():
            idle = True
            for stream in history.streams:
                bounds, before = history.bounds(stream), seen[stream]
                if bounds.created != before.created or bounds.next < before.next:
                    _report(stream, before, bounds, lasting=ends is None)
                    positions[stream] = bounds.first
                seen[stream] = bounds
                end = bounds.next if ends is None else min(bounds.next, ends[stream])
                start = max(positions[stream], bounds.first, 0 if newest is None else end - newest)
                if start >= end:
                    continue
                idle = False
                positions[stream] = min(end, start + _READ_SEQUENCES)
                # Read to its end, so that a consumer is deleted, however long the caller processes its records.
                batches = list(history.read(stream, start, positions[stream]))
                yield StreamPart(stream, [batch for batch in batches if batch.num_rows])
            if idle and ends is not None:
                return
            if idle:
                history.wait(positions, stop)
