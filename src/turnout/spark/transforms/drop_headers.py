"""DropHeaders."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from turnout.spark.record import Record, Step
from turnout.spark.transforms.compile import compile_transform
from turnout.transforms.drop_headers import DropHeaders

__all__: list[str] = []


@compile_transform.register
def _(transform: DropHeaders, record: Record) -> Step:
    kept = F.filter(record.headers, lambda header: ~header["key"].isin(*transform.headers))
    return Step(replace(record, headers=kept))
