"""Schemaless values as what every JSON encoder takes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from decimal import Decimal

import numpy as np

from turnout.records import BigInt, Float32, Int8, Int16, Int32, Moment, Struct
from turnout.records.text import iso_of, text_of
from turnout.records.types import Value

_INTEGERS = (Int8, Int16, Int32, BigInt)


def hook(value: Value) -> Value:
    """Encode a value of a class that msgspec does not support.

    Raises:
        TypeError: when the value has no form in JSON.
    """
    if isinstance(value, Moment):
        return iso_of(value)
    if isinstance(value, _INTEGERS):
        return int(value)
    if isinstance(value, Float32):
        return single(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def builtin_of(value: Value) -> Value:
    """Convert a value to dicts, lists, texts, numbers, booleans and None; slow, but correct for all values.

    Raises:
        TypeError: when something in it has no form in JSON.
    """
    if value is None or type(value) in (bool, str, int, bytes, Decimal):
        return value
    if type(value) is float:
        return finite(value)
    if isinstance(value, Struct):
        # Here, as forms are made of these.
        from turnout.codecs.forms import json_form

        column = json_form(value.schema).column
        return builtin_of(value.fields if column is None else column([value.fields])[0])
    if isinstance(value, Mapping):
        return {_name(key): builtin_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [builtin_of(item) for item in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return hook(value)


def finite(value: float) -> float | str:
    """The number; Java's name of one that JSON has no number for."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def single(value: float) -> float | str:
    """The shortest decimal number that means the same in single precision."""
    return float(str(np.float32(value))) if math.isfinite(value) else finite(value)


def _name(key: Hashable) -> str:
    return "null" if key is None else str(text_of(key))
