"""Functions that build conditions."""

from __future__ import annotations

import pytest

from turnout.conditions import Group, Logic, all_of, any_of, between, compare, evaluate, kiwi, not_, one_of
from turnout.errors import ConditionError


@pytest.mark.parametrize(
    ("build", "logic", "truths"),
    [(all_of, Logic.AND, [0, 0, 0, 1]), (any_of, Logic.OR, [0, 1, 1, 1]), (one_of, Logic.XOR, [0, 1, 1, 0])],
)
def test_groups(build, logic: Logic, truths: list[int]) -> None:
    """Their truth tables for two children."""
    group = build(kiwi("a", "1"), kiwi("b", "1"))

    assert isinstance(group, Group)
    assert group.logic is logic
    assert [evaluate(group, {"a": a, "b": b}) for a in "01" for b in "01"] == list(map(bool, truths))


def test_negation_is_its_own_inverse() -> None:
    """Of leaves and of groups."""
    for condition in (kiwi("a", "1"), all_of(kiwi("a", "1"), compare("n", ">", 2))):
        assert not_(condition).negated
        assert not_(not_(condition)) == condition


def test_between_includes_both_bounds() -> None:
    """A number, and no text."""
    wide = between("n", 1, 2.5)

    assert [evaluate(wide, {"n": text}) for text in ("0.9", "1", "2.5", "2.6", "x")] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_an_operator_that_is_none() -> None:
    """It is refused with a list of the known operators."""
    with pytest.raises(ConditionError, match="<="):
        compare("n", "<>", 1)
