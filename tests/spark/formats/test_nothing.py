"""A source without rows."""

from __future__ import annotations

from pyspark.sql import SparkSession

from turnout.spark.endpoints import activate
from turnout.spark.formats.nothing import plan_read


def test_a_read_is_planned_and_gives_nothing(spark: SparkSession) -> None:
    """Spark has made the source and planned its read in Python by then; a second time changes nothing."""
    activate(spark)
    plan_read(spark)
    plan_read(spark)

    rows = spark.read.format("turnout-nothing").load()

    assert rows.schema.simpleString() == "struct<nothing:int>"
    assert rows.collect() == []
