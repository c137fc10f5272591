"""Conditions from parts, held to the reference evaluator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import evaluate, parse
from turnout.console.condition_builder import TESTS, extended
from turnout.errors import ConditionError

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)


@given(TEXTS, TEXTS, TEXTS)
def test_texts_are_taken_literally(key: str, value: str, around: str) -> None:
    """Wildcards, quotes and backslashes of a value mean themselves."""
    values = {key: value} if key != "*" else {"other": value}
    longer = dict.fromkeys(values, f"{around}{value}{around}")
    for test, holds in (
        ("is", values),
        ("begins", dict.fromkeys(values, f"{value}{around}")),
        ("contains", longer),
    ):
        condition = parse(extended("", "and", key, test, value))

        assert evaluate(condition, values)
        assert evaluate(condition, holds)
    assert not evaluate(parse(extended("", "and", key, "is", value)), longer)


@pytest.mark.parametrize("test", sorted(TESTS))
def test_every_test_reads_back(test: str) -> None:
    """As one more leaf of a group, negated or not, and behind one of another kind in parentheses."""
    value = "10.0.0.0/8" if test == "network" else "10"
    once = extended("", "and", "a", test, value)

    assert parse(extended("b:1 AND c:2", "and", "a", test, value)) == parse(f"b:1 AND c:2 AND {once}")
    assert parse(extended("b:1 AND c:2", "or not", "a", test, value)) == parse(f"(b:1 AND c:2) OR NOT {once}")


@pytest.mark.parametrize(("key", "test", "value"), [("a", "<", "x"), ("", "is", "x"), ("a", "network", "x")])
def test_parts_that_are_none(key: str, test: str, value: str) -> None:
    """No leaf is made of them."""
    with pytest.raises(ConditionError):
        extended("b:1", "and", key, test, value)
