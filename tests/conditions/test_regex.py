"""Regular expressions: what they need of a value, and their bounds."""

from __future__ import annotations

import sys

import pytest

from turnout.conditions.regex import regex_searcher
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
