"""Codecs in one thread: flights decoded and encoded again, beside a library that does it record by record.

The cases of chains have the example route's transforms between both, beside Kafka's classes.

In each round both get the same records, which no round before had, in another order. No Spark, no registry.
"""
# ruff: noqa: A005 - the benchmark's name on the command line

from __future__ import annotations

import gc
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any

from benchmarks._flights import supply
from benchmarks.harness import Case, Options, Result, Setup, Supply, rates
from benchmarks.peers import binary_chains
from turnout.codecs import Format, codec_of
from turnout.demo.flights import FlightMessage
from turnout.records.block import rows_of

_BATCH = 2_500
_REPEATS = 5
_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour", "airline")
_NUMBERS = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute")
_DELAYS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")

Work = Callable[[Sequence[bytes]], Sequence[bytes | None]]
"""Decodes and encodes values."""


def _schema(*fields: dict[str, Any]) -> dict[str, Any]:
    nullable: list[dict[str, Any]] = [
        *({"name": name, "type": ["null", "double"]} for name in _DELAYS),
        *({"name": name, "type": ["null", "string"]} for name in _TEXTS),
    ]
    numbers = [{"name": name, "type": "int"} for name in _NUMBERS]
    return {"type": "record", "name": "flights.Flight", "fields": [*numbers, *nullable, *fields]}


def _values(flights: Sequence[FlightMessage]) -> list[dict[str, Any]]:
    values = []
    # Some are cut off, as a flaky gateway would.
    for flight in map(json.loads, (flight.payload for flight in flights if flight.payload.endswith(b"}"))):
        numbers = {name: flight[name] for name in _NUMBERS}
        delays = {name: None if flight.get(name) is None else float(flight[name]) for name in _DELAYS}
        airports = {"stops": [flight["origin"], flight["dest"]]}
        values.append({**numbers, **delays, **{name: flight.get(name) for name in _TEXTS}, **airports})
    return values


def cases(options: Options) -> Iterator[Case]:
    """Avro and Protobuf, without and with an array in each value; then with the transforms of the example route."""
    flights, records = supply(), options.rows(20_000, 2_000)
    yield Case("avro", partial(_avro, "avro", _schema(), flights, records))
    stops = {"name": "stops", "type": {"type": "array", "items": "string"}}
    yield Case("avro with an array", partial(_avro, "avro with an array", _schema(stops), flights, records))
    yield Case("protobuf", partial(_protobuf, "protobuf", "", flights, records))
    stops_field = "repeated string stops = 21;"
    yield Case("protobuf with a list", partial(_protobuf, "protobuf with a list", stops_field, flights, records))
    yield from binary_chains.cases(options)


def _avro(case: str, schema: dict[str, Any], flights: Supply[FlightMessage], records: int) -> Iterator[Result]:
    import fastavro

    parsed = fastavro.parse_schema(schema)

    def write(value: dict[str, Any]) -> bytes:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, value)
        return file.getvalue()

    def one_by_one(texts: Sequence[bytes]) -> list[bytes | None]:
        written: list[bytes | None] = []
        for text in texts:
            value: Any = fastavro.schemaless_reader(io.BytesIO(text), parsed, None)
            written.append(write(value))
        return written

    with NamedTemporaryFile("w", suffix=".avsc") as file:
        json.dump(schema, file)
        file.flush()
        codec = codec_of(Format("avro", schema=file.name))

    def by_column(texts: Sequence[bytes]) -> list[bytes | None]:
        blocks, _ = codec.decode(rows_of(len(texts)), texts)
        return [text for block in blocks for text in codec.encode(block)]

    yield from _compared(case, by_column, "fastavro, record by record", one_by_one, write, flights, records)


def _protobuf(case: str, more: str, flights: Supply[FlightMessage], records: int) -> Iterator[Result]:
    from google.protobuf.message_factory import GetMessageClass

    from turnout.codecs.protobuf.descriptors import file_of

    kinds = {**dict.fromkeys(_NUMBERS, "int32"), **dict.fromkeys(_DELAYS, "optional double")}
    kinds |= dict.fromkeys(_TEXTS, "optional string")
    fields = "".join(f"{kind} {name} = {number};" for number, (name, kind) in enumerate(kinds.items(), 1))
    with NamedTemporaryFile("w", suffix=".proto") as file:
        file.write(f'syntax = "proto3"; message Flight {{{fields}{more}}}')
        file.flush()
        message = GetMessageClass(file_of(Path(file.name)).message())
        codec = codec_of(Format("protobuf", schema=file.name))
    names = [*kinds, "stops"] if more else list(kinds)
    optional = [name for name, kind in kinds.items() if kind.startswith("optional")]

    def write(value: dict[str, Any]) -> bytes:
        content: bytes = message(**{name: value[name] for name in names}).SerializeToString()
        return content

    def one_by_one(texts: Sequence[bytes]) -> list[bytes | None]:
        written: list[bytes | None] = []
        for text in texts:
            read = message.FromString(text)
            value = {name: getattr(read, name) for name in names}
            value |= {name: None for name in optional if not read.HasField(name)}
            written.append(write(value))
        return written

    def by_column(texts: Sequence[bytes]) -> list[bytes | None]:
        blocks, _ = codec.decode(rows_of(len(texts)), texts)
        # As after a transform: an untouched block would be written as the bytes that it was read from.
        changed = [block.with_columns(block.schema, block.columns) for block in blocks]
        return [text for block in changed for text in codec.encode(block)]

    yield from _compared(case, by_column, "protobuf, record by record", one_by_one, write, flights, records)


def _compared(
    case: str,
    work: Work,
    base: str,
    base_work: Work,
    write: Callable[[dict[str, Any]], bytes],
    flights: Supply[FlightMessage],
    records: int,
) -> Iterator[Result]:
    """Both in turns; the first round is not counted, as it plans and fills caches."""
    base = f"{case}: {base}"
    works = {base: base_work, f"{case}: decode and encode": work}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(_REPEATS + 1):
        texts = [write(value) for value in _values(flights.take(records))]
        batches = [texts[begin : begin + _BATCH] for begin in range(0, len(texts), _BATCH)]
        gc.collect()
        gc.freeze()
        for name in sorted(works, reverse=bool(turn % 2)):
            written: list[bytes | None] = []
            begun = time.process_time()
            for batch in batches:
                written += works[name](batch)
            seconds[name].append(time.process_time() - begun)
            if written != texts:
                raise AssertionError(f"{name}: other bytes than those that were read")
        gc.unfreeze()
    of_base = seconds[base][1:]
    for name, times in ((name, times[1:]) for name, times in seconds.items()):
        ratio = None if name == base else median(others / own for others, own in zip(of_base, times, strict=True))
        extra = {"cpu_us": median(times) / records * 1e6}
        setup = Setup("new", _BATCH if name != base else 1, 1)
        yield Result(name, records, rates(records, times), setup, None if name == base else base, ratio, extra)
