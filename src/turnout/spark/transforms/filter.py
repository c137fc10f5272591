"""Filter."""

from __future__ import annotations

from turnout.spark.record import Record, Step
from turnout.spark.transforms.compile import compile_transform
from turnout.transforms.filter import Filter

__all__: list[str] = []


@compile_transform.register
def _(_transform: Filter, record: Record) -> Step:
    return Step(record, drops=True)
