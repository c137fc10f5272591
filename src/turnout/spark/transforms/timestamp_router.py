"""TimestampRouter."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from turnout.spark.java_time import format_millis
from turnout.spark.record import Record, Step
from turnout.spark.transforms.compile import compile_transform
from turnout.transforms.java_time import JavaTimeError
from turnout.transforms.timestamp_router import TimestampRouter

__all__: list[str] = []


@compile_transform.register
def _(transform: TimestampRouter, record: Record) -> Step:
    step = Step(record)
    step.fail(record.timestamp.isNull(), "Timestamp missing on record")
    step.fail(record.topic.isNull(), "the topic is null", "java.lang.NullPointerException")
    try:
        text = format_millis(F.unix_millis(record.timestamp), transform.timestamp_format, step.bind)
    except JavaTimeError as error:
        step.fail(F.lit(True), str(error), "java.lang.IllegalArgumentException")
        return step
    with_topic = F.replace(F.lit(transform.topic_format), F.lit("${topic}"), record.topic)
    step.record = replace(record, topic=F.replace(with_topic, F.lit("${timestamp}"), text))
    return step
