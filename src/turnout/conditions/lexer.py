"""Tokens of the text of conditions, and how keys and patterns are written so that they are read back."""

from __future__ import annotations

import re
from typing import Final

from turnout.base.multivalued import ANY_KEY, KINDS, is_plain_key, leaf_key, metadata_key, split_kind

QUOTED: Final = r'"(?:[^"]|"")*"'
KINDS_TEXT: Final = "|".join(KINDS)
KEY: Final = re.compile(rf'{QUOTED}|(?![!+-])(?:[^\s():~<>="!]|!(?!=))+')
INNER_KEY: Final = re.compile(rf'{QUOTED}|[^\s(),:~<>="!]+')
"""Key inside of parentheses."""
PATTERN: Final = re.compile(rf'{QUOTED}|(?:\\.|[^\s()"\\])+', re.DOTALL)
ITEM: Final = re.compile(rf'{QUOTED}|(?:\\.|[^\s()",\\])+', re.DOTALL)
VALUE: Final = re.compile(r"[^\s()]+")
WORD: Final = {word: re.compile(rf"{word}(?![^\s()])", re.IGNORECASE) for word in ("AND", "OR", "XOR", "NOT")}
LUCENE: Final = {"_exists_": "{} exists", "_missing_": "NOT {} exists"}
"""Keys of Lucene's query language, and what they mean."""

_BEFORE_PATTERN = re.compile(rf'["\[<>]|\'.*\'$|[it]{{1,2}}[:~]|(?:{KINDS_TEXT})(?:[:~<>=]|!=)', re.IGNORECASE)
"""Beginnings of a pattern that would be read as part of the text before it."""


def quoted(text: str) -> str:
    """Return the text in quotes."""
    return '"' + text.replace('"', '""') + '"'


def unquoted(written: str) -> str:
    """Return the text that is written, perhaps in quotes."""
    return written[1:-1].replace('""', '"') if written.startswith('"') else written


def read_key(written: str) -> str:
    """Return the key of leaves: in quotes it is the name of a metadata key, whatever its characters."""
    return leaf_key(unquoted(written)) if written.startswith('"') else written


def key_text(key: str) -> str:
    """Return the text of a leaf's key."""
    if key != ANY_KEY and not is_plain_key(key):
        return quoted(metadata_key(key))
    base, kind = split_kind(key)
    if kind and base != ANY_KEY and not split_kind(base)[1]:
        return f"{key_text(base)}:{kind}"
    plain = KEY.fullmatch(key) and not key.startswith('"') and key.upper() not in WORD and key not in LUCENE
    return key if plain else quoted(key)


def inner_key_text(key: str) -> str:
    """Return the text of a key inside of parentheses."""
    base, kind = split_kind(key)
    if kind and base != ANY_KEY and not split_kind(base)[1]:
        return f"{inner_key_text(base)}:{kind}"
    return key_text(key) if INNER_KEY.fullmatch(key) else quoted(metadata_key(key))


def pattern_text(pattern: str) -> str:
    """Return the text of a pattern behind a sign."""
    # What follows a sign must not look like flags or a range.
    plain = PATTERN.fullmatch(pattern) and not _BEFORE_PATTERN.match(pattern)
    return pattern if plain else quoted(pattern)
