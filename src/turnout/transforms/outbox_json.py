"""Schemas and values of JSON texts in an outbox's payload, as EventRouter derives them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from turnout.errors import RecordError
from turnout.records import Field, Schema
from turnout.records.types import Column, DynamicValue

_TEXT, _FLAG, _INT, _LONG, _DOUBLE, _BYTES = (
    Schema(name, optional=True) for name in ("string", "boolean", "int32", "int64", "float64", "bytes")
)
_INT_BITS, _LONG_BITS = 31, 63
_MAX_DEPTH: Final = 500


def parse_payload(text: str) -> object:
    """Return the value of a JSON object or array.

    Raises:
        ValueError: the text is neither.
    """
    if not text.startswith(("{", "[")):
        raise ValueError("the text begins with neither { nor [")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None


class PayloadSchemas:
    """Derivation of schemas from JSON values.

    Args:
        nulls: whether a null is a field of optional bytes; otherwise it is no field.
    """

    def __init__(self, *, nulls: bool) -> None:
        self._null = _BYTES if nulls else None

    def expanded(self, payload: object, name: str) -> tuple[Schema, DynamicValue, object]:
        """Return the schema of a JSON object in a text, its value with every field of that, and the object itself.

        Args:
            payload: the text.
            name: name of the schema.

        Raises:
            ValueError: it is no text of JSON.
            RecordError: it is no object, or has values that no schema describes.
        """
        if not isinstance(payload, str):
            raise RecordError(f"a payload is no text: {type(payload).__name__}")
        value = parse_payload(payload)
        schema = self.of(value, name)
        if schema is None or schema.type != "struct":
            raise RecordError("a payload is an array, and only objects become values")
        return schema, with_fields(value, schema), value

    def of(self, value: object, name: str | None, depth: int = 0) -> Schema | None:
        """Return the schema of a value; None for an empty array and for nulls that are no fields.

        Args:
            value: as `parse_payload` returns it.
            name: name of the schema of an object.
            depth: depth of the value in the text.

        Raises:
            RecordError: an array has values of several types, or the value is nested too deeply.
        """
        if depth > _MAX_DEPTH:
            raise RecordError(f"the payload is nested deeper than {_MAX_DEPTH}")
        if value is None:
            return self._null
        if isinstance(value, dict):
            found = (
                (str(key), self.of(item, f"{name}.{key}" if name else key, depth + 1)) for key, item in value.items()
            )
            fields = tuple(Field(key, schema) for key, schema in found if schema is not None)
            return Schema("struct", optional=True, name=name, fields=fields)
        if isinstance(value, list):
            members = self._members(value, name, depth) if value else None
            return None if members is None else Schema("array", optional=True, values=members)
        return _plain(value)

    def _members(self, values: Column, name: str | None, depth: int) -> Schema:
        present = [value for value in values if value is not None]
        if not present and self._null is not None:
            return self._null
        kinds = {type(value) if isinstance(value, dict | list) else _plain(value) for value in present}
        if len(kinds) != 1:
            found = "values of several types" if kinds else "nulls alone"
            raise RecordError(f"an array of the payload has {found}")
        schemas = [self.of(value, name if isinstance(value, dict) else None, depth + 1) for value in present]
        if not isinstance(present[0], dict):
            if schemas[0] is None:
                raise RecordError("an array of the payload begins with an empty one")
            return schemas[0]
        return _merged([schema for schema in dict.fromkeys(schemas) if schema is not None])


def _merged(schemas: Sequence[Schema]) -> Schema:
    """Return a struct with the fields of all; of two types of a field the first one that is not bytes counts."""
    if len(schemas) == 1:
        return schemas[0]
    fields: dict[str, Schema] = {}
    for schema in schemas:
        for field in schema.fields:
            earlier = fields.get(field.name)
            if earlier is None or (earlier.type == "bytes" and field.schema.type != "bytes"):
                fields[field.name] = field.schema
    return Schema("struct", name=schemas[0].name, fields=tuple(Field(*pair) for pair in fields.items()))


def with_fields(value: DynamicValue, schema: Schema) -> DynamicValue:
    """Return a JSON value with every field of its schema, and with nothing else.

    Raises:
        RecordError: a value does not fit.
    """
    if value is None or schema.type == "bytes":
        if not schema.optional:
            raise RecordError("an array of the payload has a null among objects of several shapes")
        return None
    if schema.type == "struct":
        if not isinstance(value, dict):
            raise RecordError("an array of the payload has values of several types")
        return {field.name: with_fields(value.get(field.name), field.schema) for field in schema.fields}
    if schema.type == "array" and schema.values is not None:
        return [with_fields(item, schema.values) for item in value]
    if _plain(value) != schema:
        raise RecordError(f"expected a value of type {schema.type} in the payload, found {value!r:.60}")
    if schema.type == "float64" and not isinstance(value, float):
        raise RecordError(f"an integer of the payload has more than 64 bits: {value!r:.60}")
    return value


def _plain(value: object) -> Schema:
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, bool):
        return _FLAG
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return _INT if bits <= _INT_BITS else _LONG if bits <= _LONG_BITS else _DOUBLE
    return _DOUBLE
