"""Which schemas keys and values have after a chain is known before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.vectors.connect import Throwing, is_kafkas, properties, record_of

from turnout.codecs import Format, codec_of
from turnout.codecs.ddl import parse_ddl
from turnout.errors import ConfigError
from turnout.records import Field, Record, Schema
from turnout.transforms import Chain, registry, unknown_fields
from turnout.transforms.schemas import ChainSchemas, common_schema, schemas_after, useless_stages

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


SCHEMA = parse_ddl("amount INT, card STRING, at STRUCT<town: STRING>, tags MAP<STRING, STRING>, any VARIANT").schema


def problems(*stages: dict[str, Any], metadata: dict[str, str] | None = None) -> dict[str, str]:
    chain = Chain.from_route(list(stages))
    return {field.path: field.problem for field in unknown_fields(chain, None, SCHEMA, metadata or {})}


def refused(config: dict[str, Any] | list[dict[str, Any]]) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        Chain.from_route(config) if isinstance(config, list) else Chain.from_config(config)
    return {mistake.path: mistake.problem for mistake in raised.value.mistakes}


def test_an_unknown_option_of_a_transform() -> None:
    """A mistyped ``exclude`` would let the field through."""
    problems = refused([{"type": "ReplaceField$Value", "exlude": "card"}])

    assert problems == {
        "transforms[0].exlude": 'unknown option; did you mean "exclude"? '
        "(known here: exclude, include, renames, field.syntax.version, replace.null.with.default)"
    }


def test_an_unknown_option_of_a_predicate() -> None:
    """The same of predicates, in place and under a name, used or not."""
    config = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "predicates": "p,q",
        "predicates.p.type": "HasHeaderKey",
        "predicates.p.name": "a",
        "predicates.p.nam": "a",
        "predicates.q.type": "RecordIsTombstone",
        "predicates.q.name": "a",
    }

    assert set(refused(config)) == {"predicates.p.nam", "predicates.q.name"}
    assert "transforms[0].predicate.pattrn" in refused(
        [{"type": "Filter", "predicate": {"type": "TopicNameMatches", "pattrn": "a"}}]
    )


def test_a_connect_worker_leaves_unknown_options_alone() -> None:
    """Strictly as a worker of Kafka takes it, and nothing else."""
    package = "org.apache.kafka.connect.transforms."
    config = {"transforms": "t", "transforms.t.type": f"{package}MaskField$Value", "transforms.t.fields": "a"}

    assert len(Chain.from_config({**config, "transforms.t.feilds": "b"}, strict=True).stages) == 1


@pytest.mark.parametrize("replacement", ["$9", "${name}", "$", "\\"])
def test_a_group_that_is_not_there(replacement: str) -> None:
    """Connect finds it with the first topic that matches."""
    problems = refused([{"type": "RegexRouter", "regex": "(a).*", "replacement": replacement}])

    assert problems["transforms[0].replacement"].startswith(
        f"expected a replacement for '(a).*', found {replacement!r}"
    )


def test_a_subject_filter_that_is_none() -> None:
    """It would match nothing."""
    assert "expected a NATS subject filter, found 'a..b'" in str(
        refused([{"type": "Filter", "predicate": {"type": "SubjectMatches", "subject": "a..b"}}])
    )


@pytest.mark.parametrize(
    ("stage", "option"),
    [
        ({"type": "MaskField$Value", "fields": "crad"}, "fields"),
        ({"type": "ReplaceField$Value", "exclude": "crad"}, "exclude"),
        ({"type": "ReplaceField$Value", "include": "amount,crad"}, "include"),
        ({"type": "ReplaceField$Value", "renames": "crad:x"}, "renames"),
        ({"type": "Cast$Value", "spec": "crad:string"}, "spec"),
        ({"type": "ValueToKey", "fields": "crad"}, "fields"),
        ({"type": "ExtractField$Value", "field": "crad"}, "field"),
        ({"type": "HeaderFrom$Value", "fields": "crad", "headers": "h", "operation": "copy"}, "fields"),
        ({"type": "TimestampConverter$Value", "field": "crad", "target.type": "unix"}, "field"),
        ({"type": "Filter", "predicate": {"when": {"key": "value.crad", "exists": True}}}, "predicate.when"),
    ],
)
def test_a_field_that_is_in_no_schema(stage: dict[str, Any], option: str) -> None:
    """Every option that names fields is looked up in the declared schema."""
    mistakes = problems(stage)

    assert mistakes == {
        f"transforms[0].{option}": "no value has a field 'crad' at that point; there are amount, any, at, card, tags; "
        'did you mean "card"?'
    }


def test_the_schema_is_that_which_the_chain_has_made_by_then() -> None:
    """A field is renamed, another added, and the metadata's paths see what comes out."""
    renamed = {"type": "ReplaceField$Value", "renames": "card:kard"}
    added = {"type": "InsertField$Value", "topic.field": "from"}
    masked = {"type": "MaskField$Value", "fields": "kard,from"}

    assert problems(renamed, added, masked, metadata={"a": "value.kard", "b": "value.at.town"}) == {}
    assert list(problems(masked, renamed, added)) == ["transforms[0].fields"]
    mistakes = problems(renamed, metadata={"a": "value.card", "b": "value.at.twon", "t": "topic"})
    assert set(mistakes) == {"a", "b"}
    assert 'did you mean "town"?' in mistakes["b"]


