"""The records of a route's source between two places, as a run reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from turnout.nats.wire.positions import position_of
from turnout.runtime.endpoints import adapter_of

if TYPE_CHECKING:
    from turnout.routes import Route


def records_between(route: Route, begin: str, end: str | None, option: str = "--against") -> Iterator[object]:
    """The record batches from one place up to, not including, another, of each of the source's streams or partitions.

    Args:
        route: route with the source.
        begin: a sequence, an ISO time, or ``earliest``.
        end: likewise; None for the current end of the stream.
        option: option to name in the error if the route has no such source.

    Raises:
        ConfigError: for a place that is none, and for a source that keeps no history.
        StreamError: a stream is not there, or may not be read.
    """
    source = route.source_with_history(option)
    first, last = position_of("--from", begin), position_of("--to", "latest" if end is None else end)
    with adapter_of(source).history() as history:
        for stream in history.streams:
            bounds = history.bounds(stream)
            start, stop = (min(history.resolve(stream, bound), bounds.next) for bound in (first, last))
            start = max(start, bounds.first)
            if stop > start:
                yield from history.read(stream, start, stop)
