"""Random Avro schemas, values of them, and their bytes by fastavro."""

from __future__ import annotations

import io
import json
from itertools import count
from typing import Any

import fastavro
from hypothesis import strategies as st

from turnout.codecs.avro.types import AvroType, parse_schema

_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda item: {"type": "map", "values": item}, inner)
        | st.builds(lambda items: {"type": "record", "fields": items}, st.lists(inner, max_size=4))
        | inner.filter(lambda one: not isinstance(one, list)).map(lambda one: ["null", one])
        | inner.filter(lambda one: not isinstance(one, list)).map(lambda one: [one, "null"])
        | st.just(["null", "string", "long", {"type": "fixed", "size": 2}])
        | st.just({"type": "enum", "symbols": ["A", "B", "C"]})
        | st.integers(0, 5).map(lambda size: {"type": "fixed", "size": size})
    )


def _with_names(schema: Any, numbers: Any) -> Any:
    if isinstance(schema, list):
        return [_with_names(one, numbers) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    if made["type"] in ("record", "enum", "fixed"):
        made["name"] = f"n{next(numbers)}"
    if made["type"] == "record":
        made["fields"] = [
            {"name": f"f{index}", "type": _with_names(one, numbers)} for index, one in enumerate(made["fields"])
        ]
    for inside in ("items", "values"):
        if inside in made:
            made[inside] = _with_names(made[inside], numbers)
    return made


_types = st.recursive(st.sampled_from(_PRIMITIVES) | st.sampled_from(_LOGICAL), _nested, max_leaves=6)

records = st.lists(_types, min_size=1, max_size=6).map(
    lambda items: _with_names({"type": "record", "fields": items}, count())
)
"""Records of all types."""

_LONG = st.integers(-(2**63), 2**63 - 1)
_INT = st.integers(-(2**31), 2**31 - 1)


def values(type_: AvroType) -> st.SearchStrategy[Any]:
    """Values of a type as fastavro takes them, without their logical types."""
    if type_.kind == "record":
        return st.fixed_dictionaries({field.name: values(field.type) for field in type_.fields})
    if type_.kind == "array":
        return st.lists(values(type_.inner[0]), max_size=3)
    if type_.kind == "map":
        return st.dictionaries(st.text(max_size=3), values(type_.inner[0]), max_size=3)
    if type_.kind == "union":
        return st.one_of([values(branch) for branch in type_.inner])
    if type_.kind == "enum":
        return st.sampled_from(type_.symbols)
    if type_.kind == "fixed":
        return st.binary(min_size=type_.size, max_size=type_.size)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": _INT,
        "long": _LONG,
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=5)
        if type_.logical is None
        else st.integers(-(10**9) + 1, 10**9 - 1).map(_unscaled),
        "string": st.text(max_size=5),
    }[type_.kind]


def _unscaled(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def without_logical(schema: Any) -> Any:
    """Return a schema without its logical types."""
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if isinstance(schema, dict):
        return {name: without_logical(value) for name, value in schema.items() if name != "logicalType"}
    return schema


def written(schema: Any, value: Any) -> bytes:
    """Return the bytes of a value by fastavro."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical(schema)), value)
    return file.getvalue()


@st.composite
def batches(draw: st.DrawFn) -> tuple[AvroType, Any, list[bytes]]:
    """Draw a schema and the bytes of some of its values."""
    schema = draw(records)
    type_ = parse_schema(json.dumps(schema))
    found = draw(st.lists(values(type_), min_size=9, max_size=12))
    return type_, schema, [written(schema, value) for value in found]
