"""A route as a plan: the source's rows through the engine's stage, observed, into the sinks."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from turnout.engine.failures import IN_FULL
from turnout.routes import Route
from turnout.runtime.publishing import FAILURES, FAILURES_COUNT, TALLY
from turnout.spark.endpoints import endpoint_of, publishes
from turnout.spark.stage import MESSAGE_ID, MESSAGES, SINK, SparkStage
from turnout.spark.workers.map_in_arrow import map_in_arrow

OBSERVED: Final = "turnout"
"""The name under which a streaming query reports the counts of a micro-batch."""


def observed(route: Route, rows: DataFrame, observation: str | Observation = OBSERVED) -> DataFrame:
    """Return the rows of a stage, whose counts and failures Spark reports."""
    return rows.observe(observation, *_metrics(route))


def write_all(route: Route, rows: DataFrame, stage: SparkStage) -> dict[str, object]:
    """Run the route over a frame and write to every sink; return the observations after all acknowledgements.

    Args:
        route: the route.
        rows: records; where the stage reads splits and publishes, the counts that a source has run it for.
        stage: stage of the route.
    """
    observation = Observation()
    if publishes(route.sinks):
        counts = rows if stage.splits else map_in_arrow(rows, stage.publish, TALLY)
        _into_nothing(observed(route, counts, observation))
        return observation.get
    messages = observed(route, map_in_arrow(rows, stage.rows, MESSAGES), observation)
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


def _metrics(route: Route) -> list[Column]:
    """Return the texts of the tasks' counts, for `counts_of`, and the first failures if the route logs them."""
    counts = F.collect_list("counts").alias("counts")
    if not route.errors.log:
        return [counts]
    offset = F.get_json_object("failure", "$.offset").cast("bigint")
    order = F.when(F.col("failure").isNotNull(), F.coalesce(offset, F.lit(0)))
    return [
        counts,
        F.min_by("failure", order, IN_FULL).alias(FAILURES),
        F.sum("failures").alias(FAILURES_COUNT),
    ]
