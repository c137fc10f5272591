"""Texts as Java and Kafka's ConfigDef trim, split and compare them."""

from __future__ import annotations

from typing import Final

BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that ``String.trim`` removes: up to U+0020, and none of Unicode's other spaces."""

_SPACES: Final = " \t\n\x0b\f\r"
r"""The characters that ``\s`` matches in Java."""


def trim(text: str) -> str:
    r"""Return the text as ``String.trim`` does.

    >>> trim(" a\x00"), trim("\u00a0a\u2003")
    ('a', '\xa0a\u2003')
    """
    return text.strip(BLANKS)


def split_list(text: str) -> list[str]:
    """Return the entries of a ``LIST`` option; empty entries are kept.

    >>> split_list(" a , b"), split_list("a,,b"), split_list(" ")
    (['a', 'b'], ['a', '', 'b'], [])
    """
    trimmed = trim(text)
    return [entry.strip(_SPACES) for entry in trimmed.split(",")] if trimmed else []


def is_word(text: str, word: str) -> bool:
    """Return whether the text is an ASCII word of lower case letters, as ``String.equalsIgnoreCase`` compares."""
    return text.casefold() == word
