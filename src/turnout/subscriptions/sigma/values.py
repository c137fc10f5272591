r"""Values of Sigma's searches as leaves: texts with wildcards, and the modifiers behind a field's name.

In a text ``*`` is any run of characters and ``?`` one; a backslash escapes these and itself, and is a backslash
before anything else.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from itertools import product
from typing import Final

from turnout.base.multivalued import ANY_KEY, leaf_key
from turnout.conditions import Condition, cidr, compare, compare_fields, exists, kiwi, not_, regex
from turnout.conditions.pattern import ANY, ONE, Piece, escape
from turnout.errors import ConditionError
from turnout.subscriptions.sigma.errors import InexpressibleError
from turnout.subscriptions.sigma.expression import both, either

_DASHES: Final = ("-", "/", "–", "—", "―")
_DASH = re.compile(r"\B[-/]\b")
_MAX_DASHES = 3
"""Dashes of one text that are written in each of their forms: 125 texts."""

_COMPARISONS: Final = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ENCODINGS: Final = {"wide": "utf-16-le", "utf16le": "utf-16-le", "utf16be": "utf-16-be", "utf16": "utf-16"}
_PLACES: Final = ("contains", "startswith", "endswith")
_TEXT: Final = frozenset((*_PLACES, *_ENCODINGS, "cased", "windash", "base64", "base64offset"))
_WHERE: Final = frozenset((*_PLACES, "re", "cidr", *_COMPARISONS))
"""Modifiers that define the comparison of a keyword."""

_REGEX_FLAGS: Final = ("i", "m", "s")
_KNOWN: Final = _TEXT | {"all", "neq", "cidr", "exists", "re", "fieldref", *_REGEX_FLAGS, *_COMPARISONS}
_WITH_FIELDREF: Final = frozenset(("fieldref", "all", "neq", "cased"))


def field_condition(path: str, written: str, value: object) -> Condition:
    """Return the condition of one entry of a search: a field with modifiers, and its value or values.

    Raises:
        InexpressibleError: a modifier or a value has no counterpart.
    """
    name, *modifiers = written.split("|")
    for modifier in modifiers:
        if modifier not in _KNOWN:
            raise InexpressibleError(path, f"the modifier {modifier!r} cannot be expressed")
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InexpressibleError(path, "has no values")
    field = leaf_key(name) if name else ANY_KEY
    if not name and not any(modifier in _WHERE for modifier in modifiers):
        # A keyword is looked for anywhere in a value.
        modifiers.append("contains")
    parts = [_leaf(path, field, modifiers, one) for one in values]
    condition = both(parts) if "all" in modifiers else either(parts)
    return not_(condition) if "neq" in modifiers else condition


def _leaf(path: str, field: str, modifiers: Sequence[str], value: object) -> Condition:
    if field == ANY_KEY and (value is None or "exists" in modifiers):
        raise InexpressibleError(path, "expected a keyword, which tests all fields, found a test of none")
    if value is not None and not isinstance(value, (str, int, float, bool)):
        raise InexpressibleError(path, f"expected a text, a number, true, false or null, found {value!r:.60}")
    if "fieldref" in modifiers:
        return _reference(path, field, modifiers, value)
    if "exists" in modifiers:
        return exists(field) if _is_true(path, value) else not_(exists(field))
    if value is None:
        return not_(exists(field))
    try:
        if "cidr" in modifiers:
            return cidr(field, str(value))
        if "re" in modifiers:
            flags = "".join(flag for flag in _REGEX_FLAGS if flag in modifiers)
            return regex(field, f"(?{flags}){value}" if flags else str(value))
        for modifier in modifiers:
            if modifier in _COMPARISONS:
                return compare(field, _COMPARISONS[modifier], _number(path, value))
        return either(
            [kiwi(field, one, ignore_case="cased" not in modifiers) for one in _patterns(path, modifiers, value)]
        )
    except ConditionError as problem:
        raise InexpressibleError(path, str(problem)) from problem


def _reference(path: str, field: str, modifiers: Sequence[str], value: object) -> Condition:
    """Return the comparison with another field."""
    other = next((modifier for modifier in modifiers if modifier not in _WITH_FIELDREF), None)
    if other is not None:
        raise InexpressibleError(path, f"the modifier {other!r} with fieldref cannot be expressed")
    if not isinstance(value, str) or not value or field == ANY_KEY:
        raise InexpressibleError(path, f"expected a field and the name of another one, found {value!r:.60}")
    return compare_fields(field, "=", leaf_key(value), ignore_case="cased" not in modifiers)


def _is_true(path: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InexpressibleError(path, f"expected true or false, found {value!r:.60}")
    return value


def _number(path: str, value: str | float) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise InexpressibleError(path, f"expected a number, found {value!r:.60}") from None


def _patterns(path: str, modifiers: Sequence[str], value: str | float) -> list[str]:
    """Return the patterns of a text, any of which may match."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    bodies = _encoded(path, modifiers, text) if _is_encoded(modifiers) else _dashed(path, modifiers, text)
    before = [ANY] if "contains" in modifiers or "endswith" in modifiers else []
    after = [ANY] if "contains" in modifiers or "startswith" in modifiers else []
    return [_pattern([*before, *body, *after]) for body in bodies]


