"""`Chain.apply`: a chain in any Python, on one record or many."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.vectors.connect import Throwing, properties, same_outcome

from turnout.errors import ConfigError, RecordError
from turnout.records import Failure, Field, Header, Int32, Record, Schema
from turnout.transforms import Chain, registry
from turnout.transforms.base import Side, Transform
from turnout.transforms.chain import Filter
from turnout.transforms.community.condition import Condition
from turnout.transforms.kafka.insert_field import InsertField
from turnout.transforms.kafka.whole_values import ExtractField
from turnout.transforms.predicates import RecordIsTombstone, TopicNameMatches

VECTORS = Path(__file__).parents[1] / "vectors" / "connect"
KAFKA = "org.apache.kafka.connect.transforms."


def config_vectors() -> list[Any]:
    mistakes = []
    for file in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(file.read_text(encoding="utf-8")):
            if "config_error" in vector["expect"] or "config_ok" in vector["expect"]:
                mistakes.append(pytest.param(vector, id=f"{file.stem}: {vector['name']}"))
    return mistakes


@pytest.mark.parametrize("vector", config_vectors())
def test_configurations_are_refused_where_a_worker_refuses_them(vector: dict[str, Any]) -> None:
    """Every configuration that Kafka refuses is refused, at the same moment, and no other."""
    sink = vector.get("sink_validation", False)

    if "config_ok" in vector["expect"]:
        Chain.from_config(properties(vector), strict=True, sink=sink)
        return
    with pytest.raises(ConfigError) as refused:
        Chain.from_config(properties(vector), strict=True, sink=sink)

    phase = vector["expect"].get("phase")
    assert phase is None or {getattr(mistake, "phase", None) for mistake in refused.value.mistakes} == {phase}


RELEASED = Chain.from_config(
    {
        "transforms": "t2",
        "transforms.t2.type": KAFKA + "ExtractField$Key",
        "transforms.t2.field": "c1",
        "transforms.t2.predicate": "hasMyPrefix",
        "transforms.t2.negate": "true",
        "predicates": "hasMyPrefix",
        "predicates.hasMyPrefix.type": KAFKA + "predicates.TopicNameMatches",
        "predicates.hasMyPrefix.pattern": "my-prefix-.*",
    }
)
INLINE = {
    "transforms": "t2",
    "transforms.t2.?type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatch",
    "transforms.t2.?negate": "true",
    "transforms.t2.?pattern": "my-prefix-.*",
    "transforms.t2.type": KAFKA + "ExtractField$Key",
    "transforms.t2.field": "c1",
}
IF_NOT = {
    "transforms": "c",
    "transforms.c.type": "If",
    "transforms.c.if.type": "Not",
    "transforms.c.if.operand": "hasPrefix",
    "transforms.c.if.operand.hasPrefix.type": "TopicMatches",
    "transforms.c.if.operand.hasPrefix.regex": "my-prefix-.*",
    "transforms.c.then": "extractInt",
    "transforms.c.then.extractInt.type": KAFKA + "ExtractField$Key",
    "transforms.c.then.extractInt.field": "c1",
}
ROUTE = [
    {
        "name": "t2",
        "type": "ExtractField$Key",
        "field": "c1",
        "predicate": {"type": "TopicNameMatches", "pattern": "my-prefix-.*"},
        "negate": True,
    }
]


def meaning(chain: Chain) -> list[Any]:
    """The stages without their names, each negation as one flag a guard."""
    return [
        (stage.transform, [(guard.predicate, guard.negate != stage.negate) for guard in stage.guards])
        for stage in chain.stages
    ]


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param(lambda: Chain.from_config(INLINE), id="the inline spelling of KIP-585's draft"),
        pytest.param(lambda: Chain.from_config(IF_NOT), id="the If of its first draft"),
        pytest.param(lambda: Chain.from_config({"name": "x", "config": INLINE}), id="connector JSON"),
        pytest.param(lambda: Chain.from_route(ROUTE), id="a route's list"),
    ],
)
def test_every_spelling_gives_the_same_chain(chain: Any) -> None:
    """The seed's own example means the same however it is written."""
    assert meaning(RELEASED) == meaning(chain())