def test_a_stage_under_a_predicate_leaves_both() -> None:
    """A field that may exist is not a mistake."""
    renamed = {"type": "ReplaceField$Value", "renames": "card:kard", "predicate": {"type": "RecordIsTombstone"}}

    assert problems(renamed, metadata={"a": "value.card", "b": "value.kard"}) == {}


@pytest.mark.parametrize("path", ["value.tags.anything", "value.any.thing", "topic", "key.a", "value.at.town"])
def test_what_is_not_known_is_no_mistake(path: str) -> None:
    """Maps and variants may hold anything, and nothing is said of keys."""
    assert problems(metadata={"a": path}) == {}


def test_without_a_schema_nothing_is_looked_up() -> None:
    """Schemaless values have what they have."""
    chain = Chain.from_route([{"type": "MaskField$Value", "fields": "crad"}])

    assert list(unknown_fields(chain, None, None, {"a": "value.b"})) == []


RAW = codec_of(Format()).schema()
USELESS: list[tuple[dict[str, str], str]] = [
    ({"type": "ExtractNewRecordState"}, "value"),
    ({"type": "EventRouter"}, "value"),
    ({"type": "InsertField$Value", "static.field": "a", "static.value": "b"}, "value"),
    ({"type": "InsertField$Key", "static.field": "a", "static.value": "b"}, "key"),
    ({"type": "Flatten$Value"}, "value"),
    ({"type": "ValueToKey", "fields": "a"}, "value"),
    ({"type": "HeaderToField$Value", "header.mappings": "a:STRING"}, "value"),
    ({"type": "ReplaceField$Value", "exclude": "a"}, "value"),
    ({"type": "SetSchemaMetadata$Value", "schema.name": "a"}, "value"),
    ({"type": "Set", "fields": '{"value.a": "topic"}'}, "value"),
]
USEFUL: list[dict[str, str]] = [
    {"type": "HoistField$Value", "field": "a"},
    {"type": "InsertHeader", "header": "a", "value.literal": "b"},
    {"type": "DropHeaders", "headers": "a"},
    {"type": "GzipDecompress$Value"},
    {"type": "RegexRouter", "regex": "a", "replacement": "b"},
]


def chain_of(*stages: dict[str, str]) -> Chain:
    return Chain.from_route([{"name": f"s{at}", **stage} for at, stage in enumerate(stages)])


@pytest.mark.parametrize(("stage", "side"), USELESS)
def test_a_stage_that_can_do_nothing_with_bytes(stage: dict[str, str], side: str) -> None:
    """Whether every record would fail or pass unchanged; objects, and values of which nothing is known, are fine."""
    (mistake,) = useless_stages(chain_of(stage), RAW, RAW)

    assert mistake.path == "transforms[0]"
    assert mistake.problem.endswith(f"works on objects, and at that point every {side} is of type bytes")
    assert list(useless_stages(chain_of(stage), None, None)) == []
    hoist = {"type": f"HoistField${side.capitalize()}", "field": "a"}
    assert list(useless_stages(chain_of(hoist, stage), RAW, RAW)) == []


@pytest.mark.parametrize("stage", USEFUL)
def test_a_stage_that_works_on_bytes(stage: dict[str, str]) -> None:
    """It reads neither key nor value, or takes any."""
    assert list(useless_stages(chain_of(stage), RAW, RAW)) == []
