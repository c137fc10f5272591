"""RegexRouter."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from turnout.spark.java_regex import ReplacementError, first_replaced, matches_whole
from turnout.spark.record import Record, Step
from turnout.spark.transforms.compile import compile_transform
from turnout.transforms.regex_router import RegexRouter

__all__: list[str] = []


@compile_transform.register
def _(transform: RegexRouter, record: Record) -> Step:
    step = Step(record)
    topic = record.topic
    step.fail(topic.isNull(), "the topic is null", "java.lang.NullPointerException")
    routed = F.coalesce(matches_whole(topic, transform.regex), F.lit(False))
    try:
        new = first_replaced(topic, transform.regex, transform.replacement)
    except ReplacementError as error:
        step.fail(routed, str(error), error.exception)
        return step
    step.record = replace(record, topic=F.when(routed, new).otherwise(topic))
    return step
