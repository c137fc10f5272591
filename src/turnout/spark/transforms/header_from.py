"""HeaderFrom."""

from __future__ import annotations

from dataclasses import replace

from turnout.spark.headers import appended
from turnout.spark.record import Record, Step, copied
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed
from turnout.spark.variants import without_json_null
from turnout.transforms.header_from import HeaderFrom

__all__: list[str] = []

_PURPOSE = "header from field"


@compile_transform.register
def _(transform: HeaderFrom, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    move = transform.operation == "move"
    left: Typed
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE, null_fails=True)
        values = [Typed(without_json_null(step.bind(side.get(name))), None) for name in transform.fields]
        left = side.with_fields(dict.fromkeys(transform.fields))
    else:
        assert side.schema is not None
        if not need_struct(step, side, _PURPOSE, null_fails=True):
            return step
        unknown = [name for name in transform.fields if side.schema.field(name) is None]
        if unknown:
            step.fail(side.present, f"no field {unknown[0]!r}", "java.lang.NullPointerException")
            return step
        values = [_header_value(transform, side, name, step) for name in transform.fields]
        left = _without(transform, side, step) if move else side
    made = replace(record, headers=appended(record, list(transform.headers), values))
    step.record = made.with_side(transform.side, left) if move else made
    return step


def _header_value(transform: HeaderFrom, side: Typed, name: str, step: Step) -> Typed:
    found = side.field(name, defaults=transform.replace_null_with_default)
    assert found.schema is not None
    if not found.schema.optional:
        step.fail(
            side.present & found.column.isNull(),
            f"Invalid value: null used for required field: {name!r}",
        )
    return found


def _without(transform: HeaderFrom, side: Typed, step: Step) -> Typed:
    assert side.schema is not None
    kept = copied(side, step, lambda name: name not in transform.fields, defaults=transform.replace_null_with_default)
    columns = [(field.name, column) for field, column in kept]
    return Struct(columns, side.present, side.schema.basics(tuple(field for field, _ in kept)))
