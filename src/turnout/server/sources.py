"""Requests to the sources of routes: their ends, single messages, and reachability."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.wire import Connection, ConnectionOptions, Range, stored_message, stream_info
from turnout.nats.wire.per_filter_reader import reader_of
from turnout.nats.wire.positions import resolve, state_of
from turnout.nats.wire.read_strategy import observer_strategy
from turnout.nats.wire.records import with_stream
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, KafkaSink, KafkaSource, NatsSink, NatsSource
from turnout.routes.values import listed
from turnout.server.offsets import Start

_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Bounds of a stream: its first sequence, and its next one."""

    first: int
    next: int


def opened(endpoint: NatsSource | NatsSink) -> Connection:
    """Open a connection with short timeouts, as a caller waits for the answer.

    Raises:
        ConnectionLostError: no server answers.
    """
    options = {**endpoint.options(), "connectTimeout": str(_SECONDS), "timeout": str(_SECONDS)}
    return Connection.open(ConnectionOptions.from_mapping({**options, "reconnectTimeout": str(_SECONDS)}))


def address_of(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the identity of an endpoint's servers, without credentials; empty for files."""
    if not isinstance(endpoint, NatsSource | NatsSink | KafkaSource | KafkaSink):
        return ()
    return tuple(url.rpartition("://")[2].rpartition("@")[2] for url in listed(endpoint.servers))


def knock(endpoint: Endpoint) -> None:
    """Check that a server of the endpoint answers.

    Raises:
        ConnectionLostError: none does.
        StreamError: a nats-server refuses the credentials.
    """
    if isinstance(endpoint, NatsSource | NatsSink):
        with opened(endpoint) as connection:
            if not connection.ping(_SECONDS):
                raise ConnectionLostError(f"no server of {', '.join(address_of(endpoint))} answers")
    elif isinstance(endpoint, KafkaSource | KafkaSink):
        _connect(address_of(endpoint))


def _connect(addresses: tuple[str, ...]) -> None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
        except (OSError, ValueError):
            continue
        return
    raise ConnectionLostError(f"no server of {', '.join(addresses)} answers")


def stream_ends(connection: Connection, source: NatsSource) -> dict[str, StreamEnd]:
    """Return the bounds of each stream of the source.

    Raises:
        StreamError: a stream is not there.
        ConnectionLostError: the server has gone.
    """
    states = {stream: stream_info(connection, stream)["state"] for stream in source.streams}
    return {stream: StreamEnd(max(1, state["first_seq"]), state["last_seq"] + 1) for stream, state in states.items()}


def resolved(route: Route, start: Start) -> Start:
    """Return the start as sequences if the source is NATS, as ``latest`` and times change their meaning.

    Raises:
        ConnectionLostError: the server is away.
        StreamError: a stream is not there.
    """
    return sequences_of(route.source, start) if isinstance(route.source, NatsSource) else start


def sequences_of(source: NatsSource, start: Start) -> dict[str, int]:
    """Return the sequence that a start names in each stream of the source.

    Raises:
        ConnectionLostError: the server is away.
        StreamError: a stream is not there.
    """
    is_time = isinstance(start, str) and start not in ("earliest", "latest")
    place: Any = datetime.fromisoformat(str(start)) if is_time else start
    with opened(source) as connection:
        return {stream: resolve(connection, stream, place) for stream in source.streams}


def oldest(connection: Connection, stream: str, sequence: int) -> dict[str, object] | None:
    """Return the first message with at least *sequence*, as the server sends it; None if none may be read.

    Raises:
        ConnectionLostError: the server has gone.
    """
    try:
        answer = connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": ">"})
    except StreamError:
        return None
    stored: dict[str, object] | None = answer.get("message")
    return stored


def record_at(source: NatsSource, stream: str, sequence: int) -> ArrowBatch:
    """A message of a stream as a record batch, as a run reads it.

    Raises:
        StreamError: there is no such message, or no such stream.
        ConnectionLostError: the server is away.
    """
    with opened(source) as connection:
        return with_stream(stored_message(connection, stream, sequence), stream)


def last_records(source: NatsSource, count: int) -> Iterator[ArrowBatch]:
    """The last *count* sequences of each stream of the source as record batches, in order.

    Raises:
        StreamError: a stream is not there.
        ConnectionLostError: the server is away.
    """
    with opened(source) as connection:
        for stream, end in stream_ends(connection, source).items():
            places = Range(stream, max(end.first, end.next - count), end.next, source.filters)
            if places.start >= places.end:
                continue
            way = observer_strategy(state_of(connection, stream))
            for batch in reader_of(connection, places, way).batches():
                yield with_stream(batch, stream)


def seconds_since(stored: Mapping[str, object], now: float) -> float:
    """Return the age of a message that `oldest` returned."""
    return max(0.0, now - _moment(stored).timestamp())


def _moment(stored: Mapping[str, object]) -> datetime:
    """Return the time at which a stream stored a message, truncated from nanoseconds."""
    return datetime.fromisoformat(str(stored["time"])[:26].rstrip("Z") + "+00:00")
