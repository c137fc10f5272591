"""Hashes of partition() in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.spark.subjects.frames import MANY, subject_frame, values_of
from tests.subjects import strategies

from turnout.subjects.random_numbers import fnv1a as fnv1a_of_bytes
from turnout.subjects.tokens import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@MANY
@given(keys=st.lists(strategies.keys, min_size=200, max_size=200))
def test_partition_hashes_keys_of_every_length(spark: SparkSession, keys: list[bytes]) -> None:
    """Straight-line code, loop and empty key agree with FNV-1a, for any bytes."""
    from turnout.spark.subjects.partition import fnv1a

    keys = [*keys, *[b"abcdefghijklmnopqrstuvwxyz"[:length] for length in range(27)], *[b"\xff" * n for n in range(40)]]
    frame = subject_frame(spark, [decode(key) for key in keys])
    hashes = [row[0] for row in values_of(frame, [fnv1a(frame["s"])])]

    assert hashes == [fnv1a_of_bytes(key) for key in keys]
