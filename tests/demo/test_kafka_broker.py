"""The demo's schema registry."""

from __future__ import annotations

import pytest

from turnout.codecs.schema_registry import RegistryOptions, SchemaRegistry, SchemaText, UnknownSchemaError
from turnout.demo.kafka_broker import demo_registry
from turnout.demo.kafka_year import SCHEMA


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
