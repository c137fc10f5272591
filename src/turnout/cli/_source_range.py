"""The records of a route's NATS source between two places, as a run reads them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from turnout.errors import ConfigError, Mistake
from turnout.routes.endpoints import NatsSource
from turnout.wire import Connection, ConnectionOptions, DirectReader, PullReader, Range, stream_info
from turnout.wire.places import resolve
from turnout.wire.rows import with_stream

if TYPE_CHECKING:
    from turnout.routes import Route

__all__ = ["records_between"]


def _nats_source(route: Route, option: str) -> NatsSource:
    """The route's source.

    Raises:
        ConfigError: it is no NATS source; names the option that asked for it.
    """
    source = route.source
    if not isinstance(source, NatsSource):
        raise ConfigError([Mistake(option, f"the route's source is {source.format}, expected nats")])
    return source


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
    source = _nats_source(route, option)
    places = _place(begin, "--from"), None if end is None else _place(end, "--to")
    with Connection.open(ConnectionOptions.from_mapping(source.options())) as connection:
        for stream in source.streams:
            first, last = (None if place is None else _sequence(connection, stream, place) for place in places)
            following = stream_info(connection, stream)["state"]["last_seq"] + 1
            span = Range(stream, first or 1, min(last or following, following), source.filters)
            if span.end > span.start:
                # A work queue allows no second consumer.
                reader = PullReader if source.ack_consumer is None else DirectReader
                for batch in reader(connection, span).batches():
                    yield with_stream(batch, stream)


def _place(text: str, option: str) -> int | datetime:
    if text == "earliest":
        return 1
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problem = f"expected a sequence, an ISO 8601 time or earliest, found {text!r}"
        raise ConfigError([Mistake(option, problem)]) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _sequence(connection: Connection, stream: str, place: int | datetime) -> int:
    if isinstance(place, int):
        return place
    return resolve(connection, stream, place)
