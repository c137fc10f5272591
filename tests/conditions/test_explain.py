"""Explanations of a result."""

from __future__ import annotations

from hypothesis import given

from tests.conditions.strategies import conditions, messages
from turnout.conditions import evaluate, explain, parse


def test_explain():
    """Down to the leaf: what was found, how many hold, and which leaves decided it."""
    condition = parse("subject:orders* AND NOT location:Helsinki AND (a:1 OR b:2)")
    explanation = explain(condition, {"subject": "orders 17", "location": "Helsinki", "a": "1"})

    assert not explanation.holds
    assert [getattr(part.condition, "key", None) for part in explanation.decisive] == ["location"]
    assert str(explanation).splitlines() == [
        "- AND: 2 of 3 hold",
        "  + subject:orders*: 'subject' is 'orders 17'",
        "  - NOT location:Helsinki: 'location' is 'Helsinki'",
        "  + OR: 1 of 2 hold",
        "    + a:1: 'a' is '1'",
        "    - b:2: 'b' is missing",
    ]


@given(conditions, messages)
def test_explanations_are_true(condition, message):
    """An explanation's outcome is the interpreter's, for the whole and for each leaf that decided it."""
    explanation = explain(condition, message)

    assert evaluate(condition, message) == explanation.holds
    assert all(evaluate(part.condition, message) == part.holds for part in explanation.decisive)
