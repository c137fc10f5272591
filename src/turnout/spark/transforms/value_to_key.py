"""ValueToKey."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, Typed, require, struct_of
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.variants import get, null_variant
from turnout.transforms.schema import Field, Schema
from turnout.transforms.value_to_key import ValueToKey

__all__: list[str] = []

_PURPOSE = "copying fields from value to key"


@compile_transform.register
def _(transform: ValueToKey, record: Record) -> Step:
    value = record.value
    step = Step(record)
    if value.schema is None:
        need_map(step, value, _PURPOSE, null_fails=True)
        names = dict.fromkeys(transform.fields)
        parts = [(name, F.coalesce(get(value.column, name), null_variant())) for name in names]
        step.record = replace(record, key=Typed(F.to_variant_object(struct_of(parts)), None))
    elif need_struct(step, value, _PURPOSE, null_fails=True):
        key = _struct(transform, value, step)
        if key is not None:
            step.record = replace(record, key=key)
    return step


def _struct(transform: ValueToKey, value: Typed, step: Step) -> Typed | None:
    assert value.schema is not None
    present = value.column.isNotNull()
    fields: list[Field] = []
    columns: list[tuple[str, Column]] = []
    for name in transform.fields:
        schema = value.schema.field(name)
        if schema is None:
            step.fail(present, f"Field does not exist: {name}")
            return None
        if any(field.name == name for field in fields):
            builder = "org.apache.kafka.connect.errors.SchemaBuilderException"
            step.fail(present, f'Cannot create field because of field name duplication "{name}"', builder)
            return None
        column = value.field(name, defaults=transform.replace_null_with_default).column
        require(step, present, name, column, schema)
        fields.append(Field(name, schema))
        columns.append((name, column))
    return Typed(struct_of(columns), Schema("struct", fields=tuple(fields)))
