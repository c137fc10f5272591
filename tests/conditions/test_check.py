"""Checks of values by leaves."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.conditions.strategies import leaves, messages
from turnout.conditions import evaluate
from turnout.conditions.check import TESTS, check_of, holds
from turnout.conditions.leaf import Check, ValueTest
from turnout.conditions.leaves import LEAVES
from turnout.subscriptions.index import segment


@given(leaves, messages)
def test_checks_are_leaves(leaf, message):
    """The data that the indexes verify with says what the interpreter says."""
    assert evaluate(leaf, message) == holds(check_of(leaf), message)


def test_stored_numbers() -> None:
    """Segments of an index contain them: a new operation gets a number of its own, and the others keep theirs."""
    numbers = {op: test.number for op, test in TESTS.items()}
    assert numbers == {
        "=": 0, "^": 1, "$": 2, "~": 3, "glob": 4, "has": 5, "cidr": 6, "n<": 7, "n<=": 8, "n=": 9, "n>=": 10, "n>": 11,
        "re": 12, "any": 13, "subject": 14, "field": 15,
    }  # fmt: skip
    assert len(set(numbers.values())) == sum(len(spec.tests) for spec in LEAVES)


@pytest.mark.parametrize("number", [*range(16), 16, 20, 37, 63])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("fold", [False, True])
def test_a_form_is_one_byte(monkeypatch, number: int, partial: bool, fold: bool) -> None:
    """It has the number of the operation up to 63, and whether the test is of words and folded."""
    monkeypatch.setitem(TESTS, "new", ValueTest("new", number, lambda _check, _value: True))
    monkeypatch.setitem(segment.OPS, number, "new")
    form = segment.form_of(Check("k", "new", partial=partial, fold=fold))
    assert 0 <= form < 256
    assert (segment.op_of(form), bool(form & 16), bool(form & segment.FOLDED_FORM)) == ("new", partial, fold)
