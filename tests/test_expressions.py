"""Expressions of CEL over records, and their bounds."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import expressions as module
from turnout.errors import MissingExtraError, RecordError
from turnout.expressions import (
    MAX_DEPTH,
    MAX_WORK,
    Expression,
    ExpressionError,
    Inputs,
    References,
    references,
)
from turnout.records import BigInt, Field, Float32, Int32, Moment, Schema, Struct
from turnout.records.schema import DATE

pytest.importorskip("cel_expr_python", reason='pip install "turnout[cel]"')
FACTS = json.loads((Path(__file__).parents[0] / "vectors" / "cel" / "facts.json").read_text(encoding="utf-8"))
CASES = [
    pytest.param(text, expected, id=text)
    for name, facts in FACTS.items()
    if name != "basis"
    for text, expected in facts
]


def value_of(text: str, schema: Schema | None = None, **variables: Any) -> Any:
    inputs = Inputs()
    for name, value in variables.items():
        inputs.add(name, value, schema)
    one = Expression(text)
    one.check()
    return one.evaluate(inputs)


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_language_is_what_its_own_tests_say(text: str, expected: Any) -> None:
    """Facts of its conformance tests; a value has the type that is written, an error a part of its message."""
    if isinstance(expected, dict) and "$error" in expected:
        with pytest.raises(RecordError, match=expected["$error"]):
            value_of(text)
        return
    found = value_of(text)

    assert (found, type(found)) == (expected, type(expected))


def test_none_of_the_facts_is_left_out() -> None:
    """All that are written have run."""
    assert len(CASES) == 91


def test_a_record_is_seen_as_it_is() -> None:
    """Widths, decimals and times of Connect are numbers and texts of CEL."""
    date = Schema("struct", fields=(Field("at", Schema("int32", name=DATE, version=1)),))
    struct = Struct(Schema("struct", fields=(Field("a", Schema("string")),)), {"a": "x"})

    assert value_of("value.n + 1", value={"n": Int32(4)}) == 5
    assert value_of("value.n * 2.0", value={"n": Decimal("1.5")}) == 3.0
    assert value_of("value.n > 1e20", value={"n": BigInt(10**30)}) is True
    assert value_of("value.n", value={"n": 10**400}) == math.inf
    assert value_of("value.n", value={"n": Float32(0.5)}) == 0.5
    assert value_of("timestamp(value.at)", value={"at": Moment(5)}) == Moment(5)
    assert type(value_of("timestamp(value.at)", value={"at": Moment(5)})) is Moment
    assert value_of("value.at", date, value={"at": Moment(86_400_000)}) == "1970-01-02"
    assert value_of("value.s.a + 'y'", value={"s": struct}) == "xy"
    assert value_of("value.b", value={"b": memoryview(b"a\x00b")}) == b"a\x00b"
    assert value_of("timestamp + offset", timestamp=5, offset=7) == 12
    assert value_of("headers['Nats-Msg-Id'] + topic", headers={"Nats-Msg-Id": "a"}, topic="t") == "at"


def test_names_of_an_object_are_sorted() -> None:
    """The library has an order of hashes, which differs from process to process."""
    found = value_of("{'b': 1, 'a': value}", value={"z": 1, "y": 2})

    assert json.dumps(found) == '{"a": {"y": 2, "z": 1}, "b": 1}'


_TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=8)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_a_value_comes_back_as_it_went_in(value: Any) -> None:
    """Every type, and bytes and texts to their last character."""
    assert repr(value_of("value", value=value)) == repr(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("value.a +", "1:10: Syntax error: mismatched input '<EOF>'"),
        ("valu.a", "undeclared reference to 'valu.a'"),
        ("'a' + 1", "found no matching overload for '_+_' applied to '(string, int)'"),
        ("(" * 40 + "1" + ")" * 40, "recursion limit exceeded"),
        ("'" + "a" * 5000 + "'", "an expression of 5002 characters, at most 4096 are taken"),
        ("value.a.matches(value.b)", "expected the regular expression of x.matches(…) as a text"),
        ("matches(value.a, 'x')", "expected the regular expression of x.matches(…) as a text"),
    ],
)
def test_a_text_that_is_no_expression(text: str, problem: str) -> None:
    """The place is named by line and column, in one line."""
    with pytest.raises(ExpressionError) as raised:
        Expression(text).check()

    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["duration('1s')", "type(1)"])
def test_a_value_that_no_record_holds(text: str) -> None:
    """It is the record's error."""
    with pytest.raises(RecordError, match=r"no record holds|no type that a record holds"):
        value_of(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("value.l.all(i, i >= 0)", {"l": list(range(10_001))}),
        ("value.l.all(a, value.l.all(b, a + b >= 0))", {"l": list(range(200))}),
        ("value.l.map(i, value.s)", {"l": list(range(9000)), "s": "x" * 500_000}),
        ("value.l.map(i, value.l)", {"l": list(range(9000))}),
        ("value.l.all(i, !value.s.matches('(a|aa)+b'))", {"l": list(range(9000)), "s": "a" * 500_000}),
        ("[value.s + value.s].map(a, [a + a].map(b, [b + b].map(c, c + c + c + c + c)))", {"s": "x" * 5_000_000}),
        ("value.l == value.l", {"l": [[]]}),
    ],
)
def test_a_hostile_record_is_refused(text: str, value: Any) -> None:
    """Before or at the bounds, and not after minutes or gigabytes."""
    if value == {"l": [[]]}:
        for _ in range(100_000):
            value = {"l": [value["l"]]}
    with pytest.raises(RecordError, match=f"would take too much|10,000 iterations|more than {MAX_DEPTH} lists"):
        value_of(text, value=value)


