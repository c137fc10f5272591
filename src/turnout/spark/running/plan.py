"""A route as a plan: the source's rows through the engine's stage, observed, into the sinks."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from turnout.engine.counts import NUMBERS
from turnout.engine.failures import IN_FULL
from turnout.errors import RunError
from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, KafkaSink, NatsSink
from turnout.runtime.failure_log import FAILURES, FAILURES_COUNT
from turnout.runtime.java_failures import in_one_line
from turnout.spark.endpoints import write
from turnout.spark.stage import COUNTS, FLOW, MESSAGE_ID, MESSAGES, SINK, SparkStage
from turnout.spark.workers.map_in_arrow import map_in_arrow

OBSERVED: Final = "turnout"
"""The name under which a streaming query reports the counts of a micro-batch."""


_TOO_LARGE: Final = "RecordTooLargeException"
_LARGEST: Final = (
    "the largest record, for {topic!r}, read at partition {partition}, offset {offset}, has {size} bytes: "
)


def publishes(route: Route) -> bool:
    """Return True if the stage itself can deliver everything: all sinks are NATS."""
    return all(isinstance(sink, NatsSink) for sink in route.sinks.values())


def published(route: Route, rows: DataFrame, stage: SparkStage, observation: str | Observation = OBSERVED) -> DataFrame:
    """The plan that publishes: what it gives are counts, for a sink that keeps nothing."""
    return map_in_arrow(rows, stage.publish, COUNTS).observe(observation, *_observed(route))


def write_all(route: Route, rows: DataFrame, stage: SparkStage) -> dict[str, Any]:
    """Run the route over a frame and write to every sink; what was observed, once all have acknowledged."""
    observation = Observation()
    if publishes(route):
        _into_nothing(published(route, rows, stage, observation))
        return observation.get
    messages = map_in_arrow(rows, stage.rows, MESSAGES).observe(observation, *_observed(route))
    sinks = tuple(route.sinks.values())
    if len(sinks) == 1 and not isinstance(sinks[0], KafkaSink):
        write(messages.where(F.col(SINK).isNotNull()), sinks[0], MESSAGE_ID)
        return observation.get
    messages = messages.persist()
    try:
        # Kafka's writer runs the plan out of Spark's sight: what is observed there is never reported.
        _into_nothing(messages)
        for place, sink in enumerate(sinks):
            _write(messages.where(F.col(SINK) == place), sink)
    finally:
        messages.unpersist()
    return observation.get


def _write(messages: DataFrame, sink: Endpoint) -> None:
    """Write to one sink.

    Raises:
        RunError: a broker refused a record for its size; Kafka does not say which, so the largest is named.
    """
    try:
        write(messages, sink, MESSAGE_ID)
    except (Py4JError, PySparkException) as failure:
        if not isinstance(sink, KafkaSink) or _TOO_LARGE not in str(failure):
            raise
        size = F.octet_length("value") + F.coalesce(F.octet_length("key"), F.lit(0))
        rows = messages.select("topic", "partition", "offset", size.alias("size"))
        row = rows.orderBy(F.col("size").desc_nulls_last()).first()
        largest = "" if row is None else _LARGEST.format(**row.asDict())
        raise RunError(f"{largest}{in_one_line(failure)}") from failure


def _into_nothing(rows: DataFrame) -> None:
    rows.write.format("noop").mode("append").save()


def _observed(route: Route) -> list[Column]:
    """The sums of what tasks have counted, and the first failures where the route logs them."""
    # Of flows there is one for each task: adding them up is left to `counts_of`, as Spark does not know their stages.
    sums = [*(F.sum(name).alias(name) for name in NUMBERS), F.collect_list(FLOW).alias(FLOW)]
    if not route.errors.log:
        return sums
    order = F.when(F.col("failure").isNotNull(), F.coalesce(F.col("failure.offset").cast("bigint"), F.lit(0)))
    return [
        *sums,
        F.min_by("failure", order, IN_FULL).alias(FAILURES),
        F.sum("failures").alias(FAILURES_COUNT),
    ]
