"""Transform → what it does to a record's columns; each transform registers itself from its own module."""

from __future__ import annotations

from functools import singledispatch

from turnout.errors import NotCompilableError
from turnout.spark.record import Record, Step
from turnout.spark.transforms.plugin import ColumnTransform, plugged
from turnout.spark.typed import Object, Typed
from turnout.transforms.base import Transform

__all__ = ["compile_transform", "need_map", "need_struct"]


@singledispatch
def compile_transform(transform: Transform, record: Record) -> Step:
    """The record after *transform*, with every way in which it can fail.

    Raises:
        NotCompilableError: for a transform that has no Spark form.
    """
    if isinstance(transform, ColumnTransform):
        step = Step(record)
        step.record = plugged(transform, record, step.bind)
        return step
    raise NotCompilableError(transform, f"{type(transform).__name__} has neither a rule nor a method 'columns'")


def need_struct(step: Step, side: Typed, purpose: str, *, null_fails: bool = False) -> bool:
    """Whether the side is a struct. Where it is another type, every record that has a value fails."""
    assert side.schema is not None
    is_struct = side.schema.type == "struct"
    if null_fails:
        step.fail(~side.present, f"Only Struct objects supported for [{purpose}], found: null")
    if not is_struct:
        found = side.schema.type
        step.fail(side.present, f"Only Struct objects supported for [{purpose}], found: {found}")
    return is_struct


def need_map(step: Step, side: Object, purpose: str, *, null_fails: bool = False) -> None:
    """Fail where schemaless data is no object; null passes unless *null_fails*."""
    wrong = ~side.is_object
    when = wrong if null_fails else side.present & wrong
    step.fail(when, f"Only Map objects supported in absence of schema for [{purpose}]")