def test_usual_records_are_not_refused() -> None:
    """A thousand items with some fields each, and texts of a hundred thousand characters."""
    items = [{"sku": f"sku-{n}", "n": n, "price": 1.5} for n in range(1000)]

    assert (
        len(value_of("value.items.filter(i, i.n > 500).map(i, i.sku + ' ' + string(i.n))", value={"items": items}))
        == 499
    )
    assert value_of("size(value.s + value.s)", value={"s": "x" * 100_000}) == 200_000


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": "\ud800"}, "half of a surrogate pair"),
        ({"a": "x\0y"}, "a text with a zero character"),
        ({"x\0y": 1}, "a text with a zero character"),
    ],
)
def test_texts_that_the_library_would_change(value: dict[str, object], problem: str) -> None:
    """It takes no half of a surrogate pair, and cuts a text at a zero; neither is to be found later in a stream."""
    with pytest.raises(RecordError, match=problem):
        value_of("value", value=value)


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence."""
    module._environment.cache_clear()
    module._program.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(MissingExtraError, match=r'pip install "turnout\[cel\]"'):
        Expression("1").check()
    module._environment.cache_clear()


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("value.a.b + value.c", {("value", "a", "b"), ("value", "c")}),
        ("value['a b'][\"c\"].d", {("value", "a b", "c", "d")}),
        ("value.l[0].x", {("value", "l")}),
        ("value[topic]", {("value",), ("topic",)}),
        ("value.name.startsWith('value.secret')", {("value", "name")}),
        (".value.a", {("value", "a")}),
        ("{'a': 1}.value", set()),
        ("value.a // value.b", {("value", "a")}),
        ("headers['X-Y'] + string(timestamp(value.t))", {("headers", "X-Y"), ("value", "t")}),
        ("[1].map(value, value.a)", {("value",), ("value", "a")}),
        ("value . a", {("value", "a")}),
        ("value['a\\x62']", {("value",)}),
        ("value.a.size()", {("value", "a")}),
    ],
)
def test_what_an_expression_names(text: str, paths: set[tuple[str, ...]]) -> None:
    """Rather too much: views hide what is made of masked fields."""
    assert references(text, frozenset(module.VARIABLES)).paths == paths


@given(st.text(st.sampled_from("value.headers[]()+'\"\\rb/ a,\n"), max_size=60))
def test_any_text_can_be_asked_for_its_references(text: str) -> None:
    """Texts that are no expressions, too."""
    assert isinstance(references(text, frozenset(module.VARIABLES)), References)


def test_loops_inside_each_other_and_one_after_the_other() -> None:
    """The maximal cost of one evaluation follows from the number and depth of loops."""
    nested = references("value.l.map(a, a.map(b, b + b))", frozenset({"value"}))
    chained = references("value.l.map(a, a + a).map(b, b + b)", frozenset({"value"}))

    assert (nested.loops, nested.depth, nested.iterations(10)) == (2, 2, 200)
    assert (chained.loops, chained.depth, chained.iterations(10)) == (2, 1, 20)
    assert chained.growth >= 4
    assert nested.iterations(1000) == 10_000
    assert MAX_WORK > 10_000
