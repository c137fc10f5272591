"""InsertHeader."""

from __future__ import annotations

from dataclasses import replace

from turnout.spark.headers import appended
from turnout.spark.literals import literal_of
from turnout.spark.record import Record, Step
from turnout.spark.transforms.compile import compile_transform
from turnout.transforms.insert_header import InsertHeader

__all__: list[str] = []


@compile_transform.register
def _(transform: InsertHeader, record: Record) -> Step:
    assert transform.literal is not None
    headers = appended(record, [transform.header], [literal_of(transform.literal)])
    return Step(replace(record, headers=headers))
