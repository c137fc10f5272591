"""InsertField."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, copied
from turnout.spark.schemas import spark_type
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed
from turnout.spark.variants import or_json_null
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
        step.fail(side.present, "Offset is only available for sink records")
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE)
        step.record = record.with_side(transform.side, _into_object(transform, record, side))
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


def _into_object(transform: InsertField, record: Record, side: Object) -> Object:
    for insertion in transform.insertions:
        new = _value(transform, record, insertion)
        if insertion.source == "timestamp":
            new = F.unix_millis(new)
        variant = new.cast("variant")
        # A null partition or timestamp leaves the object as it is, a null topic is stored.
        stored = insertion.source in ("topic", "static")
        side = side.with_fields(
            {insertion.name: or_json_null(variant) if stored else F.coalesce(variant, side.get(insertion.name))}
        )
    return side


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
        new = _value(transform, record, insertion).cast(spark_type(schema))
        columns.append((insertion.name, F.when(side.present, new)))
    return Struct(columns, side.present, side.schema.basics(tuple(fields)))


def _cannot_add(step: Step, side: Typed, name: str) -> None:
    problem = f'Cannot create field because of field name duplication "{name}"' if name else "fieldName cannot be null."
    step.fail(side.present, problem, "org.apache.kafka.connect.errors.SchemaBuilderException")
