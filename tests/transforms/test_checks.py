"""Checks of options."""

from __future__ import annotations

import pytest

from turnout.transforms.checks import java_regex, names, non_empty, non_empty_list, one_of


def test_checks_return_the_problem_or_none() -> None:
    """A valid value has no problem."""
    assert [non_empty("a"), non_empty_list(["a"]), names(["a"]), java_regex("a+"), one_of("x", "y")("x")] == [None] * 5
    assert all([non_empty(""), non_empty_list([]), names([""]), java_regex("(")])


def test_one_of_compares_with_case_unless_told() -> None:
    """The problem names the words."""
    problem = one_of("first", "all")("ALL")

    assert problem is not None
    assert "first" in problem
    assert one_of("first", "all", any_case=True)("ALL") is None


@pytest.mark.parametrize("value", [None])
def test_none_is_checked_too(value: None) -> None:
    """An option without a default may be missing."""
    assert non_empty_list(value)
