"""Readers of numbers, texts, times and bytes in JSON: as a declared type, or as Connect's JsonConverter reads them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from ctypes import c_float
from datetime import date, datetime
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Annotated, Final, TypeAlias

import msgspec

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.codecs.moments import day_of, moment_of, read_date, read_timestamp
from turnout.codecs.nodes import JsonType, Misfit, Node, Slow, each, json_of, slow_node
from turnout.records import BigInt, Moment, Schema
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.types import DynamicValue, Value

Leaf: TypeAlias = Callable[[Schema, int], Node]
"""Builds the reader of a primitive schema; the number is a decimal's precision."""

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NOT_FINITE: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "+INF": float("inf"),
    "-Infinity": float("-inf"),
    "-INF": float("-inf"),
}
EXACT: Final = Context(prec=10_000_000, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Moves a decimal's point without rounding it."""

LARGEST: Final = 100_000
"""The largest scale and exponent of a decimal that is worked with; more is an attack, not a number."""


def _schemaless_type() -> JsonType:
    """Return msgspec's type for schemaless data: it refuses the rare integers beyond 64 bits, down to some depth."""
    integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    kind: JsonType = str | integer | float | bool | None
    scalar = kind
    for _ in range(8):
        kind = scalar | list[kind] | dict[str, kind]
    return kind


Schemaless: Final = _schemaless_type()


def read_schemaless(text: bytes) -> Value:
    """Return JSON as a schemaless value; an integer beyond 64 bits is a `BigInt`, a number beyond a double an infinity.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        value = json_of(text)
    except msgspec.ValidationError:
        # A number that a double cannot hold; what else would be wrong, json finds as well.
        value = json.loads(text, parse_constant=_refuse)
    return _widened(value)


def _refuse(name: str) -> Value:
    raise ValueError(name)


def _widened(value: Value) -> Value:
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else BigInt(value)
    if type(value) is dict:
        return {key: _widened(item) for key, item in value.items()}
    if type(value) is list:
        return [_widened(item) for item in value]
    return value


def _parsed(text: bytes, expected: str) -> DynamicValue:
    try:
        return json_of(text)
    except (ValueError, RecursionError):
        raise Misfit(expected, text) from None


def _integer(bits: int) -> tuple[JsonType, Slow]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    expected = f"an integer of {bits} bits"

    def slow(text: bytes) -> int:
        value = _parsed(text, expected)
        if type(value) is not int or not low <= value <= high:
            raise Misfit(expected, text)
        return value

    return Annotated[int, msgspec.Meta(ge=low, le=high)], slow


def _single(value: float) -> float:
    return c_float(value).value


def _slow_float(text: bytes) -> float:
    try:
        value = json_of(text)
    except msgspec.ValidationError:
        # Beyond the range of a double; infinity in Java.
        return float(text)
    except (ValueError, RecursionError):
        raise Misfit("a number", text) from None
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in (int, float):
        raise Misfit("a number", text)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _slow_string(text: bytes) -> str:
    """Return a text unchanged, and the JSON of any other value as it is written."""
    if text[:1] == b'"':
        return str(_parsed(text, "a string"))
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Misfit("UTF-8", text) from None


def _slow_boolean(text: bytes) -> bool:
    if text not in (b"true", b"false"):
        raise Misfit("true or false", text)
    return text == b"true"


def _slow_bytes(text: bytes) -> bytes:
    value = _parsed(text, "base64")
    try:
        if type(value) is not str:
            raise Misfit("base64", text)
        return b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise Misfit("base64", text) from None


def _slow_schemaless(text: bytes) -> Value:
    try:
        return read_schemaless(text)
    except (ValueError, RecursionError):
        raise Misfit("JSON", text) from None


def _moment_reader(read: Callable[[str], Moment], expected: str) -> Slow:
    def slow(text: bytes) -> Moment:
        value = _parsed(text, expected)
        try:
            if type(value) is str:
                return read(value)
        except ValueError:
            pass
        raise Misfit(expected, text)

    return slow


def _slow_timestamp(text: bytes) -> Moment:
    """Return a text, or seconds as Spark has them."""
    if text[:1] == b'"':
        moment: Moment = _text_timestamp(text)
        return moment
    value = _parsed(text, "a time")
    if type(value) is not int or not -(2**63) <= value * 1000 < 2**63:
        raise Misfit("a time", text)
    return Moment(value * 1000)


_text_timestamp = _moment_reader(read_timestamp, "a time in ISO 8601")
_slow_date = _moment_reader(read_date, "a date in ISO 8601")


def _decimal(scale: int, digits: int) -> Slow:
    """Return a number, or a text with one, rounded to the scale."""
    expected = f"a decimal of {digits} digits, {scale} of them after the point"
    unit = Decimal(1).scaleb(-scale)
    context = Context(prec=digits, rounding=ROUND_HALF_UP)

    def slow(text: bytes) -> Decimal:
        try:
            number = _number(text)
            if number.adjusted() > digits:
                raise Misfit(expected, text)
            return number.quantize(unit, context=context)
        except (InvalidOperation, ValueError):
            raise Misfit(expected, text) from None

    return slow


def _number(text: bytes) -> Decimal:
    """Return the number that a JSON number is, or a text, which may group its digits by commas."""
    if text[:1] == b'"':
        digits = str(json_of(text)).replace(",", "")
        if "_" in digits or digits != digits.strip():
            raise ValueError(digits)
        number = Decimal(digits)
    else:
        number = msgspec.json.decode(text, type=Decimal)
    if not number.is_finite():
        raise ValueError(text)
    return number


_TEXTS: Final[Mapping[str, tuple[JsonType, Slow]]] = {
    **{name: _integer(bits) for name, bits in _BITS.items()},
    "float64": (float, _slow_float),
    "boolean": (bool, _slow_boolean),
    "string": (str, _slow_string),
    "bytes": (bytes, _slow_bytes),
    ANY: (Schemaless, _slow_schemaless),
}


def _plain(schema: Schema) -> Node:
    """Return the node that both notations share."""
    if schema.type == "float32":
        return Node(float, msgspec.NODEFAULT, each(_single), lambda text: _single(_slow_float(text)), kind="float32")
    strict, slow = _TEXTS[schema.type]
    return Node(strict, msgspec.NODEFAULT, None, slow, kind="" if schema.type in ("bytes", ANY) else schema.type)


def declared_leaf(schema: Schema, digits: int) -> Node:
    """Return a value as a declared type has it: times in ISO 8601, decimals as numbers."""
    if schema.logical == DECIMAL:
        # msgspec's own reader of decimals is more lenient than it may be.
        return slow_node(_decimal(schema.scale, digits))
    if schema.logical == TIMESTAMP:
        return Node(datetime, msgspec.NODEFAULT, each(moment_of), _slow_timestamp)
    if schema.logical == DATE:
        return Node(date, msgspec.NODEFAULT, each(day_of), _slow_date)
    return _plain(schema)


def wire_leaf(schema: Schema, _digits: int) -> Node:
    """Return a value as JsonConverter writes it: times as numbers, decimals as the bytes of their unscaled integer."""
    logical = schema.logical
    if logical == DECIMAL:
        scale = schema.scale
        if abs(scale) > LARGEST:
            raise ValueError(f"expected a decimal's scale of at most {LARGEST}, found {scale}")

        def decimal(unscaled: bytes) -> Decimal:
            return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, EXACT)

        return Node(bytes, msgspec.NODEFAULT, each(decimal), _wire_decimal(decimal))
    if logical in (DATE, TIME, TIMESTAMP):
        strict, slow = _TEXTS[schema.type]
        convert: Callable[[int], Moment] = _of_day if logical == DATE else Moment
        return Node(strict, msgspec.NODEFAULT, each(convert), lambda text: convert(slow(text)))
    return _plain(schema)


def _of_day(days: int) -> Moment:
    return Moment(days * MILLISECONDS_PER_DAY)


def _wire_decimal(decimal: Callable[[bytes], Decimal]) -> Slow:
    def slow(text: bytes) -> Decimal:
        if text[:1] == b'"':
            return decimal(_slow_bytes(text))
        try:
            number = _number(text)
        except ValueError:
            raise Misfit("a decimal", text) from None
        if abs(number.adjusted()) > LARGEST:
            raise Misfit("a decimal", text)
        return number

    return slow
