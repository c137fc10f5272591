"""The schema that the elements of a literal array or map share, and the elements under it (Connect's ``Values``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.records.scalars import Float32, Int8, Int16, Int32, Moment
from turnout.records.schema import DATE, TIME, TIMESTAMP, Schema
from turnout.records.types import DynamicValue, Value
from turnout.transforms.java.number import double, low_bits, single

_WIDENING = ("int8", "int16", "int32", "int64", "float32", "float64")
_KINDS: Mapping[str, tuple[int, Callable[[int], int]]] = {
    "int8": (8, Int8), "int16": (16, Int16), "int32": (32, Int32), "int64": (64, int),
}  # fmt: skip


class ElementMisfit(Exception):  # noqa: N818 - a signal to the reader of literals, never seen outside
    """Raised when an element cannot be brought under the common schema: the literal is a string then."""


def merged(schemas: Sequence[Schema | None]) -> Schema | None:
    """Return the common schema of all elements after widening; None if they have none. Nulls are ignored."""
    common: Schema | None = None
    for schema in schemas:
        if schema is None:
            continue
        if common is None or schema.type == common.type:
            # Of one type the later one counts, whatever else is different.
            common = schema
        elif schema.type in _WIDENING and common.type in _WIDENING:
            common = max(common, schema, key=lambda candidate: _WIDENING.index(candidate.type))
        else:
            return None
    return common


def aligned(schema: Schema, value: Value) -> Value:
    """Return the element converted to the common schema; its class carries its width.

    Raises:
        ElementMisfit: it cannot be.
    """
    if value is None:
        raise ElementMisfit
    if schema.name in (DATE, TIME, TIMESTAMP):
        if isinstance(value, Moment):
            return value
        whole = _integer(value, 64)
        if schema.name == TIME and not 0 <= whole <= MILLISECONDS_PER_DAY:
            raise ElementMisfit
        return Moment(whole * MILLISECONDS_PER_DAY if schema.name == DATE else whole)
    if schema.type in _KINDS:
        bits, kind = _KINDS[schema.type]
        return kind(_integer(value, bits))
    if schema.type == "float32":
        return Float32(single(double(_number(value))))
    if schema.type == "float64":
        return double(_number(value))
    return value


def _number(value: Value) -> int | float | Decimal:
    if isinstance(value, Moment) or not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise ElementMisfit
    return value


def _integer(value: Value, bits: int) -> int:
    number = _number(value)
    return low_bits(Decimal(number), bits)


def plain(schema: Schema | None, value: DynamicValue) -> DynamicValue:
    """Return the value as a batch holds it: plain Python if its width is that of the schema."""
    if schema is None or value is None:
        return value
    if isinstance(value, list):
        return [plain(schema.values, item) for item in value]
    if isinstance(value, dict):
        return {plain(schema.keys, key): plain(schema.values, item) for key, item in value.items()}
    if schema.type in _KINDS and type(value) is _KINDS[schema.type][1]:
        return int(value)
    if schema.type == "float32" and type(value) is Float32:
        return float(value)
    return value
