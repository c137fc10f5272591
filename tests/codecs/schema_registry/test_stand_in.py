"""The stand-in, held to Confluent's own client."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from tests.codecs.schema_registry.stand_in import StandIn

_A = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}', "AVRO")
_B = Schema(
    '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"long","default":0}]}', "AVRO"
)
_C = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"c","type":"long"}]}', "AVRO")


@pytest.fixture
def confluent(registry: StandIn) -> SchemaRegistryClient:
    client = SchemaRegistryClient({"url": registry.url, "max.retries": 0})
    registry.clients.append(client)
    return client


def test_subjects_versions_and_ids(confluent: SchemaRegistryClient) -> None:
    first = confluent.register_schema("s", _A)
    second = confluent.register_schema("s", _B)
    assert confluent.register_schema("other", _A) == first != second
    assert confluent.get_subjects() == ["other", "s"]
    assert confluent.get_versions("s") == [1, 2]
    assert confluent.get_schema(second).schema_str == _B.schema_str
    latest = confluent.get_latest_version("s")
    assert (latest.version, latest.schema_id) == (2, second)
    assert confluent.get_version("s", 1).schema_id == first
    assert confluent.lookup_schema("s", _A).version == 1
    assert {(one.subject, one.version) for one in confluent.get_schema_versions(first)} == {("s", 1), ("other", 1)}


def test_compatibility(confluent: SchemaRegistryClient) -> None:
    confluent.register_schema("s", _A)
    assert confluent.test_compatibility("s", _B)
    assert not confluent.test_compatibility("s", _C)
    assert _code(lambda: confluent.register_schema("s", _C)) == (409, 409)
    confluent.set_compatibility("s", "NONE")
    assert confluent.get_compatibility("s") == "NONE"
    assert confluent.register_schema("s", _C) == 2


def test_references(confluent: SchemaRegistryClient) -> None:
    confluent.register_schema("city", Schema('{"type":"fixed","name":"City","size":3}', "AVRO"))
    trip = Schema(json.dumps({"type": "array", "items": "City"}), "AVRO", [SchemaReference("City", "city", 1)])
    number = confluent.register_schema("trip", trip)
    references = confluent.get_schema(number).references
    assert references is not None
    (reference,) = references
    assert (reference.name, reference.subject, reference.version) == ("City", "city", 1)
    assert confluent.get_referenced_by("city", 1) == [number]
    assert _code(lambda: confluent.delete_subject("city")) == (422, 42206)


def test_errors(confluent: SchemaRegistryClient) -> None:
    confluent.register_schema("s", _A)
    assert _code(lambda: confluent.get_schema(99)) == (404, 40403)
    assert _code(lambda: confluent.get_latest_version("none")) == (404, 40401)
    assert _code(lambda: confluent.get_version("s", 9)) == (404, 40402)
    assert _code(lambda: confluent.lookup_schema("s", _B)) == (404, 40403)
    assert _code(lambda: confluent.register_schema("s", Schema("{", "AVRO"))) == (422, 42201)
    assert _code(lambda: confluent.get_compatibility("s")) == (404, 40408)
    assert _code(lambda: confluent.set_compatibility("s", "SOME")) == (422, 42203)


def test_deletion(confluent: SchemaRegistryClient) -> None:
    confluent.register_schema("s", _A)
    confluent.register_schema("s", _B)
    assert confluent.delete_version("s", 1) == 1
    assert confluent.get_versions("s") == [2]
    assert confluent.delete_subject("s") == [2]
    assert confluent.get_subjects() == []
    assert confluent.delete_subject("s", permanent=True) == [1, 2]


def _code(call: object) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as failure:
        call()  # type: ignore[operator]
    return failure.value.http_status_code, failure.value.error_code