def _is_encoded(modifiers: Sequence[str]) -> bool:
    return any(modifier in _ENCODINGS or modifier.startswith("base64") for modifier in modifiers)


def _encoded(path: str, modifiers: Sequence[str], text: str) -> list[list[Piece]]:
    pieces = pieces_of(text)
    plain = "".join(piece for piece in pieces if isinstance(piece, str))
    if len(pieces) != 1 or not plain:
        raise InexpressibleError(path, "a text with wildcards, or without characters, cannot be encoded")
    encoding = next((_ENCODINGS[modifier] for modifier in modifiers if modifier in _ENCODINGS), "utf-8")
    raw = plain.encode(encoding)
    if "base64offset" in modifiers:
        return [[part] for part in _at_offsets(raw)]
    if "base64" in modifiers:
        return [[b64encode(raw).decode()]]
    raise InexpressibleError(path, "an encoding without base64 cannot be expressed: values are texts")


def _at_offsets(raw: bytes) -> list[str]:
    """Return the part of the encoded text that does not depend on its surroundings, for each of three offsets."""
    parts = []
    for offset, first in enumerate((0, 2, 3)):
        text = b64encode(bytes(offset) + raw).decode()
        parts.append(text[first : (None, -3, -2)[(len(raw) + offset) % 3]])
    return [part for part in parts if part]


def _dashed(path: str, modifiers: Sequence[str], text: str) -> list[list[Piece]]:
    """Return the text with each dash before a word in each of its forms, if ``windash`` is given."""
    if "windash" not in modifiers:
        return [pieces_of(text)]
    parts = _DASH.split(text)
    if len(parts) > _MAX_DASHES + 1:
        raise InexpressibleError(path, f"windash with more than {_MAX_DASHES} dashes cannot be expressed")
    combinations = product(_DASHES, repeat=len(parts) - 1)
    return [
        pieces_of(parts[0] + "".join(dash + part for dash, part in zip(dashes, parts[1:], strict=True)))
        for dashes in combinations
    ]


_TOKENS = re.compile(r"\\([*?\\])|([*?])", re.DOTALL)


def pieces_of(text: str) -> list[Piece]:
    """Return a Sigma text as literal texts and wildcards."""
    pieces: list[Piece] = []
    literal, at = "", 0
    for token in _TOKENS.finditer(text):
        literal += text[at : token.start()] + (token[1] or "")
        at = token.end()
        if token[2]:
            pieces += [literal, _WILDCARDS[token[2]]] if literal else [_WILDCARDS[token[2]]]
            literal = ""
    literal += text[at:]
    return [*pieces, literal] if literal else pieces


_WILDCARDS: Final[dict[str, Piece]] = {"*": ANY, "?": ONE}


def _pattern(pieces: Sequence[Piece]) -> str:
    """Return the pattern of pieces; stars in a row are one."""
    written: list[str] = []
    for piece in pieces:
        text = escape(piece) if isinstance(piece, str) else piece.value
        if text != "*" or not written or written[-1] != "*":
            written.append(text)
    return "".join(written)
