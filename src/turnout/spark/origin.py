"""Where a record came from, as one text: what its message id and its random draws are made from."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["ORIGIN", "RAW", "message_id", "with_origin", "with_raw"]

ORIGIN = "_origin"
"""The column: ``stream:sequence`` for NATS, ``topic:partition:offset`` otherwise; null without an offset."""

RAW = {"topic": "_raw_topic", "key": "_raw_key", "value": "_raw_value", "headers": "_raw_headers"}
"""Record column → the column that keeps it as it was read, for dead letters."""


def with_origin(records: DataFrame) -> DataFrame:
    """The records with their `ORIGIN`, taken before anything changes their topic."""
    place = [F.col("stream")] if "stream" in records.columns else [F.col("topic"), F.col("partition").cast("string")]
    # concat is null as soon as one part is, which is what an unknown origin should be.
    parts = [part for column in place for part in (column, F.lit(":"))]
    return records.withColumn(ORIGIN, F.concat(*parts, F.col("offset").cast("string")))


def with_raw(records: DataFrame) -> DataFrame:
    """The records with copies of what a dead letter has to show unchanged."""
    return records.withColumns({raw: F.col(name) for name, raw in RAW.items()})


def message_id(*parts: Column) -> Column:
    """A message id that depends on the record's origin and *parts* alone, so a record done again has it again.

    The parts are hashed: ids stay short, because the server keeps every one of them for its duplicate window.
    Null where the origin is unknown.
    """
    return F.concat(F.col(ORIGIN), F.lit(":"), F.hex(F.xxhash64(*parts)))
