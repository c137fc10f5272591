"""Expressions of Debezium's scripted transforms: what is read, what is refused, and the transforms that have them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import evaluate, format_condition
from turnout.errors import ConditionError, ConfigError
from turnout.records import Record
from turnout.transforms import Chain
from turnout.transforms.debezium_expression import MAX_EXPRESSION, read_choices, read_condition

_LANGUAGE = {"language": "jsr223.groovy"}


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("value.op == 'u' && value.before.id == 2", "value.op:u AND value.before.id=2"),
        (r"!(value.op === 'd' || topic.startsWith('a*b'))", r"NOT (value.op:d OR topic:a\*b*)"),
        ("value.after?.x !== null", "value.after.x exists"),
        ("value.before == null", "NOT value.before exists"),
        ("2.5e1 < value['a b'].c", '"value.`a b`.c">25'),
        ("10L >= key.id", "key.id<=10"),
        ("value.after.active", "value.after.active:true"),
        ("value.after.active != false", "NOT value.after.active:false"),
        (r'header.tenant.value == "x\"*"', r'tenant:"x""\*"'),
        ("value.a.contains('?') && value.b.endsWith(\"z\")", r"value.a:*\?* AND value.b:*z"),
        ("(((value.a == 'x')))", "value.a:x"),
    ],
)
def test_conditions(expression: str, condition: str) -> None:
    """Each operator, and each way to name a field."""
    assert format_condition(read_condition(expression)) == condition


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "at 0: expected a field (value.after.id), a text in quotes, a number, true, false or null, found the end"),
        ("value.op in ['a']", "at 9: expected an operator or the end; only comparisons, &&, || and ! are read here"),
        ("value.op =", "at 9: expected an operator or the end"),
        ("(value.a == 1", "at 13: expected ')', found the end"),
        ("value.a.matches('x')", "expected a field, or one of the methods contains, endsWith"),
        ("before.id == 1", "at 0: expected a field of value or key, topic, or header.NAME.value, found before.id"),
        ("1 == 2", "at 2: expected a field on one side of a comparison, and a constant on the other"),
        ("value.a == value.b", "at 8: expected a field on one side"),
        ("value.a < 'x'", "at 8: expected a number for an order"),
        ("'x'", "expected a comparison"),
        ("value.a == 1 + 1", "found + 1"),
        ("(" * 200 + "value.a", "parentheses inside one another"),
        ("!" * MAX_EXPRESSION + "value.a", "characters, at most"),
    ],
)
def test_other_expressions_are_refused(expression: str, problem: str) -> None:
    """With the offset, what is there, and what is expected."""
    with pytest.raises(ConditionError) as error:
        read_condition(expression)
    assert problem in str(error.value)


def test_topics_are_chosen_in_order() -> None:
    """The first condition that is true has its topic; null and topic leave the record's own."""
    choices = read_choices("value.op == 'd' ? 'deleted' : value.n > 9 ? \"large\" : topic")

    assert [(one.condition and format_condition(one.condition), one.topic) for one in choices] == [
        ("value.op:d", "deleted"), ("value.n>9", "large"), (None, None)
    ]  # fmt: skip
    with pytest.raises(ConditionError, match=r"at 18: expected a topic in quotes, null or topic, found value\.t"):
        read_choices("value.op == 'd' ? value.t : null")


_TEXTS = st.text("ab*?\\'\"\n ü", max_size=4)
_NUMBERS = st.integers(-99, 99) | st.floats(-1e6, 1e6).filter(lambda number: "e" not in repr(number))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Any]:
    """An expression, and the function of a value's fields ``a`` and ``b`` that it is."""
    if depth and draw(st.booleans()):
        left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
        kind = draw(st.sampled_from(["&&", "||", "!"]))
        if kind == "!":
            return f"!({left[0]})", lambda fields: not left[1](fields)
        join = all if kind == "&&" else any
        return f"({left[0]}) {kind} ({right[0]})", lambda fields: join(one[1](fields) for one in (left, right))
    name = draw(st.sampled_from("ab"))
    if draw(st.booleans()):
        text = draw(_TEXTS)
        return f"value.{name} == {json.dumps(text, ensure_ascii=False)}", lambda fields: fields[name] == text
    number = draw(_NUMBERS)
    operator = draw(st.sampled_from(["<", "<=", ">", ">="]))
    compared = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__}[operator]
    return f"value.{name} {operator} {number}", lambda fields: compared(_number(fields[name]), float(number))


