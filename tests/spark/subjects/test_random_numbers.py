"""Draws are the same in Spark and in the engine."""

from __future__ import annotations

from pyspark.sql import SparkSession

from turnout.spark.subjects.random_numbers import draw_bits, draw_of
from turnout.subjects.arrays import draws_of

PLACES = [
    ("flights.JFK.LAX.B6", 0, 1),
    ("flights.JFK.LAX.B6", 7, 2**40),
    ("ünï.\U0001f680", -3, -17),
    ("", 0, None),
    ("x" * 100, None, 5),
]


def test_draws_are_sparks(spark: SparkSession) -> None:
    """A record that is done again by another version of turnout, or by columns, takes the same way."""
    rows = spark.createDataFrame(PLACES, "topic string, partition int, offset bigint").coalesce(1)
    drawn = rows.select(draw_of(draw_bits(["topic", "partition", "offset"], what="test")).alias("draw"))

    topics, partitions, offsets = zip(*PLACES, strict=True)

    assert draws_of(topics, partitions, offsets).tolist() == [row.draw for row in drawn.collect()]
