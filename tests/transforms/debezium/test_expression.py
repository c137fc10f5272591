"""Expressions of Debezium's scripted transforms: what is refused, JavaScript's rules, and their transforms.

The results in Groovy are those of its vectors, see ``test_groovy.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConditionError, ConfigError
from turnout.records import Failure, Record, Schema
from turnout.records.schema import Field
from turnout.transforms import Chain
from turnout.transforms.debezium.expression import GRAAL_JS, GROOVY, MAX_EXPRESSION, Script

_LANGUAGE = {"language": "jsr223.groovy"}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "at 0: expected a field (value.after.id, key.id, topic or header.NAME.value), a text in quotes"),
        ("value.op =", "at 9: expected an operator or the end"),
        ("value.op =~ 'x'", "at 9: expected an operator or the end"),
        ("value.op ==~ 'x'", "at 9: expected an operator or the end"),
        ("value.op <=> 'x'", "at 9: expected an operator or the end"),
        ("(value.a == 1", "at 13: expected ')', found the end"),
        ("value.a.matches('x')", "expected a field, or one of the methods startsWith, endsWith"),
        ("before.id == 1", "at 0: expected a field (value.after.id"),
        ("value.a === 1", "in Groovy === compares identities"),
        ("value.a == 1 + 1", "found + 1"),
        ("value.a in value.b", "expected '[', found value"),
        ("\"${value.a}\" in ['x']", "no text with ${…} before in"),
        ("\"${value.a\" == 'x'", "expected an expression and '}' behind ${"),
        ("\"a$ b\" == 'x'", "for a dollar sign in a text in double quotes"),
        ("\"${env:X}\" == 'x'", "at 3: expected a field"),
        ("'\\q' == 'x'", "an escape that is known, and not"),
        ("'a\nb' == 'x'", "found 'a"),
        ("010 == 8", "expected a decimal number"),
        ("9999999999I == 8", "a number of 32 bits"),
        ("header.x == 1", "expected header.NAME.value"),
        ("header.x.schema == 1", "expected value, as in header.NAME.value"),
        ("topic.x == 1", "only value, key and header have fields"),
        ("valueSchema.name == 'x'", "at 0: expected a field"),
        ("value.a; value.b", "at 7: expected an operator or the end"),
        ("(" * 200 + "value.a", "expressions inside one another"),
        ("!" * MAX_EXPRESSION + "value.a", "characters, at most"),
    ],
)
def test_other_expressions_are_refused(expression: str, problem: str) -> None:
    """With the offset, what is there, and what is expected."""
    with pytest.raises(ConditionError) as error:
        Script.read(expression, GROOVY)
    assert problem in str(error.value)


@given(st.text("value.op'\"=!&|<>()?: 1\\$in[]{}", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """With no other error than its own."""
    for language in (GROOVY, GRAAL_JS):
        try:
            Script.read(text, language)
        except ConditionError:
            continue


def kept(condition: str, value: Any, schema: Schema | None = None, **more: Any) -> bool | str:
    """Whether a filter keeps a record; the error of one that fails."""
    stage = {"type": "DebeziumFilter", "language": GROOVY, "condition": condition, **more}
    (outcome,) = Chain.from_route([stage]).apply([Record("t", value, value_schema=schema)])
    return outcome.message.partition(": ")[2] if isinstance(outcome, Failure) else outcome is not None


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("value.id == '1'", {"id": 1}, True),
        ("value.id === '1'", {"id": 1}, False),
        ("value.id === 1", {"id": 1}, True),
        ("value.n < 5", {"n": None}, True),
        ("value.n == 0", {"n": None}, False),
        ("value.s < 5", {"s": "x"}, False),
        ("value.s >= 5", {"s": "x"}, False),
        ("value.s > '5'", {"s": "10"}, False),
        ("value.yes == 1", {"yes": True}, True),
        ("value.s.includes('b')", {"s": "abc"}, True),
        ("value.a?.b.c == null", {"a": None}, True),
        ("value.s == '${x}'", {"s": "${x}"}, True),
    ],
)
def test_the_rules_of_javascript(condition: str, value: Any, expected: bool) -> None:
    """Equality converts, null is zero in an order, and a text of digits is no number beside another text."""
    assert kept(condition, value, language=GRAAL_JS) is expected


def test_fields_with_schemas_are_what_a_struct_gives() -> None:
    """A field that no schema has fails, a null has its default, and an int32 is an Integer."""
    inner = Schema("struct", fields=(Field("n", Schema("int32")), Field("d", Schema("string", default="x"))))
    schema = Schema("struct", fields=(Field("after", inner),))
    value = {"after": {"n": 1, "d": None}}

    assert kept("value.after.n in [1]", value, schema) is True
    assert kept("value.after.n in [1L]", value, schema) is False
    assert kept("value.after.d == 'x'", value, schema) is True
    assert kept("value.after.x == 1", value, schema) == "x is not a valid field name"
    assert kept("value.after.n.x == 1", value, schema) == "No such property: x"
    assert (
        kept("value.after.n", value, schema) == "expected true or false of the expression, found a value of type int32"
    )


def test_equal_texts_of_different_types_have_results_of_their_own() -> None:
    """Results are remembered for equal fields: 1, 1.0, true and '1' are not."""
    chain = Chain.from_route([{"type": "DebeziumFilter", "language": GROOVY, "condition": "value.a in [1L, '1']"}])
    records = [Record("t", {"a": item}) for item in (1, 1.0, True, "1", 1, {"x": 1}, [1])]
    assert [one is not None for one in chain.apply(records)] == [True, False, False, True, True, False, False]


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


def test_a_topic_may_be_a_field_or_have_fields_in_it() -> None:
    """Texts with ``${…}``, alternatives in parentheses; another type is an error of the record."""
    kind = "ContentBasedRouter"

    by_op = "value.op == 'c' ? \"cdc.${value.after.id}\" : (value.op == 'u' ? value.op : null)"
    assert topics(type=kind, topic_expression=by_op) == ["u", "cdc.3", "x", "t.a"]
    assert topics(type=kind, topic_expression="value.op == 'd' ? value.before.id : null") == ["t.a", "t.b", None, "t.a"]
    with pytest.raises(ConfigError, match="expected a topic"):
        topics(type=kind, topic_expression="value.op == 'd' ? 1 : null")
    with pytest.raises(ConfigError, match="true or false"):
        topics(type="DebeziumFilter", condition="value.op == 'd' ? 'x' : true")


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
