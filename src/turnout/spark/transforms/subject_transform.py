"""SubjectTransform."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from turnout.spark.record import Record, Step
from turnout.spark.subjects import transform_subject
from turnout.spark.transforms.compile import compile_transform
from turnout.transforms.subject_transform import SubjectTransform

__all__: list[str] = []


@compile_transform.register
def _(transform: SubjectTransform, record: Record) -> Step:
    assert transform.mapping is not None
    seed = [record.partition] if record.offset is None else [record.partition, record.offset]
    mapped = transform_subject(transform.mapping, record.topic, seed=seed)
    return Step(replace(record, topic=F.coalesce(mapped, record.topic)))
