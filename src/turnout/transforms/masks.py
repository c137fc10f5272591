"""Replacement values of MaskField: the zero of a type, or the configured replacement converted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from turnout.errors import RecordError
from turnout.records import BigInt, Float32, Int8, Int16, Int32, Moment, Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP
from turnout.transforms.base import Errors
from turnout.transforms.java.number import double, low_bits, parsed_decimal, parsed_integer, single
from turnout.transforms.storing import convert

_ZEROS: dict[type, Any] = {
    int: 0,
    Int8: Int8(0),
    Int16: Int16(0),
    Int32: Int32(0),
    BigInt: BigInt(0),
    float: 0.0,
    Float32: Float32(0.0),
    bool: False,
    str: "",
    Decimal: Decimal(0),
    Moment: Moment(0),
    list: [],
    dict: {},
}
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_WIDTHS: dict[type, int] = {int: 64, Int8: 8, Int16: 16, Int32: 32}
_MOMENTS = (DATE, TIME, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class FieldMask:
    """Mask for field values.

    Attributes:
        replacement: its text, None for the zero of each type.
    """

    replacement: str | None

    def of_typed(self, column: Sequence[Any], schema: Schema, errors: Errors) -> Sequence[Any]:
        """The masked column of a field of that schema; nulls stay, and places that cannot be masked are noted."""
        try:
            masked = self._of_schema(schema)
        except RecordError as error:
            errors.update((place, error) for place, value in enumerate(column) if value is not None)
            return column
        if None in column:
            return [None if value is None else masked for value in column]
        return [masked] * len(column)

    def of_any(self, column: Sequence[Any], errors: Errors) -> Sequence[Any]:
        """The same for schemaless values, each by its own type."""
        try:
            kinds = set(map(type, column)) - {type(None)}
            masked: dict[type, Any] = {kind: self._of_type(kind) for kind in kinds}
        except RecordError:
            return convert(column, lambda value: self._of_type(type(value)), errors)
        return [masked.get(type(value)) for value in column]

    def _of_schema(self, schema: Schema) -> Any:
        """The masked value of a schema's type; a logical type counts by its name."""
        if schema.name in _MOMENTS:
            return self._of_type(Moment)
        if schema.name == DECIMAL:
            return self._of_type(Decimal)
        text = self.replacement
        if schema.type in _BITS:
            return 0 if text is None else low_bits(_number(text), _BITS[schema.type])
        if schema.type == "float32":
            return 0.0 if text is None else single(double(_number(text)))
        kinds: dict[str, type] = {"float64": float, "boolean": bool, "string": str, "array": list, "map": dict}
        kind = kinds.get(schema.type)
        if kind is None:
            raise RecordError(f"Cannot mask value of type: {schema.type}")
        return self._of_type(kind)

    def _of_type(self, kind: type) -> Any:
        """The masked value of a Python type."""
        text = self.replacement
        if text is None:
            if kind not in _ZEROS:
                raise RecordError(f"Cannot mask value of type: {kind.__name__}")
            return _ZEROS[kind]
        if kind is str:
            return text
        if kind in _WIDTHS:
            return kind(low_bits(_number(text), _WIDTHS[kind]))
        if kind is float:
            return double(_number(text))
        if kind is Float32:
            return Float32(single(double(_number(text))))
        if kind is Decimal:
            return _number(text)
        if kind is BigInt:
            whole = parsed_integer(text)
            if whole is None:
                raise _no_number(text)
            return BigInt(whole)
        raise RecordError(f"Cannot mask value of type {kind.__name__} with custom replacement.")


def _number(text: str) -> Decimal:
    number = parsed_decimal(text)
    if number is None:
        raise _no_number(text)
    return number


def _no_number(text: str) -> RecordError:
    return RecordError(f"Unable to convert {text} to number")
