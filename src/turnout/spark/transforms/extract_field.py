"""ExtractField."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step
from turnout.spark.transforms.compile import compile_transform, need_map
from turnout.spark.typed import Object, Typed
from turnout.spark.variants import get, is_object, without_json_null
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
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE)
        step.record = record.with_side(transform.side, Typed(_of_object(transform, side, step), None))
    elif side.schema is None or side.schema.type != "struct":
        # The field is looked up in the schema, so that a null fails too.
        step.fail(F.lit(True), f"Cannot look up fields on non-struct type: {side.schema and side.schema.type}")
    else:
        found = _of_struct(transform, side, step)
        if found is not None:
            step.record = record.with_side(transform.side, found)
    return step


def _of_object(transform: ExtractField, side: Object, step: Step) -> Column:
    parent = ""
    value: Column | None = None
    for name in transform.path:
        if value is not None:
            step.fail(value.isNotNull() & ~is_object(value), f"Only Map objects supported for [{_PURPOSE}]: {parent}")
        found = step.bind(side.get(name) if value is None else get(value, name))
        value, parent = without_json_null(found), name
    assert value is not None
    return value


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
        side = Typed(F.when(side.present, inner.column), inner.schema)
    if side.schema is None or side.schema.field(last) is None:
        _unknown(transform, step)
        return None
    found = side.field(last, defaults=transform.replace_null_with_default)
    if found.schema is not None and found.schema.type == "variant":
        return Typed(found.column, None)
    # A null struct has no fields to have a default for.
    column = F.when(side.present, found.column)
    return Typed(column, found.schema)


def _unknown(transform: ExtractField, step: Step) -> None:
    step.fail(F.lit(True), f"Unknown field: {transform.field}", _ILLEGAL)
