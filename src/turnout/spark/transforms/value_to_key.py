"""ValueToKey."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, require
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed, struct_of
from turnout.spark.variants import or_json_null
from turnout.transforms.schema import Field, Schema
from turnout.transforms.value_to_key import ValueToKey

__all__: list[str] = []

_PURPOSE = "copying fields from value to key"


@compile_transform.register
def _(transform: ValueToKey, record: Record) -> Step:
    value = record.value
    step = Step(record)
    if isinstance(value, Object):
        need_map(step, value, _PURPOSE, null_fails=True)
        names = dict.fromkeys(transform.fields)
        parts = [(name, or_json_null(value.get(name))) for name in names]
        step.record = replace(record, key=Typed(F.to_variant_object(struct_of(parts)), None))
    elif need_struct(step, value, _PURPOSE, null_fails=True):
        key = _struct(transform, value, step)
        if key is not None:
            step.record = replace(record, key=key)
    return step


def _struct(transform: ValueToKey, value: Typed, step: Step) -> Typed | None:
    assert value.schema is not None
    present = value.present
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
    return Struct(columns, None, Schema("struct", fields=tuple(fields)))