def test_the_drafts_filter_drops_where_its_condition_holds() -> None:
    """``filter.condition`` is the predicate of a Filter, with the same polarity."""
    chain = Chain.from_config(
        {
            "transforms": "filter",
            "transforms.filter.type": "Filter",
            "transforms.filter.condition": "org.apache.kafka.connect.predicates.TopicNameMatch",
            "transforms.filter.condition.pattern": "foo|bar",
            "transforms.filter.negate": "false",
        }
    )

    assert [(Filter(), [(TopicNameMatches("foo|bar"), False)])] == meaning(chain)


def test_an_if_with_several_transforms_guards_each() -> None:
    """Every transform of ``then`` becomes a stage of its own with the same predicate."""
    properties = {
        **{name: value for name, value in IF_NOT.items() if ".then" not in name},
        "transforms.c.then": "a,b",
        "transforms.c.then.a.type": "Filter",
        "transforms.c.then.b.type": "DropHeaders",
        "transforms.c.then.b.headers": "x",
    }

    chain = Chain.from_config(properties)

    assert [stage.name for stage in chain.stages] == ["c.a", "c.b"]
    assert all(stage.guards[0].negate for stage in chain.stages)


def test_all_mistakes_are_told_at_once_with_their_property_and_value() -> None:
    """One error names every wrong property, what was found there and what is valid."""
    with pytest.raises(ConfigError) as refused:
        Chain.from_config(
            {
                "transforms": "a,b,c",
                "transforms.a.type": "InsertFeld$Value",
                "transforms.b.type": "TimestampConverter$Value",
                "transforms.b.target.type": "timestamp",
                "transforms.c.type": "RegexRouter",
                "transforms.c.regex": "[",
                "transforms.c.replacement": "x",
                "transforms.c.predicate": "late",
                "errors.tolerance": "some",
            }
        )

    mistakes = {mistake.path: mistake.problem for mistake in refused.value.mistakes}
    assert {
        "transforms.a.type",
        "transforms.b.target.type",
        "transforms.c.regex",
        "transforms.c.predicate",
        "errors.tolerance",
    } == set(mistakes)
    assert "did you mean InsertField$Value" in mistakes["transforms.a.type"]
    assert "string, unix, Date, Time, Timestamp" in mistakes["transforms.b.target.type"]
    assert "'timestamp'" in mistakes["transforms.b.target.type"]


def test_a_route_names_its_places() -> None:
    """Mistakes in a route's list carry the index of the stage and the name of the option."""
    stages: list[Any] = [
        {"type": "MaskField$Value", "fields": []},
        {"type": "Filter", "predicate": {"type": "HasHeaderKey", "name": ""}},
        {"type": "Filter", "predicate": {"when": {"key": "value.x", "pattern": "a\\"}}},
        {"type": "Filter", "negate": True},
        "Filter",
    ]
    with pytest.raises(ConfigError) as refused:
        Chain.from_route(stages)

    assert sorted(
        (m.path for m in refused.value.mistakes),
        key=lambda path: ("when" in path, "name" in path, "fields" in path, "negate" in path),
    ) == [
        "transforms[4]",
        "transforms[3].negate",
        "transforms[0].fields",
        "transforms[1].predicate.name",
        "transforms[2].predicate.when",
    ]


def test_several_predicates_and_conditions_in_a_route() -> None:
    """A stage may have a list of predicates, and a condition over values in the short form."""
    chain = Chain.from_route(
        [
            {
                "type": "Filter",
                "predicate": [
                    {"type": "RecordIsTombstone", "negate": True},
                    {"when": {"all": [{"key": "value.distance", ">": 1000}, {"not": {"key": "x", "exists": True}}]}},
                ],
            }
        ]
    )

    first, second = chain.stages[0].guards
    assert (RecordIsTombstone(), True) == (first.predicate, first.negate)
    assert isinstance(second.predicate, Condition)
    assert second.predicate.keys == ("value.distance", "x")


def test_names_with_and_without_their_package() -> None:
    """Full names, short names and $-names find the same class; a class without its side is refused."""
    full = registry.find_transform(KAFKA + "InsertField$Key")

    assert full == registry.find_transform("InsertField$Key")
    assert (InsertField, Side.KEY) == (full.kind, full.side)
    with pytest.raises(registry.UnknownNameError, match=r"InsertField\$Key or InsertField\$Value"):
        registry.find_transform("InsertField")


