"""A route as a plan: the source's rows through the engine's stage, observed, into the sinks."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from turnout.engine.counts import NUMBERS
from turnout.engine.failures import IN_FULL
from turnout.routes import Route
from turnout.runtime.failure_log import FAILURES, FAILURES_COUNT
from turnout.spark.endpoints import endpoint_of, publishes
from turnout.spark.stage import COUNTS, FLOW, MESSAGE_ID, MESSAGES, SINK, SparkStage
from turnout.spark.workers.map_in_arrow import map_in_arrow

OBSERVED: Final = "turnout"
"""The name under which a streaming query reports the counts of a micro-batch."""


def published(route: Route, rows: DataFrame, stage: SparkStage, observation: str | Observation = OBSERVED) -> DataFrame:
    """Return the plan that publishes: its rows are counts, for a sink that discards them."""
    return map_in_arrow(rows, stage.publish, COUNTS).observe(observation, *_observed(route))


def write_all(route: Route, rows: DataFrame, stage: SparkStage) -> dict[str, object]:
    """Run the route over a frame and write to every sink; return the observations after all acknowledgements."""
    observation = Observation()
    if publishes(route.sinks):
        _into_nothing(published(route, rows, stage, observation))
        return observation.get
    messages = map_in_arrow(rows, stage.rows, MESSAGES).observe(observation, *_observed(route))
    sinks = [endpoint_of(sink) for sink in route.sinks.values()]
    if len(sinks) == 1 and sinks[0].observable:
        sinks[0].write(messages.where(F.col(SINK).isNotNull()), MESSAGE_ID)
        return observation.get
    messages = messages.persist()
    try:
        # Kafka's writer runs the plan out of Spark's sight: its observations are never reported.
        _into_nothing(messages)
        for index, sink in enumerate(sinks):
            sink.write(messages.where(F.col(SINK) == index), MESSAGE_ID)
    finally:
        messages.unpersist()
    return observation.get


def _into_nothing(rows: DataFrame) -> None:
    rows.write.format("noop").mode("append").save()


def _observed(route: Route) -> list[Column]:
    """Return the sums of what tasks have counted, and the first failures where the route logs them."""
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
