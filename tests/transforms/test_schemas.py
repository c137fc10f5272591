"""Which schemas keys and values have after a chain is known before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.vectors.connect import Throwing, is_kafkas, properties, record_of

from turnout.records import Field, Record, Schema
from turnout.transforms import Chain, registry
from turnout.transforms.schemas import ChainSchemas, common_schema, schemas_after

TEXT, NUMBER = Schema("string", True), Schema("int32", True)
INNER = Schema("struct", True, fields=(Field("x", NUMBER),))
FLIGHT = Schema("struct", True, fields=(Field("carrier", TEXT), Field("distance", NUMBER), Field("plane", INNER)))
BYTES = Schema("bytes", True)
SOMETIMES = {"predicate": {"type": "TopicNameMatches", "pattern": "a"}}


def after(*stages: dict[str, Any], key: Schema | None = BYTES, value: Schema | None = FLIGHT) -> ChainSchemas:
    return schemas_after(Chain.from_route(list(stages)), key, value)


def test_nothing_changes_without_stages() -> None:
    """Records are returned unchanged, also after filters."""
    assert ChainSchemas(frozenset([BYTES]), frozenset([FLIGHT])) == after()
    assert after() == after({"type": "Filter", **SOMETIMES}, {"type": "Filter"})


def test_schemaless_stays_schemaless() -> None:
    """Nobody knows what is in it, but it has no schema afterwards either."""
    stages = [{"type": "HoistField$Value", "field": "in"}, {"type": "ExtractField$Value", "field": "in"}]

    assert ChainSchemas(frozenset([None]), frozenset([None])) == after(*stages, key=None, value=None)


def test_a_stage_says_its_schema() -> None:
    """One after the other; a null that stays null has no say."""
    hoisted = after({"type": "ExtractField$Value", "field": "plane"}, {"type": "HoistField$Value", "field": "in"})
    inserted = after({"type": "InsertField$Value", "topic.field": "from"})

    assert {Schema("struct", fields=(Field("in", INNER),))} == hoisted.values
    (schema,) = inserted.values
    assert schema is not None
    assert [field.name for field in schema.fields] == ["carrier", "distance", "plane", "from"]


def test_under_a_predicate_both_are_possible() -> None:
    """Both the changed and the unchanged schema are possible, and so are their results in later stages."""
    schema = after({"type": "ExtractField$Value", "field": "carrier", **SOMETIMES})
    both = after(
        {"type": "ExtractField$Value", "field": "carrier", **SOMETIMES}, {"type": "HoistField$Value", "field": "in"}
    )

    assert {FLIGHT, TEXT} == schema.values
    assert {Schema("struct", fields=(Field("in", one),)) for one in (FLIGHT, TEXT)} == both.values


def test_a_key_made_of_the_value() -> None:
    """A struct where the value has a schema, schemaless where it has none."""
    stage = {"type": "ValueToKey", "fields": "carrier"}

    (key,) = after(stage).keys
    assert key is not None
    assert (Field("carrier", TEXT),) == key.fields
    assert {None} == after(stage, value=None).keys
    assert {BYTES, key} == after({**stage, **SOMETIMES}).keys


def test_what_always_fails_gives_nothing() -> None:
    """No record comes through, so that nothing is known of what would."""
    assert ChainSchemas(frozenset(), frozenset()) == after({"type": "ExtractField$Value", "field": "missing"})


@pytest.mark.parametrize("options", [{"spec": "distance:int8,carrier:int64"}, {"spec": "carrier:boolean"}])
def test_values_that_no_sample_has_make_no_difference(options: dict[str, Any]) -> None:
    """A stage that fails for some values has the schema that it has for the others."""
    (schema,) = after({"type": "Cast$Value", **options}).values

    assert schema is not None
    for part in options["spec"].split(","):
        name, type_ = part.split(":")
        field = schema.field(name)
        assert field is not None
        assert type_ == field.type


def test_very_many_possibilities_are_any() -> None:
    """Nobody follows a thousand of them."""
    stages = [{"type": "HoistField$Value", "field": f"f{n}", **SOMETIMES} for n in range(12)]

    assert {None} == after(*stages).values


def test_schemas_of_one_type_keep_what_they_agree_on() -> None:
    """A name that both have stays, a version in which they differ goes, and either may allow null."""
    one = FLIGHT.with_(name="Flight", version=1, optional=False)
    other = FLIGHT.with_(name="Flight", version=2)

    assert FLIGHT.with_(name="Flight") == common_schema([one, other])
    assert one == common_schema([one, one])


VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "connect").glob("*.json"))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_what_kafkas_vectors_give_was_foreseen(path: Path) -> None:
    """Every output of a chain has one of the predicted schemas."""
    surprises = []
    with patch.object(registry, "_plugins", lambda: {"$throwing": Throwing}):
        for vector in json.loads(path.read_text(encoding="utf-8")):
            if vector["record"] is None or "config_error" in vector["expect"]:
                continue
            chain = Chain.from_config(properties(vector), strict=is_kafkas(vector))
            record = record_of(vector["record"])
            (outcome,) = chain.apply([record])
            if isinstance(outcome, Record):
                possible = schemas_after(chain, record.key_schema, record.value_schema)
                sides = (
                    (outcome.key, outcome.key_schema, possible.keys),
                    (outcome.value, outcome.value_schema, possible.values),
                )
                # A schemaless column is a VARIANT and takes anything.
                if any(side is not None and schema not in of and None not in of for side, schema, of in sides):
                    surprises.append((vector["name"], outcome, possible))

    assert surprises == []
