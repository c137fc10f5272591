"""The value of InsertHeader's literal: Connect's ``Values.parseString``, typing and oddities included."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from turnout.transforms.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

__all__ = ["Literal", "parse_literal"]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value and the schema that goes with it, None for neither. Date objects are milliseconds."""

    schema: Schema | None
    value: Any


_STRING = Schema("string")
_NULL = Literal(None, None)
_TOKEN = re.compile(r'(?:\\.|[^:,{}\[\]"\\])+|[:,{}\[\]"]|\\$', re.DOTALL)
_DELIMITERS = frozenset(':,{}[]"')
_WIDENING = ("int8", "int16", "int32", "int64", "float32", "float64")
_DATE_TEXT = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})")
_TIME_TEXT = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d{1,3})Z")
_BOTH_TEXT = re.compile(_DATE_TEXT.pattern + "T" + _TIME_TEXT.pattern)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class _NotALiteral(Exception):  # noqa: N818 - a signal inside this module, never seen outside
    """Raised inside a bracket when the text is no array or map after all."""


def parse_literal(text: str) -> Literal:
    """The value that *text* stands for, with the narrowest schema that holds it.

    After a number or a closing bracket the rest of the text is ignored, as Connect does.
    """
    if not text:
        return Literal(_STRING, "")
    tokens = _TOKEN.findall(text)
    if tokens[0] in ("[", "{"):
        try:
            return _Reader(tokens).container()
        except (_NotALiteral, IndexError):
            return Literal(_STRING, text)
    if text == "null":
        return _NULL
    if text in ("true", "false"):
        return Literal(Schema("boolean"), text == "true")
    return _temporal("".join(tokens[:5])) or _temporal(tokens[0]) or _number(tokens[0]) or Literal(_STRING, text)


def _temporal(text: str) -> Literal | None:
    """A date, a time or a timestamp, if the text has the length and the shape of one."""
    plain = text.replace("\\:", ":")
    if not plain[:1].isdigit():
        return None
    for length, shape, kind in ((10, _DATE_TEXT, DATE), (13, _TIME_TEXT, TIME), (24, _BOTH_TEXT, TIMESTAMP)):
        found = shape.match(plain)
        if len(plain) == length and found:
            return Literal(
                Schema("int64" if kind == TIMESTAMP else "int32", name=kind, version=1), _millis(found, kind)
            )
    return None


def _millis(found: re.Match[str], kind: str) -> int:
    """Epoch milliseconds, with the lenience of SimpleDateFormat: month 13 is January of the next year."""
    numbers = [int(number) for number in found.groups()]
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    total = timedelta()
    if kind in (DATE, TIMESTAMP):
        year, month, day = numbers[:3]
        carried = year * 12 + month - 1
        moment = datetime(max(carried // 12, 1), carried % 12 + 1, 1, tzinfo=UTC)
        total += timedelta(days=day - 1)
    if kind in (TIME, TIMESTAMP):
        hour, minute, second, milli = numbers[-4:]
        total += timedelta(hours=hour, minutes=minute, seconds=second, milliseconds=milli)
    return (moment + total - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _number(text: str) -> Literal | None:
    """The number, in the narrowest type: int8 … int64, float32, float64, decimal."""
    if not (text[:1].isdigit() or text[:1] in ("+", "-")) or not _NUMBER.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if number == number.to_integral_value() and -(1 << 63) <= number < 1 << 63:
        whole = int(number)
        bits = next(bits for bits in (8, 16, 32, 64) if -(1 << bits - 1) <= whole < 1 << bits - 1)
        return Literal(Schema(f"int{bits}"), whole)
    scale = -int(number.as_tuple().exponent)
    if scale != 0:
        narrow = _float32(float(number))
        if narrow is not None:
            return Literal(Schema("float32"), narrow)
        wide = float(number)
        if wide not in (float("inf"), float("-inf")):
            return Literal(Schema("float64"), wide)
    schema = Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", str(scale)),))
    return Literal(schema, number)


def _float32(number: float) -> float | None:
    """The nearest float32, None where that is infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return None


class _Reader:
    """Reads arrays and maps off a list of tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def container(self) -> Literal:
        self.at += 1
        return self._array() if self.tokens[self.at - 1] == "[" else self._map()

    def _skip_blanks(self) -> str:
        """The next token that is more than white space, without taking it."""
        while not self.tokens[self.at].strip():
            self.at += 1
        return self.tokens[self.at]

    def _array(self) -> Literal:
        items: list[Literal] = []
        while self._skip_blanks() != "]":
            items.append(self._item())
            if self._skip_blanks() == ",":
                self.at += 1
            elif self.tokens[self.at] != "]":
                raise _NotALiteral
        self.at += 1
        schema = Schema("array", values=_common(items))
        return Literal(schema, [item.value for item in items])

    def _map(self) -> Literal:
        keys: list[Literal] = []
        items: list[Literal] = []
        while self._skip_blanks() != "}":
            if self.tokens[self.at] == ",":
                self.at += 1
                continue
            key = self._item()
            if key.value is None or self._skip_blanks() != ":":
                raise _NotALiteral
            self.at += 1
            keys.append(key)
            items.append(self._item())
        self.at += 1
        schema = Schema("map", keys=_common(keys), values=_common(items))
        return Literal(schema, dict(zip((key.value for key in keys), (item.value for item in items), strict=True)))

    def _item(self) -> Literal:
        word = self._skip_blanks()
        if word in ("[", "{"):
            return self.container()
        if word == '"':
            return self._string()
        if word in _DELIMITERS:
            raise _NotALiteral
        for count in (5, 1):
            joined = "".join(self.tokens[self.at : self.at + count]).strip()
            found = _temporal(joined)
            if found:
                self.at += count
                return found
        self.at += 1
        word = word.strip()
        if word == "null":
            return _NULL
        if word in ("true", "false"):
            return Literal(Schema("boolean"), word == "true")
        number = _number(word)
        if number is None:
            raise _NotALiteral
        return number

    def _string(self) -> Literal:
        self.at += 1
        text: list[str] = []
        while self.tokens[self.at] != '"':
            text.append(self.tokens[self.at].replace('\\"', '"'))
            self.at += 1
        self.at += 1
        joined = "".join(text)
        return _temporal(joined) or Literal(_STRING, joined)


def _common(items: Sequence[Literal]) -> Schema | None:
    """The schema that all elements share after widening, None if there is none."""
    schema: Schema | None = None
    for item in items:
        if item.schema is None:
            # A null among typed elements makes Connect fall back to strings.
            schema = _STRING if schema is not None else None
            continue
        merged = item.schema if schema is None else _merge(schema, item.schema)
        if merged is None:
            return None
        schema = merged
    return schema


def _merge(left: Schema, right: Schema) -> Schema | None:
    if left == right:
        return right
    if left.type in _WIDENING and right.type in _WIDENING and not left.logical and not right.logical:
        return max(left, right, key=lambda schema: _WIDENING.index(schema.type))
    return right if left.type == right.type and left.name == right.name else None
