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


@given(st.fixed_dictionaries({}, optional=_FIELDS))
def test_flights_in_avro(flight: dict[str, Any]) -> None:
    """Another library reads what was written, and nothing is left behind it."""
    stream = io.BytesIO(encode(flight, 17))

    assert stream.read(5) == b"\0\0\0\0\x11"
    found: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(SCHEMA)), None)
    assert found == {**dict.fromkeys(_FIELDS), **flight}
    assert stream.read() == b""
