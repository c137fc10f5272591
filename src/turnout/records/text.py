"""Text of any value, as in a header's bytes and for conditions."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from json.encoder import encode_basestring as _quoted
from typing import Final, Self, cast

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.multivalued import Metadata, metadata_of, texts_or_none
from turnout.base.startup import np
from turnout.records.schema import DATE, TIME, Float32, Moment, Schema, Struct
from turnout.records.types import DynamicValue


def text_of(value: object, schema: Schema | None = None) -> str | None:
    """Return the text of a value, None for null and for bytes that are not UTF-8.

    Strings as they are, numbers and booleans as Java prints them, times in ISO 8601 with a Z, anything nested as JSON.
    """
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Moment):
        return iso_of(value, schema)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, NumberText):
        return value.text
    if isinstance(value, float):
        single = isinstance(value, Float32) or (schema is not None and schema.type == "float32")
        return java_float(value) if single else java_double(value)
    if isinstance(value, Decimal):
        return java_decimal(value)
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return None
    return json_text(value, schema)


class NumberText(float):
    """Number in a text of JSON, whose own text is as it is written there: that of `text_of` in one that it made.

    >>> text_of(NumberText("1.50")), NumberText("1.50") == 1.5
    ('1.50', True)
    """

    text: str

    def __new__(cls, text: str) -> Self:
        """Return the number that a text of JSON is."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def json_text(value: DynamicValue, schema: Schema | None = None) -> str:
    """Return a value as JSON, in which each number and time has the text that it has by itself."""
    if isinstance(value, Struct):
        return json_text(value.fields, value.schema)
    if isinstance(value, Mapping):
        if schema is not None and schema.type == "struct":
            entries: Iterable[tuple[str, DynamicValue, Schema | None]] = _fields(value, schema)
        else:
            inner = schema.values if schema is not None else None
            entries = [(str(text_of(key)), item, inner) for key, item in value.items()]
        return f"{{{','.join(f'{_quoted(name)}:{json_text(item, own)}' for name, item, own in entries)}}}"
    if isinstance(value, list | tuple):
        inner = schema.values if schema is not None else None
        return f"[{','.join([json_text(item, inner) for item in value])}]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f'"{b64encode(bytes(value)).decode("ascii")}"'
    if value is None:
        return "null"
    text = text_of(value, schema) or ""
    bare = isinstance(value, int | float | Decimal) and not isinstance(value, Moment) and math.isfinite(value)
    return text if bare else _quoted(text)


def kind_of_type(type_: type) -> str:
    """Return the kind of a type's values: boolean, number or text.

    Times, bytes, objects, arrays and null are of none, and give an empty text.

    >>> [kind_of_type(type_) for type_ in (str, Float32, Decimal, bool, Moment, bytes, dict)]
    ['text', 'number', 'number', 'boolean', '', '', '']
    """
    if issubclass(type_, str):
        return "text"
    if issubclass(type_, bool):
        return "boolean"
    return "number" if issubclass(type_, int | float | Decimal) and not issubclass(type_, Moment) else ""


def texts_of_values(metadata: Mapping[str, object]) -> Metadata:
    """Return metadata for conditions on a route: each value as its text, without values that have none.

    A list or a tuple is several values, those of its elements.

    >>> texts_of_values({"total": 120, "urgent": True, "note": None, "sku": ["A1", 2]})
    {'total': '120', 'urgent': 'true', 'sku': ('A1', '2')}
    """
    if _STR.issuperset(map(type, metadata.values())):
        return cast("Mapping[str, str]", metadata)
    texts = (
        (key, texts_or_none(map(text_of, value)) if isinstance(value, list | tuple) else text_of(value))
        for key, value in metadata.items()
    )
    return metadata_of({key: text for key, text in texts if text is not None})


def texts_of_all(messages: Sequence[Mapping[str, object]]) -> Sequence[Metadata]:
    """Return `texts_of_values` of each message, in less time where they are all texts."""
    types = list(map(type, chain.from_iterable([message.values() for message in messages])))
    # Counting compares by identity, in less time than a set takes.
    if types.count(str) == len(types):
        return cast("Sequence[Mapping[str, str]]", messages)
    return [texts_of_values(message) for message in messages]


_STR: Final = frozenset({str})


def readable(raw: bytes | None) -> str | None:
    """Decode bytes as UTF-8 for people to read; invalid bytes become U+FFFD, and None stays None."""
    return None if raw is None else raw.decode("utf-8", "replace")


