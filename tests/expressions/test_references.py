"""Paths and loops in the text of an expression."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.expressions import expression
from turnout.expressions.inputs import MAX_WORK
from turnout.expressions.references import References, references


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
    assert references(text, frozenset(expression.VARIABLES)).paths == paths


@given(st.text(st.sampled_from("value.headers[]()+'\"\\rb/ a,\n"), max_size=60))
def test_any_text_can_be_asked_for_its_references(text: str) -> None:
    """Texts that are no expressions, too."""
    assert isinstance(references(text, frozenset(expression.VARIABLES)), References)


def test_loops_inside_each_other_and_one_after_the_other() -> None:
    """The maximal cost of one evaluation follows from the number and depth of loops."""
    nested = references("value.l.map(a, a.map(b, b + b))", frozenset({"value"}))
    chained = references("value.l.map(a, a + a).map(b, b + b)", frozenset({"value"}))

    assert (nested.loops, nested.depth, nested.iterations(10)) == (2, 2, 200)
    assert (chained.loops, chained.depth, chained.iterations(10)) == (2, 1, 20)
    assert chained.growth >= 4
    assert nested.iterations(1000) == 10_000
    assert MAX_WORK > 10_000
