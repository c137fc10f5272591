"""One record explained, stage by stage."""

from __future__ import annotations

import pytest

from turnout.codecs import Format
from turnout.engine.explain import explain, record_batch
from turnout.errors import ConfigError
from turnout.transforms import Chain

RAW, JSON = Format(), Format("json")

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


def test_each_stage_says_what_it_did_and_why() -> None:
    """Answers come with what the predicate saw; after a failure stages are skipped."""
    record = record_batch({"topic": "a", "value": {"miles": 10, "tail": "N1"}, "headers": {"h": "x"}})

    reports = list(explain(CHAIN, RAW, JSON, record))

    assert [report.outcome for report in reports] == ["applied", "not matched", "failed", "skipped"]
    (answer,) = reports[0].answers
    assert answer.holds
    assert answer.saw == {"value.miles": "10"}
    assert (
        reports[0].before["value"],
        reports[0].after["value"],
    ) == ({"miles": 10, "tail": "N1"}, {"miles": 10, "tail": ""})
    assert not reports[1].answers[0].holds
    assert str(reports[2].error).startswith("bad: ")
    assert reports[3].after["headers"] == [["h", "x"]]


def test_a_dropped_record_and_a_broken_value() -> None:
    """A drop is told where it happens, a value that is no JSON before the first stage."""
    dropped = list(explain(CHAIN, RAW, JSON, record_batch({"topic": "b", "value": {"miles": 1}})))
    broken = list(explain(CHAIN, RAW, JSON, record_batch({"topic": "b", "value": "{"})))

    assert [report.outcome for report in dropped] == ["not matched", "dropped", "skipped", "skipped"]
    assert [report.outcome for report in broken] == ["failed", "skipped", "skipped", "skipped", "skipped"]


def test_a_record_of_another_form_is_refused() -> None:
    """All mistakes at once, with what a record has."""
    with pytest.raises(ConfigError) as refused:
        record_batch({"valeu": 1})

    assert [mistake.path for mistake in refused.value.mistakes] == ["valeu", "topic"]
