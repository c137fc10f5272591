"""Parts of the demo in Kafka that need no broker."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs.schema_registry import RegistryOptions, SchemaRegistry, SchemaText, UnknownSchemaError
from turnout.demo.kafka_year import SCHEMA, encode
from turnout.demo.registry import demo_registry

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


def test_registry() -> None:
    """Confluent's client registers schemas and reads them by their ids; an unknown id is said to be unknown."""
    with demo_registry() as registry:
        known = registry.register(SCHEMA)
        client = SchemaRegistry(RegistryOptions.read({"url": registry.url, "retries": 0}))

        assert client.by_id(known).text == SCHEMA
        assert client.register("flights-value", SchemaText("AVRO", SCHEMA)).id == known
        with pytest.raises(UnknownSchemaError):
            client.by_id(99)
        client.close()
