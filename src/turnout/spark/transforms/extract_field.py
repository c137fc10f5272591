"""ExtractField."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, Typed
from turnout.spark.transforms.compile import compile_transform, need_map
from turnout.spark.variants import field_or_null, is_object
from turnout.transforms.extract_field import ExtractField

__all__: list[str] = []

_PURPOSE = "field extraction"
_ILLEGAL = "java.lang.IllegalArgumentException"


@compile_transform.register
def _(transform: ExtractField, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if not transform.path:
        step.fail(F.lit(True), "the path is empty", "java.lang.IndexOutOfBoundsException")
        return step
    if side.schema is None:
        need_map(step, side, _PURPOSE)
        step.record = record.with_side(transform.side, Typed(_of_object(transform, side.column, step), None))
    elif side.schema.type != "struct":
        # The field is looked up in the schema, so that a null fails too.
        step.fail(F.lit(True), f"Cannot look up fields on non-struct type: {side.schema.type}")
    else:
        found = _of_struct(transform, side, step)
        if found is not None:
            step.record = record.with_side(transform.side, found)
    return step


def _of_object(transform: ExtractField, value: Column, step: Step) -> Column:
    *parents, last = transform.path
    for name in parents:
        value = field_or_null(value, name)
        step.fail(value.isNotNull() & ~is_object(value), f"Only Map objects supported for [{_PURPOSE}]: {name}")
    return field_or_null(value, last)


def _of_struct(transform: ExtractField, side: Typed, step: Step) -> Typed | None:
    *parents, last = transform.path
    for name in parents:
        assert side.schema is not None
        schema = side.schema.field(name)
        if schema is None or schema.type != "struct":
            _unknown(transform, step)
            return None
        inner = side.field(name)
        # Inside a null parent nothing has a default.
        side = Typed(F.when(side.column.isNotNull(), inner.column), inner.schema)
    if side.schema is None or side.schema.field(last) is None:
        _unknown(transform, step)
        return None
    found = side.field(last, defaults=transform.replace_null_with_default)
    if found.schema is not None and found.schema.type == "variant":
        return Typed(found.column, None)
    # A null struct has no fields to have a default for.
    column = F.when(side.column.isNotNull(), found.column)
    return Typed(column, found.schema)


def _unknown(transform: ExtractField, step: Step) -> None:
    step.fail(F.lit(True), f"Unknown field: {transform.field}", _ILLEGAL)
