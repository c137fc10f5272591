"""The columns that JSON values have, as the DDL of a route's ``value: {format: json, schema: …}``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Shape: TypeAlias = "str | dict[str, Shape] | list[Shape]"
"""The name of a type, empty where only null was seen; the fields of a struct; the one shape of an array's elements."""

_UNKNOWN = ""
_ANY = "VARIANT"
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_LONG_BOUND = 1 << 63


def columns_of(objects: Iterable[Mapping[str, object]]) -> str:
    """Return columns that fit all of these objects; ``VARIANT`` for fields of several types or without values.

    >>> columns_of([{"n": 1, "town": "Oulu"}, {"n": 1.5, "tags": ["a"], "at": {"x": None}}])
    'n DOUBLE, town STRING, tags ARRAY<STRING>, at STRUCT<x: VARIANT>'
    """
    whole = _common(objects)
    return ", ".join(f"{_name(name)} {_ddl(shape)}" for name, shape in whole.items()) if isinstance(whole, dict) else ""


def _shape_of(value: object) -> Shape:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -_LONG_BOUND <= value < _LONG_BOUND else _ANY
        case float():
            return "DOUBLE"
        case str():
            return "STRING"
        case list():
            return [_common(value)]
        case dict():
            return {str(name): _shape_of(inner) for name, inner in value.items()}
    return _UNKNOWN


def _common(values: Iterable[object]) -> Shape:
    """Return the shape that all of them fit into."""
    shape: Shape = _UNKNOWN
    for value in values:
        shape = _merged(shape, _shape_of(value))
    return shape


def _merged(one: Shape, other: Shape) -> Shape:
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys((*one, *other))
        return {name: _merged(one.get(name, _UNKNOWN), other.get(name, _UNKNOWN)) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    numbers = ("BIGINT", "DOUBLE")
    return "DOUBLE" if one in numbers and other in numbers else _ANY


def _ddl(shape: Shape) -> str:
    if isinstance(shape, list):
        return f"ARRAY<{_ddl(shape[0])}>"
    if isinstance(shape, dict):
        fields = ", ".join(f"{_name(name)}: {_ddl(inner)}" for name, inner in shape.items())
        return f"STRUCT<{fields}>" if fields else _ANY
    return shape or _ANY


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
