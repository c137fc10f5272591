"""Cast."""

from __future__ import annotations

from pyspark.sql import Column

from turnout.spark.casting import cast_typed, cast_variant
from turnout.spark.folding import fold
from turnout.spark.record import Record, Step, copied, require
from turnout.spark.schemas import literal
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed
from turnout.spark.variants import or_json_null, without_json_null
from turnout.transforms.cast import Cast
from turnout.transforms.schema import LOGICAL, Field, Schema

__all__: list[str] = []

_PURPOSE = "cast types"


@compile_transform.register
def _(transform: Cast, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if isinstance(side, Object):
        made = _object(transform, side, step)
    elif transform.whole is not None:
        made = _whole(side, transform.whole, step)
    elif need_struct(step, side, _PURPOSE):
        made = _fields(transform, side, step)
    else:
        made = side
    step.record = record.with_side(transform.side, made)
    return step


def _problem(what: str, target: str) -> str:
    return f"Unexpected value: {what} cannot be cast to {target}"


def _object(transform: Cast, side: Object, step: Step) -> Typed:
    if transform.whole is not None:
        casted = cast_variant(side.column, transform.whole, step.bind)
        step.fail(casted.bad, _problem("the value", transform.whole))
        return Typed(casted.column, None)
    need_map(step, side, _PURPOSE)
    made: dict[str, Column | None] = {}
    for name, target in transform.fields:
        casted = cast_variant(without_json_null(step.bind(side.get(name))), target, step.bind)
        step.fail(casted.bad, _problem(f"the field {name!r}", target))
        made[name] = or_json_null(casted.column)
    return side.with_fields(made)


def _default(schema: Schema, target: str, step: Step, present: Column) -> object:
    """The schema's default after the cast."""
    if schema.default is None:
        return None
    casted = cast_typed(Typed(literal(schema, schema.default), schema), target, lambda column: column)
    value, bad = fold(casted.column, casted.bad)
    if bad:
        step.fail(present, _problem(f"the default {schema.default!r}", target))
    return value


def _whole(side: Typed, target: str, step: Step) -> Typed:
    assert side.schema is not None
    casted = cast_typed(side, target, step.bind)
    step.fail(casted.bad, _problem(f"a {side.schema.type}", target))
    present = side.present
    default = _default(side.schema, target, step, present)
    if default is not None and side.schema.name in LOGICAL:
        problem = "Invalid default value"
        step.fail(present, problem, "org.apache.kafka.connect.errors.SchemaBuilderException")
    kept = side.schema
    schema = Schema(
        target, kept.optional, default, name=kept.name, version=kept.version, doc=kept.doc, parameters=kept.parameters
    )
    return Typed(casted.column, schema)


def _fields(transform: Cast, side: Typed, step: Step) -> Typed:
    assert side.schema is not None
    present = side.present
    if side.schema.default is not None:
        problem = "a struct with a default cannot be cast: its default has the old types"
        step.fail(present, problem, "org.apache.kafka.connect.errors.SchemaBuilderException")
    targets = dict(transform.fields)
    defaults = transform.replace_null_with_default
    fields: list[Field] = []
    columns: list[tuple[str, Column]] = []
    kept = {f.name: column for f, column in copied(side, step, lambda name: name not in targets, defaults=defaults)}
    for field in side.schema.fields:
        schema, column = field.schema, kept.get(field.name)
        if column is None:
            target = targets[field.name]
            casted = cast_typed(side.field(field.name, defaults=defaults), target, step.bind)
            step.fail(present & casted.bad, _problem(f"the field {field.name!r}", target))
            schema = Schema(target, field.schema.optional, _default(field.schema, target, step, present))
            column = casted.column
            require(step, present, field.name, column, schema)
        fields.append(Field(field.name, schema))
        columns.append((field.name, column))
    schema = side.schema.basics(tuple(fields)).with_(optional=side.schema.optional)
    return Struct(columns, side.present, schema)
