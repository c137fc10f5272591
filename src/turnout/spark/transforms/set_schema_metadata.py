"""SetSchemaMetadata."""

from __future__ import annotations

from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, copied
from turnout.spark.transforms.compile import compile_transform
from turnout.spark.typed import Struct
from turnout.transforms.set_schema_metadata import SetSchemaMetadata

__all__: list[str] = []


@compile_transform.register
def _(transform: SetSchemaMetadata, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if side.schema is None:
        step.fail(side.present, "Schema required for [updating schema metadata]")
        return step
    if side.schema.type != "struct":
        step.fail(F.lit(True), f"Cannot list fields on non-struct type: {side.schema.type}")
        return step
    changes: dict[str, object] = {}
    if transform.schema_name is not None:
        changes["name"] = transform.schema_name
    if transform.schema_version is not None:
        changes["version"] = transform.schema_version
    kept = copied(side, step, defaults=transform.replace_null_with_default)
    made = Struct([(field.name, one) for field, one in kept], side.present, side.schema.with_(**changes))
    step.record = record.with_side(transform.side, made)
    return step
