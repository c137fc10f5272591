"""InsertField."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, Typed, copied, struct_of
from turnout.spark.schemas import spark_type
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.variants import path_of
from turnout.transforms.insert_field import InsertField, Insertion
from turnout.transforms.schema import TIMESTAMP, Field, Schema

__all__: list[str] = []

_PURPOSE = "field insertion"
_SCHEMAS = {
    "topic": Schema("string"),
    "partition": Schema("int32"),
    "offset": Schema("int64"),
    "timestamp": Schema("int64", name=TIMESTAMP, version=1),
    "static": Schema("string"),
}


@compile_transform.register
def _(transform: InsertField, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    inserted = transform.insertions
    if record.offset is None and any(one.source == "offset" for one in inserted):
        step.fail(side.column.isNotNull(), "Offset is only available for sink records")
    if side.schema is None:
        need_map(step, side, _PURPOSE)
        step.record = record.with_side(transform.side, Typed(_into_object(transform, record, side.column), None))
    elif need_struct(step, side, _PURPOSE):
        step.record = record.with_side(transform.side, _into_struct(transform, record, side, step))
    return step


def _value(transform: InsertField, record: Record, insertion: Insertion) -> Column:
    match insertion.source:
        case "topic":
            return record.topic
        case "partition":
            return record.partition
        case "offset":
            return F.lit(None).cast("bigint") if record.offset is None else record.offset
        case "timestamp":
            return record.timestamp
        case "static":
            return F.lit(transform.static_value)


def _into_object(transform: InsertField, record: Record, value: Column) -> Column:
    for insertion in transform.insertions:
        new = _value(transform, record, insertion)
        if insertion.source == "timestamp":
            new = F.unix_millis(new)
        added = F.variant_set(value, path_of(insertion.name), new.cast("variant"))
        # A null partition or timestamp leaves the object without the key; variant_set gives null for it.
        never_null = insertion.source in ("topic", "static")
        value = added if never_null else F.when(new.isNull(), value).otherwise(added)
    return value


def _into_struct(transform: InsertField, record: Record, side: Typed, step: Step) -> Typed:
    assert side.schema is not None
    kept = copied(side, step, defaults=transform.replace_null_with_default)
    fields = [field for field, _ in kept]
    columns = [(field.name, column) for field, column in kept]
    for insertion in transform.insertions:
        schema = _SCHEMAS[insertion.source].with_(optional=insertion.optional)
        if not insertion.name or any(insertion.name == field.name for field in fields):
            _cannot_add(step, side, insertion.name)
            return side
        fields.append(Field(insertion.name, schema))
        columns.append((insertion.name, _value(transform, record, insertion).cast(spark_type(schema))))
    return Typed(struct_of(columns, side.column.isNull()), side.schema.basics(tuple(fields)))


def _cannot_add(step: Step, side: Typed, name: str) -> None:
    problem = f'Cannot create field because of field name duplication "{name}"' if name else "fieldName cannot be null."
    step.fail(side.column.isNotNull(), problem, "org.apache.kafka.connect.errors.SchemaBuilderException")
