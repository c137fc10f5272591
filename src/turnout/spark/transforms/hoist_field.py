"""HoistField."""

from __future__ import annotations

from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, require
from turnout.spark.transforms.compile import compile_transform
from turnout.spark.typed import Struct, Typed, struct_of
from turnout.spark.variants import or_json_null
from turnout.transforms.hoist_field import HoistField
from turnout.transforms.schema import Field, Schema

__all__: list[str] = []


@compile_transform.register
def _(transform: HoistField, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    made: Typed
    if side.schema is None:
        inner = or_json_null(side.column)
        made = Typed(F.to_variant_object(struct_of([(transform.field, inner)])), None)
    else:
        if not transform.field:
            step.fail(
                F.lit(True), "fieldName cannot be null.", "org.apache.kafka.connect.errors.SchemaBuilderException"
            )
            return step
        column = side.column
        require(step, F.lit(True), transform.field, column, side.schema)
        schema = Schema("struct", fields=(Field(transform.field, side.schema),))
        made = Struct([(transform.field, column)], None, schema)
    step.record = record.with_side(transform.side, made)
    return step
