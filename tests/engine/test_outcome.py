"""Outcomes of records."""

from __future__ import annotations

from turnout.engine.counts import Outcome, StageResult, outcome_of_rejected
from turnout.routes import Route

ROUTE = """
name: r
source: {format: nats, servers: "nats://127.0.0.1:1", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:1", stream: null}
errors: {tolerance: all}
"""


def test_rejected_records_go_to_dead_letters_where_there_are_any() -> None:
    """Otherwise they are discarded."""
    assert outcome_of_rejected(Route.parse(ROUTE, {})) is Outcome.DISCARDED
    assert outcome_of_rejected(Route.parse(ROUTE + "deadLetter: {topic: dead}\n", {})) is Outcome.DEAD_LETTERED


def test_labels_are_words() -> None:
    """Labels follow the names of counts; explain says dropped where tap says filtered."""
    assert [outcome.label for outcome in Outcome][:3] == ["delivered", "filtered", "lost_by_weight"]
    assert (StageResult.FILTERED.value, StageResult.FILTERED.explained) == ("filtered", "dropped")
    assert StageResult.FAILED.explained == "failed"
