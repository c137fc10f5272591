"""Counts in messages: a number and its noun, or the first of some names."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """Return *count* with the noun, in the plural unless it is one.

    >>> plural(1, "mapping"), plural(1_200, "mapping")
    ('1 mapping', '1,200 mappings')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first of some names, and how many more there are.

    >>> first_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
