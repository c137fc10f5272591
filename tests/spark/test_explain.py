"""One record explained, stage by stage."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from turnout.errors import ConfigError
from turnout.spark.explain import explain, record_frame
from turnout.transforms import Chain, ValueFormat

CHAIN = Chain.from_route(
    [
        {
            "name": "far",
            "type": "MaskField$Value",
            "fields": "tail",
            "predicate": {"when": {"key": "value.miles", ">": 9}},
        },
        {"name": "near", "type": "Filter", "predicate": {"type": "TopicNameMatches", "pattern": "b"}},
        {"name": "bad", "type": "Cast$Value", "spec": "tail:int32"},
        {"name": "after", "type": "DropHeaders", "headers": "h"},
    ]
)


def test_each_stage_says_what_it_did_and_why(spark: SparkSession) -> None:
    """Answers come with what the predicate saw; after a failure stages are skipped."""
    record = record_frame(spark, {"topic": "a", "value": {"miles": 10, "tail": "N1"}, "headers": {"h": "x"}})

    reports = list(explain(CHAIN, ValueFormat.from_config({"format": "json"}), record))

    assert [report.outcome for report in reports] == ["applied", "not matched", "failed", "skipped"]
    (answer,) = reports[0].answers
    assert answer.holds
    assert answer.saw == {"value.miles": "10"}
    assert (
        reports[0].before["value"],
        reports[0].after["value"],
    ) == ({"miles": 10, "tail": "N1"}, {"miles": 10, "tail": ""})
    assert not reports[1].answers[0].holds
    assert "cannot be cast" in str(reports[2].error)
    assert reports[3].after["headers"] == [["h", "x"]]


def test_a_dropped_record_and_a_broken_value(spark: SparkSession) -> None:
    """A drop is told where it happens, a value that is no JSON before the first stage."""
    codec = ValueFormat.from_config({"format": "json"})

    dropped = list(explain(CHAIN, codec, record_frame(spark, {"topic": "b", "value": {"miles": 1}})))
    broken = list(explain(CHAIN, codec, record_frame(spark, {"topic": "b", "value": "{"})))

    assert [report.outcome for report in dropped] == ["not matched", "dropped", "skipped", "skipped"]
    assert [report.outcome for report in broken] == ["failed", "skipped", "skipped", "skipped", "skipped"]


def test_a_record_of_another_form_is_refused(spark: SparkSession) -> None:
    """All mistakes at once, with what a record has."""
    with pytest.raises(ConfigError) as refused:
        record_frame(spark, {"valeu": 1})

    assert [mistake.path for mistake in refused.value.mistakes] == ["valeu", "topic"]