def _fields(value: Mapping[str, DynamicValue], schema: Schema) -> Iterator[tuple[str, DynamicValue, Schema]]:
    """Yield the fields of a struct but for those that are absent."""
    for field in schema.fields:
        item = value.get(field.name)
        if item is not None or not field.schema.omissible:
            yield field.name, item, field.schema


def json_of(value: object, schema: Schema | None = None) -> DynamicValue:
    """The value as the standard library's JSON takes it: times in ISO 8601, bytes in base64, decimals as numbers."""
    if isinstance(value, Struct):
        return json_of(value.fields, value.schema)
    if isinstance(value, Mapping):
        if schema is not None and schema.type == "struct":
            return {name: json_of(item, own) for name, item, own in _fields(value, schema)}
        inner = schema.values if schema is not None else None
        return {str(text_of(key)): json_of(item, inner) for key, item in value.items()}
    if isinstance(value, list | tuple):
        inner = schema.values if schema is not None else None
        return [json_of(item, inner) for item in value]
    if isinstance(value, Moment):
        return iso_of(value, schema)
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(bytes(value)).decode("ascii")
    if isinstance(value, Decimal):
        return float(value) if value.as_tuple().exponent else int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return text_of(value, schema)
    return value


def iso_of(moment: int, schema: Schema | None = None) -> str:
    """Format a date object as ISO 8601: a date for the schema Date, a time of day for Time, else both."""
    logical = schema.logical if schema is not None else None
    days, rest = divmod(int(moment), MILLISECONDS_PER_DAY)
    clock = f"{rest // 3_600_000:02}:{rest // 60_000 % 60:02}:{rest // 1000 % 60:02}.{rest % 1000:03}Z"
    if logical == TIME:
        return clock
    date = _with_sign(str(np.datetime64(days, "D")))
    return date if logical == DATE else f"{date}T{clock}"


def _with_sign(date: str) -> str:
    """Format a NumPy date for ISO 8601: years of at least four digits, a sign if negative or longer."""
    digits, _, rest = date.lstrip("-").partition("-")
    sign = "-" if date.startswith("-") else "+" if len(digits) > 4 else ""
    return f"{sign}{digits:0>4}-{rest}"


def java_double(number: float) -> str:
    """``Double.toString``: a point always, an exponent below 1e-3 and from 1e7 on."""
    return _java(repr(float(number)), number)


def java_float(number: float) -> str:
    """``Float.toString`` of a number that is rounded to single precision already."""
    return _java(str(np.float32(number)), number)


_FEW_BITS: Final = 1e-37
"""Numbers above it are so precise, as floats too, that one digit which names one is nearest to it as well."""


def _java(shortest: str, number: float) -> str:
    """Java's layout of the shortest digits that name a number."""
    if not math.isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    digits, exponent = _digits(shortest.lstrip("-"))
    if not digits:
        return f"{sign}0.0"
    if len(digits) == 1 and abs(number) < _FEW_BITS:
        # Of two digits those that are nearest to the number: 4.9E-324, which 5E-324 names as well.
        digits, exponent = _digits(f"{abs(number):.1e}")
    if 1e-3 <= abs(number) < 1e7:
        if exponent <= 0:
            return f"{sign}0.{'0' * -exponent}{digits}"
        whole = digits[:exponent].ljust(exponent, "0")
        return f"{sign}{whole}.{digits[exponent:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def _digits(text: str) -> tuple[str, int]:
    """The digits of a number without zeros at their ends, and where its point is, counted from before the first."""
    mantissa, _, power = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    both = whole + fraction
    led = both.lstrip("0")
    return led.rstrip("0"), len(whole) - (len(both) - len(led)) + int(power or 0)


def java_decimal(number: Decimal) -> str:
    """``BigDecimal.toString``: with its scale, scientific where that is negative or the number below 1e-6."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    coefficient = "".join(map(str, digits)) or "0"
    adjusted = exponent + len(coefficient) - 1
    lead = "-" if sign and coefficient.strip("0") else ""
    if exponent <= 0 and adjusted >= -6:
        if exponent == 0:
            return lead + coefficient
        padded = coefficient.rjust(-exponent + 1, "0")
        return f"{lead}{padded[:exponent]}.{padded[exponent:]}"
    point = f".{coefficient[1:]}" if len(coefficient) > 1 else ""
    return f"{lead}{coefficient[0]}{point}E{adjusted:+d}"
