"""Set: fields computed by expressions, in views, checks and batches."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from turnout import expressions
from turnout.codecs import parse_ddl
from turnout.errors import ConfigError
from turnout.history.masking import hidden_by_stage
from turnout.records import Failure, Header, Record
from turnout.transforms import Chain
from turnout.transforms.schemas import unknown_fields

pytest.importorskip("cel_expr_python", reason='pip install "turnout[cel]"')


def chain_of(fields: object, **options: object) -> Chain:
    return Chain.from_route([{"type": "Set", "fields": fields, **options}])


def test_each_record_by_itself() -> None:
    """An error is its record's, and the others of the batch are computed."""
    chain = chain_of({"value.ratio": "value.a / value.b"})
    records = [Record("t", {"a": 4, "b": 2}), Record("t", {"a": 4, "b": 0}), Record("t", {"a": 9, "b": 3, "c": 1})]

    first, second, third = chain.apply(records)

    assert isinstance(second, Failure)
    assert second.message == "1-Set: value.ratio: divide by zero"
    assert [outcome.value for outcome in (first, third) if isinstance(outcome, Record)] == [
        {"a": 4, "b": 2, "ratio": 2},
        {"a": 9, "b": 3, "c": 1, "ratio": 3},
    ]


def test_expressions_see_the_record_as_it_was() -> None:
    """Fields change places."""
    (outcome,) = chain_of({"value.a": "value.b", "value.b": "value.a"}).apply([Record("t", {"a": 1, "b": 2})])

    assert isinstance(outcome, Record)
    assert outcome.value == {"a": 2, "b": 1}


def test_a_predicate_leaves_the_others_as_they_are() -> None:
    """This includes keys, which it sets too."""
    chain = chain_of({"key": "value.a"}, predicate={"type": "TopicNameMatches", "pattern": "yes"})
    outcomes = chain.apply([Record(topic, {"a": topic}, key="k") for topic in ("yes", "no", "yes")])

    assert [outcome.key for outcome in outcomes if isinstance(outcome, Record)] == ["yes", "k", "yes"]


def test_a_chain_with_it_goes_to_workers() -> None:
    """Compiled expressions are not pickled."""
    chain = chain_of({"value.a": "value.b + 1"})
    chain.apply([Record("t", {"b": 1})])
    (outcome,) = pickle.loads(pickle.dumps(chain)).apply([Record("t", {"b": 1})])

    assert outcome.value == {"b": 1, "a": 2}


@pytest.mark.parametrize(
    ("fields", "hidden"),
    [
        ({"value.label": "'no ' + value.card"}, {("value", "label")}),
        ({"value.label": "value.name"}, set()),
        ({"value.copy": "value"}, {("value", "copy")}),
        ({"key": "string(value['card'])"}, {("key",)}),
        ({"value.copy": "{'pan': value.card.number}"}, {("value", "copy")}),
    ],
)
def test_what_is_computed_of_a_masked_field_is_hidden(fields: Any, hidden: set[tuple[str, ...]]) -> None:
    """The whole computed field is hidden, because the expression may copy the masked one."""
    mask = {"type": "MaskField$Value", "fields": "card"}
    views = hidden_by_stage(Chain.from_route([{"type": "Set", "fields": fields}, mask]))

    assert ("value", "card") in views[0].paths
    assert views[1].paths == {("value", "card"), *hidden}


def test_what_a_masked_computed_field_is_made_of_is_hidden() -> None:
    """Headers, too."""
    fields = {"value.label": "value.name + headers['Pan']", "value.other": "value.city"}
    mask = {"type": "MaskField$Value", "fields": "label"}
    (before, *_) = hidden_by_stage(Chain.from_route([{"type": "Set", "fields": fields}, mask]))

    assert before.paths == {("value", "label"), ("value", "name"), ("headers", "Pan")}


def test_check_looks_the_fields_of_expressions_up() -> None:
    """A mistyped name is found before the run."""
    schema = parse_ddl("net DOUBLE, name STRING").schema
    chain = chain_of({"value.gross": "value.nett * 1.24", "value.label": "value.name"})

    assert [mistake.problem for mistake in unknown_fields(chain, None, schema, {})] == [
        "no value has a field 'nett' at that point; there are name, net; did you mean \"net\"?"
    ]


def test_schemas_behind_it_are_known_before_the_run() -> None:
    """They follow from the expressions; a later stage and the metadata can name the computed fields."""
    schema = parse_ddl("net DOUBLE, name STRING").schema
    later = {"type": "MaskField$Value", "fields": "grosss"}
    chain = Chain.from_route([{"type": "Set", "fields": {"value.gross": "value.net * 1.24"}}, later])
    metadata = {"gross": "value.gross", "lost": "value.lost"}

    problems = [(one.path, one.problem) for one in unknown_fields(chain, None, schema, metadata)]

    there = "no value has a field {!r} at that point; there are gross, name, net"
    assert problems == [
        ("transforms[1].fields", there.format("grosss") + '; did you mean "gross"?'),
        ("lost", there.format("lost")),
    ]


