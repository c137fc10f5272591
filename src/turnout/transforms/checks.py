"""Checks that options share. Each returns the problem of a value, or None."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnout.records.types import Value
from turnout.transforms.java.regex import check_java_regex
from turnout.transforms.java.regex_characters import JavaRegexError


def non_empty_list(value: Sequence[str] | None) -> str | None:
    """Refuse a list without elements."""
    return None if value else "expected at least one element"


def names_or_none(value: Sequence[str] | None) -> str | None:
    """Refuse empty elements, as Kafka 4.3's ``ValidList`` does; null counts as an empty list, as in older routes."""
    return "expected no empty element" if "" in (value or ()) else None


def names(value: Sequence[str] | None) -> str | None:
    """Refuse what `names_or_none` refuses, and a list without elements."""
    return names_or_none(value) if value else non_empty_list(value)


def non_empty(value: str | None) -> str | None:
    """Refuse an empty text; null passes, as in Connect."""
    return "expected a text that is not empty" if value == "" else None


def non_null(value: Value) -> str | None:
    """Refuse only null."""
    return "expected a value" if value is None else None


def java_regex(value: str | None) -> str | None:
    """Refuse a pattern that ``java.util.regex`` cannot compile."""
    if value is None:
        return "expected a regular expression"
    try:
        check_java_regex(value)
    except JavaRegexError as error:
        return f"expected a Java regular expression: {error}"
    return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """A check that refuses everything but the given words.

    Attributes:
        words: as they are written.
        any_case: whether they may be written otherwise.
    """

    words: tuple[str, ...]
    any_case: bool = False

    def __call__(self, value: str | None) -> str | None:
        """Return the problem of a value, None if it is valid."""
        words = [word.lower() for word in self.words] if self.any_case else self.words
        compared = value.lower() if self.any_case and value is not None else value
        return None if compared in words else f"expected one of {', '.join(self.words)}"


def one_of(*words: str, any_case: bool = False) -> OneOf:
    """Return the check that refuses everything but these words."""
    return OneOf(words, any_case)
