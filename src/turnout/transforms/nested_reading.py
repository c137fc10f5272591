"""Columns of fields at paths (KIP-821), in structs with their defaults, and in schemaless objects."""

from __future__ import annotations

from turnout.errors import RecordError
from turnout.records import Block, Field, Schema
from turnout.records.types import Column, NewColumn, Value
from turnout.transforms.base import Errors
from turnout.transforms.nested import FieldPath
from turnout.transforms.struct_fields import default_value, read


def fields_on(schema: Schema, path: FieldPath) -> tuple[Field, ...] | None:
    """Return the fields on the way to a field, the field itself last; None if the schema has none at the path."""
    fields: list[Field] = []
    for step in path:
        inner = schema.field(step) if schema.type == "struct" else None
        if inner is None:
            return None
        fields.append(Field(step, inner))
        schema = inner
    return tuple(fields)


def schema_at(fields: tuple[Field, ...]) -> Schema:
    """Return the schema of the last field; optional where one of its parents may be null.

    >>> city = Field("city", Schema("string"))
    >>> schema_at((Field("place", Schema("struct", optional=True, fields=(city,))), city)).optional
    True
    """
    schema = fields[-1].schema
    loose = not schema.optional and any(parent.schema.optional for parent in fields[:-1])
    return schema.with_(optional=True) if loose else schema


def read_struct(block: Block, fields: tuple[Field, ...], *, defaults: bool) -> Column:
    """Return the column of a field in structs; parents are read with their defaults whatever *defaults* says."""
    last = len(fields) - 1
    column = read(block, fields[0], defaults=last > 0 or defaults)
    for index, field in enumerate(fields[1:], 1):
        column = _fields_of(column, field, defaults=index < last or defaults)
    return column


def read_map(block: Block, path: FieldPath, purpose: str, errors: Errors) -> Column | None:
    """Return the column of a field in schemaless objects; None if they all lack the first step.

    A parent that is no object is an error of its record, a null or missing one has null.
    """
    parent, *others = path
    column = block.columns.get(parent)
    if column is None:
        return None
    for step in others:
        column = [_entry(value, step, parent, purpose, index, errors) for index, value in enumerate(column)]
        parent = step
    return column


def _entry(value: Value, step: str, parent: str, purpose: str, index: int, errors: Errors) -> Value:
    """Return the entry of a map; null has none, and everything else is refused."""
    if type(value) is dict:
        return value.get(step)
    if value is not None:
        message = f"Only Map objects supported in absence of schema for [{purpose}], found another type: {parent}"
        errors.setdefault(index, RecordError(message))
    return None


def _fields_of(column: Column, field: Field, *, defaults: bool) -> NewColumn:
    """Return one field of each struct; a default replaces a null, but not in a struct that is null itself."""
    name = field.name
    default = default_value(field.schema) if defaults else None
    if default is None:
        return [None if struct is None else struct.get(name) for struct in column]
    values = [(struct, None if struct is None else struct.get(name)) for struct in column]
    return [default if value is None and struct is not None else value for struct, value in values]
