"""Draws and message ids are what Spark's ``xxhash64`` gives: those of earlier versions, and of turnout's columns."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from turnout.engine.messages import suffix


def test_message_ids_are_sparks(spark: SparkSession) -> None:
    """A message that an earlier version has stored is known to the stream when this one sends it again."""
    names = [("route", "subscription", "out.a"), ("route", "", "out.ü"), ("r", "dead", "x" * 50)]
    rows = spark.createDataFrame(names, "a string, b string, c string").coalesce(1)
    hashed = rows.select(F.concat(F.lit(":"), F.hex(F.xxhash64("a", "b", "c"))).alias("id"))

    assert [suffix(*parts) for parts in names] == [row.id for row in hashed.collect()]