def test_a_plugin_is_found_by_its_entry_point() -> None:
    """A transform of an installed package under turnout.transforms can be named in a chain."""

    class Shout(Transform):
        sided = False

    class Point:
        name = "Shout"

        def load(self) -> type:
            return Shout

    registry._plugins.cache_clear()
    with patch.object(registry, "entry_points", lambda group: [Point()] if group == "turnout.transforms" else []):
        chain = Chain.from_route([{"type": "Shout"}])
    registry._plugins.cache_clear()

    assert isinstance(chain.stages[0].transform, Shout)


def test_paths_may_quote_their_steps() -> None:
    """KIP-821: a step in backticks may have dots in it, and an escaped backtick."""
    chain = Chain.from_route([{"type": "ExtractField$Value", "field": "a.`b.c`.d", "field.syntax.version": "v2"}])

    transform = chain.stages[0].transform
    assert isinstance(transform, ExtractField)
    assert transform.path == ("a", "b.c", "d")


IF = {
    "transforms": "i",
    "transforms.i.type": "If",
    "transforms.i.if.type": "RecordIsTombstone",
    "transforms.i.then": "a",
    "transforms.i.then.a.type": "Filter",
}


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({"predicate": "p"}, ["predicate"]),
        ({"negate": "true"}, ["negate"]),
        ({"iff.type": "RecordIsTombstone"}, ["iff.type"]),
        ({"than": "a", "els.type": "Filter"}, ["than", "els.type"]),
        ({"then.b.type": "Filter"}, ["then.b.type"]),
        ({"then.a.fields": "x", "if.pattrn": "x"}, ["then.a.fields", "if.pattrn"]),
        ({"then": ""}, ["then", "then.a.type"]),
        ({"then": "a,,a"}, ["then"]),
        ({"if.type": "Not"}, ["if.operand", "if.operand..type"]),
        ({"if.type": "Not", "if.operand": "o", "if.operand.o.type": "RecordIsTombstone", "if.x": "y"}, ["if.x"]),
    ],
)
def test_an_if_has_no_other_options_than_its_own(more: dict[str, str], places: list[str]) -> None:
    """A misspelt key, or one of released Kafka's stage, is a mistake where it stands, not left out."""
    with pytest.raises(ConfigError) as raised:
        Chain.from_config(IF | {f"transforms.i.{name}": value for name, value in more.items()})

    assert [mistake.path for mistake in raised.value.mistakes] == [f"transforms.i.{place}" for place in places]


def test_a_list_of_then_that_is_missing_says_so() -> None:
    """The mistake is at ``then`` and not at a transform without a name."""
    config = {name: value for name, value in IF.items() if ".then" not in name}
    with pytest.raises(ConfigError) as raised:
        Chain.from_config(config)

    assert [str(mistake) for mistake in raised.value.mistakes] == [
        "transforms.i.then: is missing: expected the names of transforms, as in a,b"
    ]


@pytest.mark.parametrize(("text", "negated"), [(" TRUE ", True), ("false", False), ("ture", None), ("", None)])
def test_an_inline_negate_is_a_switch(text: str, negated: bool | None) -> None:
    """A text that is neither true nor false is a mistake, and not false."""
    config = {"transforms": "f", "transforms.f.type": "Filter", "transforms.f.?type": "RecordIsTombstone"}
    if negated is None:
        with pytest.raises(ConfigError, match=r"transforms\.f\.\?negate: expected true or false, found"):
            Chain.from_config(config | {"transforms.f.?negate": text})
        return
    (stage,) = Chain.from_config(config | {"transforms.f.?negate": text}).stages
    assert [guard.negate for guard in stage.guards] == [negated]


STRUCT = Schema(
    "struct", fields=(Field("a", Schema("int64", optional=True)), Field("b", Schema("string", default="x")))
)
APPLIED_ROUTE: list[dict[str, object]] = [
    {"name": "drop", "type": "Filter", "predicate": {"type": "RecordIsTombstone"}},
    {"name": "mark", "type": "HoistField$Value", "field": "v"},
    {"name": "key", "type": "ValueToKey", "fields": "v"},
    {"name": "move", "type": "RegexRouter", "regex": "(.*)", "replacement": "to.$1"},
]


