"""Regular expressions: what they need of a value, and their bounds."""

from __future__ import annotations

import sys

import pytest

from turnout.conditions.regex import RegexSet, expression_problem, regex_searcher
from turnout.errors import ConditionError, MissingExtraError


def test_an_expression_that_needs_too_much_memory() -> None:
    """It is refused when it is read."""
    with pytest.raises(ConditionError, match="pattern too large"):
        regex_searcher("(a{1,100}){10}" * 20)


def test_values_of_any_length_take_linear_time() -> None:
    """Other engines need exponential time for these values."""
    assert not regex_searcher("(a*)*(b|a+)+c$")("a" * 200_000)


def test_without_the_extra(monkeypatch) -> None:
    """The error names it."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(MissingExtraError, match=r'install "turnout\[regex\]"'):
        regex_searcher("never seen before")


_LARGE = "[^x]{1,1000}y"


def test_a_large_expression_is_not_searched_for_in_a_long_value(caplog) -> None:
    """A stored one is bounded by the product of its size and the value's length, and the first such value is logged."""
    has_match = regex_searcher("[^x]{1,999}y")
    assert has_match("a" * 1_000 + "y")
    assert not has_match("a" * 1_000_000 + "y")
    assert not has_match("a" * 1_000_000 + "y")
    (record,) = caplog.records
    assert "[^x]{1,999}y" in record.message
    assert "1,000,001 bytes" in record.message


def test_a_small_expression_is_searched_for_in_a_long_value() -> None:
    """Usual expressions see whole messages."""
    assert regex_searcher("(?i)foo|bar|[.](exe|dll)$")("a" * 1_000_000 + ".exe")


def test_a_set_agrees_about_long_values() -> None:
    """Expressions that are searched for together find what each of them finds."""
    patterns = ["y$", _LARGE]
    together = RegexSet.of(patterns)
    assert together is not None
    assert together.found("a" * 1_000_000 + "y") is None
    assert together.found("ay") == [0, 1]


@pytest.mark.parametrize(
    "pattern",
    [
        _LARGE,
        ".{1,1000}y",
        "(a{1,30}){1,30}y",
        "(a?){1000}b",
        "(?i)a[^b]{5,300}c",
        "|".join(f"[^{chr(97 + at)}]{{1,30}}{chr(98 + at)}" for at in range(25)),
    ],
)
def test_expressions_of_many_instructions_have_a_problem(pattern) -> None:
    """Repetitions, nested repetitions and many alternatives are refused by the size of the program they become."""
    assert "instructions, at most 1,000 are taken" in str(expression_problem(pattern))


@pytest.mark.parametrize("pattern", ["(?i)foo|bar", "[A-Za-z0-9+/]{100}", ".{1,100}y", "^(one|two)*$"])
def test_usual_expressions_have_none(pattern) -> None:
    """They may be stored."""
    assert expression_problem(pattern) is None
