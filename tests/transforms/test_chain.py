from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.vectors.connect import properties

from turnout.errors import ConfigError
from turnout.transforms import Chain, registry
from turnout.transforms.base import Side, Transform
from turnout.transforms.condition import Condition
from turnout.transforms.extract_field import ExtractField
from turnout.transforms.filter import Filter
from turnout.transforms.insert_field import InsertField
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
