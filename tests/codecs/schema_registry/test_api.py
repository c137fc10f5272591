"""The API of registries, tested with Confluent's own client: a stand-in answers as a server does."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from tests.codecs.schema_registry.tested_registry import TestedRegistry

_A = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}', "AVRO")
_B = Schema(
    '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"long","default":0}]}', "AVRO"
)
_C = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"c","type":"long"}]}', "AVRO")
_UNKNOWN_ID = 2**31 - 1


@pytest.fixture
def confluent(each_registry: TestedRegistry) -> SchemaRegistryClient:
    return each_registry.client()


@pytest.fixture
def subject(each_registry: TestedRegistry) -> str:
    """A subject of the test's own."""
    return each_registry.subject("s")


def test_subjects_versions_and_ids(
    each_registry: TestedRegistry, confluent: SchemaRegistryClient, subject: str
) -> None:
    """Equal schemas have one id, and versions of a subject begin at 1."""
    other = each_registry.subject("other")

    first = confluent.register_schema(subject, _A)
    second = confluent.register_schema(subject, _B)

    assert confluent.register_schema(other, _A) == first != second
    assert {one for one in confluent.get_subjects() if one.startswith(each_registry.prefix)} == {other, subject}
    assert confluent.get_versions(subject) == [1, 2]
    assert json.loads(confluent.get_schema(second).schema_str or "") == json.loads(_B.schema_str or "")
    latest = confluent.get_latest_version(subject)
    assert (latest.version, latest.schema_id) == (2, second)
    assert confluent.get_version(subject, 1).schema_id == first
    assert confluent.lookup_schema(subject, _A).version == 1
    assert {(subject, 1), (other, 1)} <= {(one.subject, one.version) for one in confluent.get_schema_versions(first)}


def test_compatibility(confluent: SchemaRegistryClient, subject: str) -> None:
    """A new field needs a default, unless the subject's level is NONE."""
    confluent.register_schema(subject, _A)

    assert confluent.test_compatibility(subject, _B)
    assert not confluent.test_compatibility(subject, _C)
    assert _code(lambda: confluent.register_schema(subject, _C)) == (409, 409)
    confluent.set_compatibility(subject, "NONE")
    assert confluent.get_compatibility(subject) == "NONE"
    assert confluent.register_schema(subject, _C) == confluent.get_version(subject, 2).schema_id


def test_references(each_registry: TestedRegistry, confluent: SchemaRegistryClient) -> None:
    """A subject that others refer to cannot be deleted."""
    city = each_registry.subject("city")
    each_registry.add("city", '{"type":"fixed","name":"City","size":3}')

    number = each_registry.add("trip", json.dumps({"type": "array", "items": "City"}), "AVRO", (("City", "city", 1),))

    references = confluent.get_schema(number).references or []
    assert [(one.name, one.subject, one.version) for one in references] == [("City", city, 1)]
    assert number in confluent.get_referenced_by(city, 1)
    assert _code(lambda: confluent.delete_subject(city)) == (422, 42206)


def test_errors(confluent: SchemaRegistryClient, subject: str) -> None:
    """Each has the status and the code of Confluent's documentation."""
    confluent.register_schema(subject, _A)
    missing = Schema(json.dumps({"type": "array", "items": "City"}), "AVRO", [SchemaReference("City", subject, 9)])

    assert _code(lambda: confluent.get_schema(_UNKNOWN_ID)) == (404, 40403)
    assert _code(lambda: confluent.get_latest_version(subject + "none")) == (404, 40401)
    assert _code(lambda: confluent.lookup_schema(subject + "none", _A)) == (404, 40401)
    assert _code(lambda: confluent.get_version(subject, 9)) == (404, 40402)
    assert _code(lambda: confluent.lookup_schema(subject, _B)) == (404, 40403)
    assert _code(lambda: confluent.register_schema(subject, Schema("{", "AVRO"))) == (422, 42201)
    assert _code(lambda: confluent.register_schema(subject, missing)) == (422, 42201)
    assert _code(lambda: confluent.get_compatibility(subject)) == (404, 40408)
    assert _code(lambda: confluent.set_compatibility(subject, "SOME")) == (422, 42203)


def test_deletion(confluent: SchemaRegistryClient, subject: str) -> None:
    """Versions are deleted in two steps, and their numbers are not used again."""
    confluent.register_schema(subject, _A)
    confluent.register_schema(subject, _B)

    assert confluent.delete_version(subject, 1) == 1
    assert confluent.get_versions(subject) == [2]
    assert confluent.delete_subject(subject) == [2]
    assert subject not in confluent.get_subjects()
    assert confluent.delete_subject(subject, permanent=True) == [1, 2]


def _code(call: object) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as failure:
        call()  # type: ignore[operator]
    return failure.value.http_status_code, failure.value.error_code
