"""ReplaceField."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, Typed, require, struct_of
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.variants import as_map, get, remove, set_field
from turnout.transforms.replace_field import ReplaceField
from turnout.transforms.schema import Field

__all__: list[str] = []

_PURPOSE = "field replacement"


@compile_transform.register
def _(transform: ReplaceField, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if side.schema is None:
        need_map(step, side, _PURPOSE)
        step.record = record.with_side(transform.side, Typed(_object(transform, side.column), None))
    elif need_struct(step, side, _PURPOSE):
        step.record = record.with_side(transform.side, _struct(transform, side, step))
    return step


def _object(transform: ReplaceField, value: Column) -> Column:
    if transform.include:
        kept = F.map_filter(as_map(value), lambda name, _: name.isin(*transform.include))
        made = F.when(value.isNotNull(), F.to_variant_object(kept))
    else:
        made = value
    made = remove(made, *transform.exclude)
    moved = [(old, new) for old, new in transform.renames if transform.keeps(old) and old != new]
    if not moved:
        return made
    made = remove(made, *[old for old, _ in moved])
    for old, new in moved:
        found = get(value, old)
        made = F.when(found.isNull(), made).otherwise(set_field(made, new, found))
    return made


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
                side.column.isNotNull(),
                f'Cannot create field because of field name duplication "{new}"',
                "org.apache.kafka.connect.errors.SchemaBuilderException",
            )
            return side
        fields.append(Field(new, field.schema))
        read = _read(transform, side, step, new, field)
        if read is None:
            return side
        columns.append((new, read))
    return Typed(struct_of(columns, side.column.isNull()), side.schema.basics(tuple(fields)))


def _read(transform: ReplaceField, side: Typed, step: Step, new: str, field: Field) -> Column | None:
    """What is stored in the field *new*: the old field that the reverse lookup names, if it fits."""
    assert side.schema is not None
    source = transform.source_of(new)
    schema = side.schema.field(source)
    if schema is None:
        step.fail(side.column.isNotNull(), f"{source} is not a valid field name")
        return None
    column = side.field(source, defaults=transform.replace_null_with_default).column
    if schema.bare() != field.schema.bare() or schema.logical != field.schema.logical:
        step.fail(side.column.isNotNull(), f'Invalid type for field "{new}": {schema.type} from "{source}"')
        return None
    require(step, side.column.isNotNull(), new, column, field.schema)
    return column