def test_only_what_an_expression_names_is_looked_at() -> None:
    """A record with a text that CEL cannot take, or a long list, is no hindrance where nothing names it."""
    value = {"n": 1, "bad": "x\0", "inner": {"m": 2, "bad": "\ud800"}, "long": list(range(50_000))}
    (outcome,) = chain_of({"value.sum": "value.n + value.inner.m"}).apply([Record("t", value)])

    assert isinstance(outcome, Record)
    assert outcome.value["sum"] == 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"value.a": "value.b +"}, "value.a: not an expression of CEL: 1:10: Syntax error: mismatched input '<EOF>'"),
        ({"valu.a": "1"}, "expected value.…, key.…, headers.NAME, topic or timestamp, found 'valu.a'"),
        ({"value.a": "1", "value.a.b": "2"}, "'value.a.b' is inside of 'value.a'"),
        ({"value.a": ["1"]}, "neither JSON nor YAML|expected an expression for 'value.a'"),
        ({}, "expected an expression for each field, found {}"),
        ("{", "neither JSON nor YAML"),
        ({"value.`a": "1"}, "is never closed"),
    ],
)
def test_mistakes_are_found_while_the_chain_is_built(fields: object, problem: str) -> None:
    """With the field, the place in the expression, and what was expected."""
    with pytest.raises(ConfigError) as raised:
        chain_of(fields)

    (mistake,) = raised.value.mistakes
    assert mistake.path == "transforms[0].fields"
    assert any(part in mistake.problem for part in problem.split("|"))


def test_a_missing_library_is_a_mistake_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, in `check` too."""
    expressions._environment.cache_clear()
    expressions._program.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(ConfigError, match=r'is not installed: pip install "turnout\[cel\]"'):
        chain_of({"value.a": "1"})
    expressions._environment.cache_clear()


def test_topic_headers_and_time_are_set() -> None:
    """A header replaces those of its name, and null removes it; a time is a date or milliseconds."""
    chain = chain_of(
        {
            "topic": '"eu." + value.city',
            "timestamp": "timestamp(value.at)",
            "headers.City": "value.city",
            "headers.`a.b`": "value.n",
            "headers.Gone": "null",
        }
    )
    record = Record(
        "t",
        {"city": "oulu", "at": "2020-01-01T00:00:00Z", "n": 5},
        headers=[Header("Gone", b"1"), Header("City", b"x"), Header("Kept", b"y"), Header("City", b"z")],
    )

    (made,) = chain.apply([record])

    assert isinstance(made, Record)
    assert (made.topic, made.timestamp) == ("eu.oulu", 1_577_836_800_000)
    assert [(header.name, header.value) for header in made.headers] == [("Kept", b"y"), ("City", "oulu"), ("a.b", 5)]


def test_what_is_no_topic_or_time_fails_its_record() -> None:
    """The message has the value."""
    outcomes = chain_of({"topic": "value.t"}).apply([Record("t", {"t": text}) for text in ("a", "", None, 5)])
    times = chain_of({"timestamp": "value.t"}).apply([Record("t", {"t": 5}), Record("t", {"t": -1})])

    assert [one.topic if isinstance(one, Record) else one and one.message for one in outcomes] == [
        "a",
        "1-Set: topic: expected a text that is not empty, found ''",
        "1-Set: topic: expected a text that is not empty, found None",
        "1-Set: topic: expected a text that is not empty, found 5",
    ]
    assert isinstance(times[0], Record)
    assert times[0].timestamp == 5
    assert isinstance(times[1], Failure)


def test_filters_at_the_server_know_whether_it_sets_the_topic() -> None:
    """Only a topic that is set ends them; headers get masked content as fields do."""
    topic, field = (chain_of({name: "value.pan"}).stages[0].transform for name in ("topic", "headers.Pan"))

    assert (topic.keeps_topic, field.keeps_topic, field.sets_time) == (False, True, False)
    assert chain_of({"timestamp": "1"}).stages[0].transform.sets_time
    assert ("headers", "Pan") in field.content_after(("value", "pan"))


@pytest.mark.parametrize("path", ["offset", "headers", "headers.a.b", "topic.a", "timestamp.x", "partition"])
def test_nothing_else_of_a_record_is_set(path: str) -> None:
    """The message says what can be."""
    with pytest.raises(ConfigError, match=r"expected value\.…, key\.…, headers\.NAME, topic or timestamp"):
        chain_of({path: "1"})
