"""Subjects as rows of a frame, and the values of columns over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, settings
from tests.settings import interpreted

from turnout.subjects.pattern import decode, encode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# Each example is a Spark job that serves hundreds of cases, and a failure names all that differ: nothing to shrink.
# `make check` has four, `make test` one.
MANY = settings(
    max_examples=max(1, settings().max_examples // 25), phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


def subject_frame(spark: SparkSession, subjects: list[str]) -> DataFrame:
    """The subjects as rows of a scan: neither Python workers nor constants that the optimizer would work out."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    rows = pa.table(
        {"id": pa.array(range(len(subjects)), pa.int64()), "data": [encode(subject) for subject in subjects]}
    )
    return spark.createDataFrame(rows).withColumn("s", F.col("data").cast("string")).localCheckpoint()


def values_of(frame: DataFrame, columns: list[Column]) -> list[list[Any]]:
    """The columns' values row by row, in the order of the rows."""
    named = [column.alias(f"c{number}") for number, column in enumerate(columns)]
    return [list(row)[1:] for row in sorted(frame.select("id", *named).collect(), key=lambda row: row["id"])]


def texts_of(frame: DataFrame, columns: list[Column]) -> list[list[str | None]]:
    """Return `values_of` with the bytes that are not UTF-8 as surrogate escapes."""
    rows = values_of(frame, [column.cast("binary") for column in columns])
    return [[None if value is None else decode(bytes(value)) for value in row] for row in rows]


def draws_of(frame: DataFrame) -> list[float]:
    from turnout.spark.subjects import draw_bits, draw_of

    return [row[0] for row in values_of(frame, [draw_of(draw_bits(["id"], what=""))])]


@contextmanager
def small_plans(spark: SparkSession) -> Iterator[None]:
    """Interpreted, and with the small one of the two hashes: the other is thousands of nodes for each ``partition``.

    That other one has a test of its own, on every length of key, and is in the compiled queries. The vector runner by
    itself takes it too.
    """
    from turnout.spark.subjects import hash_by_loop

    with (
        interpreted(spark),
        patch("turnout.spark.subjects.fnv1a", hash_by_loop),
        patch("turnout.spark.subjects.fnv1a", hash_by_loop),
    ):
        yield
