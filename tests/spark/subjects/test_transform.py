"""Transforms of subjects in Spark: the library's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.examples import drawn, examples
from tests.settings import interpreted
from tests.spark.subjects.frames import draws_of, small_plans, subject_frame, texts_of, values_of
from tests.subjects import strategies

from turnout.errors import SubjectError
from turnout.spark.subjects import draw_bits, draw_of
from turnout.subjects import SubjectTransform, arrays, matches
from turnout.subjects.functions import fnv1a as fnv1a_of_bytes
from turnout.subjects.pattern import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    assert arrays.draws_of(topics, partitions, offsets).tolist() == [row.draw for row in drawn.collect()]


def test_partition_hashes_keys_of_every_length(spark: SparkSession) -> None:
    """Straight-line code, loop and empty key agree with FNV-1a, for any bytes."""
    from turnout.spark.subjects import fnv1a

    keys = [
        *drawn(strategies.keys, examples(800)),
        *[b"abcdefghijklmnopqrstuvwxyz"[:length] for length in range(27)],
        *[b"\xff" * n for n in range(40)],
    ]
    frame = subject_frame(spark, [decode(key) for key in keys])
    hashes = [row[0] for row in values_of(frame, [fnv1a(frame["s"])])]

    assert hashes == [fnv1a_of_bytes(key) for key in keys]


@pytest.mark.heavy
def test_matching_agrees_on_filters_and_subjects(spark: SparkSession) -> None:
    """subject_matches is matches(), null-free, on generated filters and on subjects that are not valid."""
    from turnout.spark.subjects import subject_matches

    cases = drawn(strategies.cases(), 60)
    filters = [case.source for case in cases] + ["a..b", "", ">", "a.>.b", "*x", "a.*", "a.b.c"]
    subjects = [case.subject for case in cases] + list(strategies.ODD_SUBJECTS)
    with interpreted(spark):
        frame = subject_frame(spark, subjects)
        rows = values_of(frame, [subject_matches(filter_, "s") for filter_ in filters])
        rendered = {
            (filter_, subject): value
            for subject, row in zip(subjects, rows, strict=True)
            for filter_, value in zip(filters, row, strict=True)
        }

    assert rendered == {(f, s): matches(f, s) for f in filters for s in subjects}


def _different_transforms(spark: SparkSession, transforms: list[SubjectTransform], subjects: list[str]) -> list[Any]:
    """Every transform on every subject: where the column and the library differ."""
    from turnout.spark.subjects import transform_subject

    frame = subject_frame(spark, subjects)
    draws = draws_of(frame)
    texts = texts_of(frame, [transform_subject(t, "s", seed=["id"]) for t in transforms])
    differences = []
    for subject, draw, values in zip(subjects, draws, texts, strict=True):
        for transform, value in zip(transforms, values, strict=True):
            try:
                expected: str | None = transform.apply(subject, draw)
            except SubjectError:
                expected = None
            if value != expected:
                differences.append((str(transform), subject, expected, value))
    return differences


@pytest.mark.heavy
def test_generated_transforms_are_equal_to_the_pure_ones(spark: SparkSession) -> None:
    """80 transforms at once, each on its own subject, on those of others, and on subjects that are not valid."""
    cases = drawn(strategies.cases(), 80)
    transforms = [SubjectTransform.parse(case.source, case.destination) for case in cases]
    with small_plans(spark):
        differences = _different_transforms(
            spark, transforms, [*(case.subject for case in cases), *strategies.ODD_SUBJECTS]
        )

    assert differences == []


def test_every_function_is_equal_to_the_pure_one_when_compiled(spark: SparkSession) -> None:
    """Interpreted and compiled expressions are two implementations; routes run the second."""
    calls = ["wildcard(2)", "partition(7,2,1)", "partition(5)", "split(2,-)", "split(2,)", "random(9)"]
    calls += [f"{name}(2,3)" for name in strategies.CUTS]
    transforms = [SubjectTransform.parse("a.*.*", f"x.$1.{{{{{call}}}}}") for call in calls]
    transforms += [SubjectTransform.parse("a.*.>", "{{left(1,2)}}.y.>"), SubjectTransform.parse("a.b", "c.d")]
    subjects = [f"a.{one}.{two}" for one in ("b", "é-日", "\udcff--") for two in ("--x-é-", "abcdefgh", "日本語-")]

    assert _different_transforms(spark, transforms, [*subjects, "a.b", "a.b.c.d", *strategies.ODD_SUBJECTS]) == []


def test_what_is_unmatched_becomes_what_the_caller_asks(spark: SparkSession) -> None:
    """Null by default, the subject or any other value on request, an error where a route wants one."""
    from pyspark.errors import SparkRuntimeException
    from pyspark.sql import functions as F

    from turnout.spark.subjects import transform_subject

    transform = SubjectTransform.parse("foo.*", "bar.$1")
    frame = subject_frame(spark, ["foo.1", "baz"])
    columns = [transform_subject(transform, "s"), transform_subject(transform, "s", unmatched=F.col("s"))]
    failing = frame.select(transform_subject(transform, "s", unmatched=F.raise_error(F.lit("no match"))))

    assert texts_of(frame, columns) == [["bar.1", "bar.1"], [None, "baz"]]
    with pytest.raises(SparkRuntimeException, match="no match"):
        failing.collect()
