"""Values with a JSON Schema that a route changes: each is still of its schema, by a validator that is not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.codecs.schema_registry.stand_in import StandIn, running_registry
from turnout.codecs.schema_registry import RegistryCodec, registry_of
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.routes import Route

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "json_schema" / "changed.json").read_text())
MASK = [{"type": "MaskField$Value", "fields": "name"}]
SCHEMAS: dict[str, Any] = {
    "EVENTS": {
        "oneOf": [
            {
                "type": "object", "title": "Created",
                "properties": {"kind": {"const": "created"}, "id": {"type": "integer"}, "name": {"type": "string"}},
            },
            {
                "type": "object", "title": "Deleted",
                "properties": {"kind": {"const": "deleted"}, "id": {"type": "integer"}, "reason": {"type": "string"}},
            },
        ]
    },
    "NOTE": {
        "type": "object",
        "properties": {
            "id": {"type": "string"}, "note": {"type": "string"}, "name": {"type": "string"}, "d": {"type": "number"},
            "in": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
        },
        "required": ["id"],
    },
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running


def schema_of(vector: dict[str, Any]) -> Any:
    schema = vector["schema"]
    return SCHEMAS[schema] if isinstance(schema, str) else schema


def program(value: dict[str, Any], transforms: Any) -> Program:
    document = {
        "name": "events",
        "source": {"format": "kafka", "servers": "127.0.0.1:1", "topics": ["events"]},
        "value": {"format": "jsonSchema", **value},
        "transforms": MASK if transforms == "MASK" else transforms,
        "mappings": {"events": "out"},
        "sink": {"format": "kafka", "servers": "127.0.0.1:1"},
        "errors": {"tolerance": "all"},
        "deadLetter": {"topic": "dead"},
    }
    return Program.of(Route.parse(json.dumps(document)))


def outcomes(route: Program, values: list[bytes]) -> list[bytes | None]:
    """The delivered value of each record; None for a dead letter."""
    records = [SampleRecord("events", value=value, offset=at) for at, value in enumerate(values)]
    result = route.run(record_batch(records))
    topics, contents = result.messages.topics.to_pylist(), result.messages.column("value").to_pylist()
    return [None if topic == "dead" else value for topic, value in zip(topics, contents, strict=True)]


@pytest.mark.parametrize("vector", [one for one in VECTORS if "registry" not in one], ids=lambda one: one["id"])
def test_changed_values_are_of_the_schema_of_a_file(vector: dict[str, Any], tmp_path: Path) -> None:
    """What was absent stays absent, a union is the value alone, and the rest is as it came."""
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema_of(vector)))
    validator = jsonschema_rs.validator_for(schema_of(vector))
    route = program({"schema": str(file), **vector.get("settings", {})}, vector["transforms"])

    for given, expected in vector["cases"]:
        for copies in (1, 12):
            found = outcomes(route, [json.dumps(given).encode()] * copies)
            if expected == "refused":
                assert [None] * copies == found
                assert not validator.is_valid(given)
                continue
            assert [expected] * copies == [json.loads(text or b"0") for text in found]
            assert validator.is_valid(expected)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: one["id"])
def test_changed_values_are_of_the_schema_of_their_id(vector: dict[str, Any], registry: StandIn) -> None:
    """A registry's schema, the one they came with or a new one, is that of the values that are written with it."""
    before = registry.add("out-value", json.dumps(schema_of(vector)), "JSON")
    settings = {"registry": {"url": registry.url, "retries": 0, "wait": 0}, **vector.get("settings", {})}
    route = program(settings, vector["transforms"])
    assert isinstance(route.value, RegistryCodec)
    registry.clients.append(registry_of(route.value._options))
    cases = [case for case in vector["cases"] if case[1] != "refused"]

    found = outcomes(route, [b"\0" + before.to_bytes(4, "big") + json.dumps(given).encode() for given, _ in cases])

    assert [expected for _, expected in cases] == [json.loads((text or b"0")[5:] or "0") for text in found]
    for text in found:
        assert text is not None
        number = int.from_bytes(text[1:5], "big")
        assert (number == before) == ("registry" not in vector)
        schema = json.loads(registry.text(number))
        assert jsonschema_rs.validator_for(schema).is_valid(json.loads(text[5:]))


def test_an_unchanged_value_is_forwarded_as_it_came(tmp_path: Path) -> None:
    """Properties that are absent or unknown are no reason to refuse it."""
    file = tmp_path / "schema.json"
    texts = [b'{"id": "7"}', b'{"kind": "created", "id": 1, "name": "x", "at": 5}', b'{"kind": "deleted", "id": 1}']
    for schema, values in (("NOTE", texts[:1]), ("EVENTS", texts[1:])):
        file.write_text(json.dumps(SCHEMAS[schema]))
        assert outcomes(program({"schema": str(file)}, []), values) == values
