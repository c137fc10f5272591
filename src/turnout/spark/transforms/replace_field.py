"""ReplaceField."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, require
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed
from turnout.transforms.replace_field import ReplaceField
from turnout.transforms.schema import Field

__all__: list[str] = []

_PURPOSE = "field replacement"


@compile_transform.register
def _(transform: ReplaceField, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE)
        step.record = record.with_side(transform.side, _object(transform, side))
    elif need_struct(step, side, _PURPOSE):
        step.record = record.with_side(transform.side, _struct(transform, side, step))
    return step


def _object(transform: ReplaceField, side: Object) -> Object:
    made: dict[str, Column | None] = dict.fromkeys(transform.exclude)
    if transform.include:
        kept = [name for name in transform.include if transform.keeps(name)]
        made |= {name: side.get(name) for name in kept}
        empty = F.when(side.is_object, F.parse_json(F.lit("{}"))).otherwise(side.base)
        left = Object(empty, side.is_object)
    else:
        left = side
    moved = [(old, new) for old, new in transform.renames if transform.keeps(old) and old != new]
    made |= {old: None for old, _ in moved}
    for old, new in moved:
        # What has no such field keeps the one of the new name, if there is one.
        found, there = side.get(old), made[new] if new in made else left.get(new)
        made[new] = found if there is None else F.coalesce(found, there)
    return left.with_fields(made)


def _struct(transform: ReplaceField, side: Typed, step: Step) -> Typed:
    assert side.schema is not None
    fields: list[Field] = []
    columns: list[tuple[str, Column]] = []
    for field in side.schema.fields:
        if not transform.keeps(field.name):
            continue
        new = transform.renamed(field.name)
        if any(new == other.name for other in fields):
            step.fail(
                side.present,
                f'Cannot create field because of field name duplication "{new}"',
                "org.apache.kafka.connect.errors.SchemaBuilderException",
            )
            return side
        fields.append(Field(new, field.schema))
        read = _read(transform, side, step, new, field)
        if read is None:
            return side
        columns.append((new, read))
    return Struct(columns, side.present, side.schema.basics(tuple(fields)))


def _read(transform: ReplaceField, side: Typed, step: Step, new: str, field: Field) -> Column | None:
    """What is stored in the field *new*: the old field that the reverse lookup names, if it fits."""
    assert side.schema is not None
    source = transform.source_of(new)
    schema = side.schema.field(source)
    if schema is None:
        step.fail(side.present, f"{source} is not a valid field name")
        return None
    column = side.field(source, defaults=transform.replace_null_with_default).column
    if schema.bare() != field.schema.bare() or schema.logical != field.schema.logical:
        step.fail(side.present, f'Invalid type for field "{new}": {schema.type} from "{source}"')
        return None
    require(step, side.present, new, column, field.schema)
    return column
