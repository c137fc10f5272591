"""A route compiled: records in, messages out, as two plans that Spark runs one after the other.

`prepare` is fixed for the life of a run: decode, transform, map. `messages` depends on the subscriptions of the moment,
so it is applied to each micro-batch: match, fan out, encode. A record stays one row until it fans out; what happened to
it on the way stands in `OUTCOME`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from turnout.routes import Route
from turnout.spark.chain import compile_chain
from turnout.spark.origin import RAW, with_origin, with_raw
from turnout.spark.subjects import map_subjects
from turnout.spark.values import decode_values

__all__ = ["OUTCOME", "PREPARED", "SINK", "deliveries", "observed_in_deliveries", "observed_in_prepare", "prepare"]

OUTCOME: Final = "_outcome"
SINK: Final = "_sink"
PREPARED: Final = "prepared"
"""The name under which a streaming query reports what `prepare` counted."""

_ALIVE, _FILTERED, _FAILED, _LOST = "alive", "filtered", "failed", "lost"


def prepare(route: Route, records: DataFrame) -> DataFrame:
    """The records decoded, transformed and mapped, counted under `PREPARED`; only live and failed ones remain."""
    rows = with_raw(with_origin(records))
    rows = decode_values(rows, route.value)
    rows = compile_chain(route.chain, rows, tolerance=route.errors.tolerance)
    if route.mappings:
        rows = map_subjects(
            rows, route.mappings, cluster=route.cluster, seed=[RAW["topic"], "partition", "offset"], into="_mapped"
        )
    else:
        rows = rows.withColumn("_mapped", F.col("topic"))
    rows = rows.withColumn(OUTCOME, _outcome())
    rows = rows.observe(PREPARED, *observed_in_prepare())
    return (
        rows.where(F.col(OUTCOME).isin(_ALIVE, _FAILED))
        .withColumn("topic", F.col("_mapped"))
        .drop("_mapped", "_dropped")
    )


def _outcome() -> Column:
    return (
        F.when(F.col("_error").isNotNull(), _FAILED)
        .when(F.col("_dropped"), _FILTERED)
        .when(F.col("_mapped").isNull(), _LOST)
        .otherwise(_ALIVE)
    )


def observed_in_prepare() -> list[Column]:
    """What is counted of each record as `prepare` lets it go."""
    outcome = F.col(OUTCOME)
    return [
        F.count(F.lit(1)).alias("read"),
        F.count_if(outcome == _FILTERED).alias("filtered"),
        F.count_if(outcome == _LOST).alias("lost_by_weight"),
    ]