def test_one_record_gives_a_record_or_none() -> None:
    """None where it is filtered; headers and places are carried over."""
    chain = Chain.from_route(APPLIED_ROUTE)
    record = Record("t", 1, None, [Header("h", b"x")], 3, 7, 1000)

    assert chain.apply(record) == Record("to.t", {"v": 1}, {"v": 1}, [Header("h", b"x")], 3, 7, 1000)
    assert chain.apply(replace(record, value=None)) is None


def test_one_record_that_fails_raises() -> None:
    """With the stage in the message and the class that Connect would have thrown."""
    chain = Chain.from_route([{"name": "flat", "type": "Flatten$Value"}])

    with pytest.raises(RecordError, match=r"^flat: Only Map objects supported") as failure:
        chain.apply(Record("t", 1))
    assert failure.value.exception == "org.apache.kafka.connect.errors.DataException"


def test_several_records_give_a_list_in_their_order() -> None:
    """A failure stands in the place of a record that failed, None in that of one that was filtered."""
    stages: list[dict[str, object]] = [APPLIED_ROUTE[0], {"name": "x", "type": "ExtractField$Value", "field": "a"}]
    records = (Record("t", {"a": n}) for n in range(2))
    first, second = Chain.from_route(stages).apply(records)
    failed, filtered, third = Chain.from_route(stages).apply([Record("t", 5), Record("t"), Record("t", {"a": 3})])

    assert (first, second, filtered) == (Record("t", 0, headers=[]), Record("t", 1, headers=[]), None)
    assert isinstance(failed, Failure)
    assert (failed.stage, failed.class_name) == (
        "TRANSFORMATION",
        "org.apache.kafka.connect.transforms.ExtractField$Value",
    )
    assert third == Record("t", 3, headers=[])


def test_nothing_gives_nothing() -> None:
    """An empty list goes through every stage."""
    assert Chain.from_route(APPLIED_ROUTE).apply([]) == []


def test_a_chain_that_has_run_is_still_a_value() -> None:
    """It compares as before, and survives pickling, which is how it gets to a task."""
    chain = Chain.from_route([*APPLIED_ROUTE, {"type": "SubjectTransform", "source": "to.*", "destination": "by.$1"}])
    record = Record("t", 1)
    outcome = chain.apply(record)
    copy = pickle.loads(pickle.dumps(chain))

    assert copy == chain
    assert same_outcome(outcome, copy.apply(record))


def throwing(kind: str, **stage: Any) -> Chain:
    properties = {"transforms": "t", "transforms.t.type": kind, "predicates": "p", "predicates.p.type": "$throwing"}
    properties |= {"transforms.t.predicate": "p"} | {f"transforms.t.{name}": value for name, value in stage.items()}
    with patch.object(registry, "_plugins", lambda: {"$throwing": Throwing}):
        return Chain.from_config({**properties, "errors.predicates": "not-matched"})


@pytest.mark.parametrize("negate", ["true", "false"])
def test_a_predicate_that_fails_leaves_its_stage_out_but_filters(negate: str) -> None:
    """With errors.predicates=not-matched, as KIP-585's draft has it, whatever negate says."""
    hoist = throwing("HoistField$Value", field="v", negate=negate)
    filter_ = throwing("Filter", negate=negate)

    assert hoist.apply(Record("t", 1)) == Record("t", 1, headers=[])
    assert filter_.apply(Record("t", 1)) is None


def test_a_struct_whose_schema_is_renamed_for_some_rows_keeps_it_for_the_others() -> None:
    """SetSchemaMetadata under a predicate: each record has its own schema afterwards."""
    chain = Chain.from_route(
        [{"type": "SetSchemaMetadata$Value", "schema.name": "New", "schema.version": 2,
          "predicate": {"type": "TopicNameMatches", "pattern": "a"}}]
    )  # fmt: skip
    records = [Record(topic, {"a": 1, "b": "y"}, value_schema=STRUCT.with_(name="Old")) for topic in ("a", "b")]
    changed, kept = chain.apply(records)

    assert isinstance(changed, Record)
    assert changed.value_schema == STRUCT.with_(name="New", version=2)
    assert isinstance(kept, Record)
    assert kept.value_schema == STRUCT.with_(name="Old")


