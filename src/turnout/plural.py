"""Counts in messages: a number and its noun."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return *count* with the noun, in the plural unless it is one.

    >>> plural(1, "mapping"), plural(1_200, "mapping")
    ('1 mapping', '1,200 mappings')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
