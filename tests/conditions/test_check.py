"""Checks of values by leaves."""

from __future__ import annotations

from hypothesis import given

from tests.conditions.strategies import leaves, messages
from turnout.conditions import evaluate
from turnout.conditions.check import check_of, holds


@given(leaves, messages)
def test_checks_are_leaves(leaf, message):
    """The data that the indexes verify with says what the interpreter says."""
    assert evaluate(leaf, message) == holds(check_of(leaf), message)
