"""Flights as records on their way: what benchmarks of routes and of chains put through them, none twice."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from benchmarks.harness import Supply
from turnout.demo.flights import FlightMessage, flights, messages, streams
from turnout.nats.wire import Connection, Publisher, create_stream, purge_stream
from turnout.records.headers import headers_type

ROUTE = Path(__file__).parents[1] / "examples" / "flights.yaml"

_POOL = 100_000
_FIRST = 1_357_016_400_000
_STEP = 7_919
"""A prime: the flight that lends its times in the second year, and in each year after that."""

_LENT = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "flight")


def endless_flights(limit: int = _POOL) -> Iterator[FlightMessage]:
    """The year's first flights, and the same of further years with their carriers, airports and schedule.

    In these a flight has its number, its times and its delays from another flight of the year, so that each field has
    the values that it has in the data, as often, and no record is there twice.
    """
    first = list(flights(limit))
    yield from messages(records=first)
    for lap in itertools.count(1):
        yield from messages(records=(_moved(first, at, lap) for at in range(len(first))))


def _moved(year: Sequence[dict[str, Any]], at: int, lap: int) -> dict[str, Any]:
    flight, other = year[at], year[(at + lap * _STEP) % len(year)]
    own = {name: value for name, value in flight.items() if name not in _LENT}
    own |= {name: other[name] for name in _LENT if name in other}
    # In the order of the data's fields, of which those that have no value are left out.
    moved = {name: own[name] for name in _FIELDS if name in own}
    return {**moved, "year": flight["year"] + lap, "time_hour": f"{flight['year'] + lap}{flight['time_hour'][4:]}"}


_FIELDS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour", "airline",
)  # fmt: skip


def supply() -> Supply[FlightMessage]:
    """Return flights, each given out once."""
    return Supply(endless_flights())


_OPTIONAL = (
    "sched_dep_time", "arr_time", "sched_arr_time", "carrier", "flight", "origin", "dest", "distance", "airline",
)  # fmt: skip


def of_shapes(sent: Sequence[FlightMessage], shapes: int) -> list[FlightMessage]:
    """Return the flights with fields left out, so that their values have this many shapes, in turns by a prime.

    Every flight keeps the fields that the example route's transforms name; one that is missing there is zero. What was
    cut off stays so.

    Raises:
        ValueError: more shapes than there are subsets of the other fields.
    """
    if not 1 <= shapes <= 1 << len(_OPTIONAL):
        raise ValueError(f"expected 1 to {1 << len(_OPTIONAL)} shapes, found {shapes}")
    return [
        replace(message, payload=_of_shape(message.payload, at * _STEP % shapes)) if _is_whole(message) else message
        for at, message in enumerate(sent)
    ]


def _is_whole(message: FlightMessage) -> bool:
    return message.payload.endswith(b"}")


def _of_shape(payload: bytes, shape: int) -> bytes:
    flight = json.loads(payload)
    left_out = {name for bit, name in enumerate(_OPTIONAL) if shape >> bit & 1}
    kept = {name: flight.get(name, 0) for name in _FIELDS if name not in left_out}
    return json.dumps({**kept, "tailnum": str(kept["tailnum"])}, separators=(",", ":")).encode()


def publish(url: str, sent: Sequence[FlightMessage], config: Mapping[str, object] | None = None) -> None:
    """Make these the only messages of the stream of flights, which is created if it is not there."""
    config = config or streams()[0]
    with Connection.open(url) as connection:
        create_stream(connection, config)
        purge_stream(connection, str(config["name"]))
        with Publisher(connection) as publisher:
            for message in sent:
                publisher.publish(message.subject, message.payload, message.headers)


def publish_apart(url: str, count: int, first: int = 0) -> None:
    """Make *count* flights of `supply`, from this number on, the only messages of the stream, in another process.

    Some hundred thousand flights take more memory than the route that is measured.
    """
    command = [sys.executable, "-m", "benchmarks._flights", url, str(count), str(first)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])


def lines(sent: Sequence[FlightMessage]) -> list[str]:
    """A JSON object for each, for programs that read files; each was published a millisecond after the one before.

    Values are in base64: not all of them are text.
    """
    return [
        json.dumps(
            {
                "topic": message.subject,
                "timestamp": _FIRST + at,
                "headers": list(message.headers),
                "value": b64encode(message.payload).decode(),
            }
        )
        for at, message in enumerate(sent)
    ]


def batches(sent: Sequence[FlightMessage], size: int = 10_000) -> list[pa.RecordBatch]:
    """As a source gives them: Arrow batches."""
    headers = [[{"key": name, "value": text.encode()} for name, text in message.headers] for message in sent]
    table = pa.table(
        {
            "topic": [message.subject for message in sent],
            "timestamp": pa.array(range(_FIRST, _FIRST + len(sent)), pa.int64()),
            "headers": pa.array(headers, headers_type()),
            "value": pa.array([message.payload for message in sent], pa.binary()),
        }
    )
    batches: list[Any] = table.combine_chunks().to_batches(max_chunksize=size)
    return batches


def route() -> dict[str, Any]:
    """The example route's file as it is written."""
    return yaml.safe_load(ROUTE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


if __name__ == "__main__":
    given = supply().take(int(sys.argv[2]) + int(sys.argv[3]))
    publish(sys.argv[1], given[int(sys.argv[3]) :])
