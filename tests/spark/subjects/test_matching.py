"""Subjects that match filters, in Spark and in the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.settings import interpreted
from tests.spark.subjects.frames import MANY, subject_frame, values_of
from tests.subjects import strategies

from turnout.subjects import matches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.heavy
@MANY
@given(cases=st.lists(strategies.cases(), min_size=30, max_size=30))
def test_matching_agrees_on_filters_and_subjects(spark: SparkSession, cases: list[strategies.Case]) -> None:
    """subject_matches is matches(), null-free, on generated filters and on subjects that are not valid."""
    from turnout.spark.subjects import subject_matches

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