def _number(value: str | float) -> float:
    return math.nan if isinstance(value, str) else float(value)


@given(expressions(), st.tuples(_TEXTS | _NUMBERS, _TEXTS | _NUMBERS))
def test_a_condition_is_what_the_expression_says(expression: tuple[str, Any], values: tuple[Any, Any]) -> None:
    """For random expressions over random fields."""
    written, meant = expression
    fields = dict(zip("ab", values, strict=True))
    texts = {f"value.{name}": value if isinstance(value, str) else repr(value) for name, value in fields.items()}

    assert evaluate(read_condition(written), texts) == meant(fields)


@given(st.text("value.op'\"=!&|<>()?: 1\\", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """With no other error than its own."""
    for read in (read_condition, read_choices):
        try:
            read(text)
        except ConditionError:
            continue


UPDATED = {"op": "u", "before": {"id": 2}, "after": {"id": 2, "total": 5000}}
CREATED = {"op": "c", "before": None, "after": {"id": 3, "total": 1}}
DELETED = {"op": "d", "before": {"id": 1}, "after": None}
RECORDS = [Record("t.a", UPDATED), Record("t.b", CREATED), Record("x", DELETED), Record("t.a", None)]


def topics(**stage: Any) -> list[str | None]:
    made = Chain.from_route([{**_LANGUAGE, **{name.replace("_", "."): value for name, value in stage.items()}}])
    return [one.topic if isinstance(one, Record) else None for one in made.apply(RECORDS)]


def test_a_filter_keeps_what_the_expression_is_true_of() -> None:
    """Records of other topics and tombstones are kept, unless these are dropped or looked at."""
    kind = "io.debezium.transforms.Filter"

    assert topics(type=kind, condition="value.op == 'u'") == ["t.a", None, None, "t.a"]
    assert topics(type=kind, condition="value.op == 'u'", topic_regex=r"t\..*") == ["t.a", None, "x", "t.a"]
    assert topics(type=kind, condition="value.op != 'u'", null_handling_mode="drop") == [None, "t.b", "x", None]
    assert topics(type=kind, condition="value == null", null_handling_mode="evaluate") == [None, None, None, "t.a"]
    assert topics(type="DebeziumFilter", condition="value.before.id <= 1") == [None, None, "x", "t.a"]


def test_a_router_gives_the_topic_that_is_chosen() -> None:
    """A record that it does not look at keeps its own."""
    kind, by_total = "ContentBasedRouter", "value.op == 'd' ? 'deleted' : value.after.total > 1000 ? 'large' : null"

    assert topics(type=kind, topic_expression=by_total) == ["large", "t.b", "deleted", "t.a"]
    assert topics(type=kind, topic_expression="'all'", topic_regex="x") == ["t.a", "t.b", "all", "t.a"]
    assert topics(type=kind, topic_expression="'all'", null_handling_mode="evaluate") == ["all"] * 4


def test_a_connector_with_them() -> None:
    """The property `condition`, which a draft of KIP-585 has too, is the filter's own."""
    config = {
        "transforms": "f",
        "transforms.f.type": "io.debezium.transforms.Filter",
        "transforms.f.language": "jsr223.groovy",
        "transforms.f.condition": "value.op == 'c'",
    }
    made = Chain.from_config(config).apply(RECORDS)

    assert [isinstance(one, Record) for one in made] == [False, True, False, True]


def test_a_mistake_names_the_option() -> None:
    """With the offset in the expression."""
    with pytest.raises(ConfigError, match=r"transforms\[0\]\.condition: at 9: expected an operator or the end"):
        topics(type="DebeziumFilter", condition="value.op =~ 'x'")
    with pytest.raises(ConfigError, match=r"transforms\[0\]\.language"):
        topics(type="DebeziumFilter", condition="value.op == 'x'", language="python")
