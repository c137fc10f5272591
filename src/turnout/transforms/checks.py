"""The checks that options share. Each says what is wrong with a value, or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnout.transforms.java_regex import JavaRegexError, check_java_regex

__all__ = ["java_regex", "non_empty", "non_empty_list", "non_null", "one_of"]


def non_empty_list(value: Sequence[str] | None) -> str | None:
    """Refuses a list without elements."""
    return None if value else "expected at least one element"


def non_empty(value: str | None) -> str | None:
    """Refuses an empty text, and lets null pass as Connect does."""
    return "expected a text that is not empty" if value == "" else None


def non_null(value: Any) -> str | None:
    """Refuses only null."""
    return "expected a value" if value is None else None


def java_regex(value: str | None) -> str | None:
    """Refuses what ``java.util.regex`` cannot compile."""
    if value is None:
        return "expected a regular expression"
    try:
        check_java_regex(value)
    except JavaRegexError as error:
        return f"expected a Java regular expression: {error}"
    return None


def one_of(*valid: str, any_case: bool = False) -> Callable[[str | None], str | None]:
    """A check that refuses everything but the given words."""
    words = frozenset(word.lower() for word in valid) if any_case else frozenset(valid)

    def check(value: str | None) -> str | None:
        word = value.lower() if any_case and value is not None else value
        return None if word in words else f"expected one of {', '.join(valid)}"

    return check
