"""Parts of the demo in Kafka that need no broker."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from turnout.demo.kafka_year import SCHEMA, encode

_FIELDS = {
    field["name"]: st.text() if field["type"][1] == "string" else st.integers(-(1 << 31), (1 << 31) - 1)
    for field in json.loads(SCHEMA)["fields"]
}


@given(st.lists(st.fixed_dictionaries({}, optional=_FIELDS), max_size=3))
def test_flights_in_avro(flights: list[dict[str, Any]]) -> None:
    """Another library reads what was written, and nothing is left behind it."""
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    streams = list(map(io.BytesIO, encode(flights, 17)))

    assert [stream.read(5) for stream in streams] == [b"\0\0\0\0\x11"] * len(flights)
    found: list[Any] = [fastavro.schemaless_reader(stream, schema, None) for stream in streams]
    assert found == [{**dict.fromkeys(_FIELDS), **flight} for flight in flights]
    assert [stream.read() for stream in streams] == [b""] * len(flights)
