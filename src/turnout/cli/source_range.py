"""The records of a route's NATS source between two places, as a run reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from turnout.nats.wire import Connection, Range
from turnout.nats.wire.per_filter_reader import reader_of
from turnout.nats.wire.positions import place_of, resolve, state_of
from turnout.nats.wire.read_strategy import observer_strategy
from turnout.nats.wire.records import with_stream

if TYPE_CHECKING:
    from turnout.routes import Route


def records_between(route: Route, begin: str, end: str | None, option: str = "--against") -> Iterator[Any]:
    """The record batches from one place up to, not including, another, of each of the source's streams.

    Args:
        route: whose source is read.
        begin: a sequence, an ISO time, or ``earliest``.
        end: likewise; None for what the stream holds now.
        option: what to name where the route has no such source.

    Raises:
        ConfigError: for a place that is none, and for another source than NATS.
        StreamError: a stream is not there, or may not be read.
    """
    source = route.nats_source(option)
    first, last = place_of("--from", begin), place_of("--to", "latest" if end is None else end)
    with Connection.open(source.connection) as connection:
        for stream in source.streams:
            state = state_of(connection, stream)
            start, stop = (min(resolve(connection, stream, bound), state.next) for bound in (first, last))
            span = Range(stream, start, stop, source.filters)
            if span.end > span.start:
                for batch in reader_of(connection, span, observer_strategy(state)).batches():
                    yield with_stream(batch, stream)