def test_the_later_entry_wins_where_flat_names_clash() -> None:
    """Of a map's entries, whether by column or one by one."""
    chain = Chain.from_route([{"type": "Flatten$Value"}])
    clash, other = chain.apply([Record("t", {"a.b": 1, "a": {"b": 2}}), Record("t", {"a.b": 1, "a": 5})])

    assert isinstance(clash, Record)
    assert clash.value == {"a.b": 2}
    assert isinstance(other, Record)
    assert other.value == {"a.b": 1, "a": 5}


def test_a_rename_whose_source_is_excluded_takes_no_part() -> None:
    """Without a schema; with one the reverse lookup goes by the order of Java's HashMap, in which id comes last."""
    stage = {"type": "ReplaceField$Value", "renames": "id:z,b:z", "exclude": "b"}
    chain = Chain.from_route([stage])
    schema = Schema("struct", fields=(Field("id", Schema("int64")), Field("b", Schema("int64"))))
    bare, typed = chain.apply([Record("t", {"id": 1, "b": 2}), Record("t", {"id": 1, "b": 2}, value_schema=schema)])

    assert isinstance(bare, Record)
    assert isinstance(typed, Record)
    assert (bare.value, typed.value) == ({"z": 1}, {"z": 1})


@pytest.mark.parametrize("stage", [{"type": "Flatten$Value"}, {"type": "ReplaceField$Value", "exclude": "a"}])
def test_a_map_with_keys_that_are_no_strings_fails_its_record(stage: dict[str, Any]) -> None:
    """Java casts the key; the other records pass."""
    failed, passed = Chain.from_route([stage]).apply([Record("t", {7: 1}), Record("t", {"b": 1})])

    assert isinstance(failed, Failure)
    assert failed.exception == "java.lang.ClassCastException"
    assert isinstance(passed, Record)


def test_such_a_map_passes_what_does_not_look_at_its_keys() -> None:
    """This includes stages with a predicate, beside records of another shape."""
    stage = {"type": "HoistField$Value", "field": "v", "predicate": {"type": "TopicNameMatches", "pattern": "a"}}
    changed, kept = Chain.from_route([stage]).apply([Record("a", {7: 1}), Record("b", {7: 1})])

    assert (changed, kept) == (Record("a", {"v": {7: 1}}, headers=[]), Record("b", {7: 1}, headers=[]))


def test_keys_of_several_types_stay_apart() -> None:
    """An int64 7 and an int32 7 are two keys to Java, and equal to Python."""
    chain = Chain.from_route([{"type": "HoistField$Value", "field": "v"}])
    outcomes = chain.apply([Record("t", {7: 1}), Record("t", {Int32(7): 1})])

    kinds = [type(next(iter(outcome.value["v"]))) for outcome in outcomes if isinstance(outcome, Record)]
    assert kinds == [int, Int32]


def test_a_random_subject_is_the_same_each_time() -> None:
    """The draw comes from partition and offset, so that a retried record goes where it went."""
    chain = Chain.from_route([{"type": "SubjectTransform", "source": "*", "destination": "x.{{random(1000)}}"}])
    records = [Record("a", partition=1, offset=offset) for offset in range(50)]
    once = [record.topic for record in chain.apply(records) if isinstance(record, Record)]
    alone = [chain.apply(record) for record in records]

    assert len(set(once)) > 25
    assert once == [record.topic for record in alone if record is not None]


def test_a_schemaless_null_passes_an_empty_path() -> None:
    """ExtractField with an empty path of KIP-821 fails for every record but a schemaless null, as Kafka's does."""
    chain = Chain.from_route([{"type": "ExtractField$Value", "field": "", "field.syntax.version": "V2"}])
    null, failed = chain.apply([Record("t", None), Record("t", {"a": 1})])

    assert isinstance(null, Record)
    assert null.value is None
    assert isinstance(failed, Failure)


def test_records_that_a_predicate_meets_are_dropped() -> None:
    """With negate the others are."""
    tombstones = {"name": "drop", "type": "Filter", "predicate": {"type": "RecordIsTombstone"}}
    kept, inverse = Chain.from_route([tombstones]), Chain.from_route([{**tombstones, "negate": True}])

    assert [kept.apply(Record("t", value)) is None for value in (1, None)] == [False, True]
    assert [inverse.apply(Record("t", value)) is None for value in (1, None)] == [True, False]
