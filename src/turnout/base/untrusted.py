"""Strict checks of numbers and texts from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as ``json`` reads it, or a row by column. The types of its values are known at run time only."""

JsonMapping: TypeAlias = Mapping[str, Any]
"""The same, only read."""


class RepeatedKeyError(ValueError):
    """Raised for an object of JSON with a key that occurs twice, of which a reader would keep one value silently."""


def unique_object(pairs: list[tuple[str, object]]) -> JsonObject:
    """Return an object of JSON; the ``object_pairs_hook`` of a decoder.

    Raises:
        RepeatedKeyError: a key occurs twice.

    >>> import json
    >>> json.loads('{"a": {"b": 1, "b": 2}}', object_pairs_hook=unique_object)
    Traceback (most recent call last):
        ...
    turnout.base.untrusted.RepeatedKeyError: the key 'b' occurs twice in one object
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        repeated = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise RepeatedKeyError(f"the key {repeated!r:.60} occurs twice in one object")
    return found


LARGEST_SEQUENCE = (1 << 63) - 1
"""Largest value of a signed 64-bit column; a server counts one bit further."""

_UNSIGNED = (1 << 64) - 1
_DIGITS = 20


def decimal(text: bytes | str, largest: int = _UNSIGNED) -> int | None:
    """Parse a number of ASCII digits only; None for other texts, and for a number above *largest*.

    int() alone accepts more, and raises for thousands of digits:

    >>> [decimal(text) for text in ("17", "-1", " 1", "1_0", "٣", "", "9" * 5000)]
    [17, None, None, None, None, None, None]
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        return None
    number = int(text)
    return number if number <= largest else None


def is_whole(value: object, least: int = 0, most: int = LARGEST_SEQUENCE) -> TypeGuard[int]:
    """Return True for a whole number within bounds, as JSON or YAML has it; a boolean is none.

    >>> [is_whole(value) for value in (17, True, 1.0, "1", -1, 1 << 63)]
    [True, False, False, False, False, False]
    """
    return type(value) is int and least <= value <= most


def is_text(text: str) -> bool:
    r"""Return True if a text can be encoded in UTF-8: it has no half of a surrogate pair.

    >>> is_text("Ä"), is_text("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
