"""The client with each registry: two stand-ins, and the server that TURNOUT_REGISTRY_URL names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.codecs.schema_registry.tested_registry import TestedRegistry

from turnout.codecs.schema_registry import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnavailableError,
    SchemaText,
    UnknownSchemaError,
)

UNKNOWN_ID = 2**31 - 1
ORDER: Any = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "n", "type": "long"}, {"name": "city", "type": "string", "default": "-"}],
}  # fmt: skip


def test_schemas_by_id_and_subject(each_registry: TestedRegistry) -> None:
    """Each is requested once, and is what was registered."""
    first = each_registry.add("s-value", json.dumps({**ORDER, "fields": ORDER["fields"][:1]}))
    second = each_registry.add("s-value", json.dumps(ORDER))
    schemas = each_registry.schemas()

    found = [schemas.by_id(number) for number in (first, second, first, second)]
    latest = schemas.latest(each_registry.subject("s-value"))

    assert [len(json.loads(one.text)["fields"]) for one in found] == [1, 2, 1, 2]
    assert (latest.id, latest.version, json.loads(latest.text)) == (second, 2, ORDER)
    assert schemas.requests == 3


def test_unknown_schemas(each_registry: TestedRegistry) -> None:
    """Ids, GUIDs and subjects that the registry does not have are named."""
    schemas = each_registry.schemas()
    guid = "00000000-0000-0000-0000-000000000001"
    subject = each_registry.subject("none")

    for call, about in (
        (lambda: schemas.by_id(UNKNOWN_ID), f"does not know the schema with the id {UNKNOWN_ID}: Schema .*not found"),
        (lambda: schemas.by_guid(guid), f"the schema with the GUID {guid}"),
        (lambda: schemas.latest(subject), f"does not know the subject '{subject}'"),
        (lambda: schemas.lookup(subject, SchemaText("AVRO", '"long"')), "does not know this schema under the subject"),
    ):
        with pytest.raises(UnknownSchemaError, match=about):
            call()


def test_registration(each_registry: TestedRegistry) -> None:
    """A new schema gets an id, the same one keeps it under every subject; others are refused in plain words."""
    schemas, subject = each_registry.schemas(), each_registry.subject("s")
    text = json.dumps(ORDER)
    number = schemas.register(subject, SchemaText("AVRO", text)).id

    assert each_registry.schemas().register(subject, SchemaText("AVRO", text)).id == number
    assert schemas.register(each_registry.subject("other"), SchemaText("AVRO", text)).id == number
    assert schemas.lookup(subject, SchemaText("AVRO", text)).id == number
    fields = [*ORDER["fields"], {"name": "city2", "type": "string"}]
    incompatible = SchemaText("AVRO", json.dumps({**ORDER, "fields": fields}))
    with pytest.raises(
        IncompatibleSchemaError,
        match=rf"not compatible with the versions that the subject '{subject}' has, .* registered: .*city2",
    ):
        schemas.register(subject, incompatible)
    with pytest.raises(RegistryError, match=f"the schema registry refuses the subject '{subject}': .*[Ii]nvalid"):
        schemas.register(subject, SchemaText("AVRO", "{"))


def test_wrong_credentials(each_registry: TestedRegistry) -> None:
    """A registry that needs none accepts any."""
    number = each_registry.add("s", '"string"')
    scheme, _, address = each_registry.url.partition("://")
    host = address.rpartition("@")[2]
    registry = TestedRegistry(f"{scheme}://nobody:wr0ng@{host}")

    if host == address:
        assert registry.schemas().by_id(number).text == '"string"'
    else:
        with pytest.raises(RegistryUnavailableError, match="refuses the credentials: Unauthorized") as failure:
            registry.schemas().by_id(number)
        assert "wr0ng" not in str(failure.value)
    for one in registry.clients:
        one.close()
