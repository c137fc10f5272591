"""Counts of outcomes, and what derives from their declarations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from turnout.engine.counts import COUNTS, OUTCOMES, Counts, numbers_of_outcomes
from turnout.engine.flow import Flow
from turnout.engine.outcome import Outcome

ROUTES_PAGE = Path(__file__).parents[2] / "docs" / "outcomes.md"


def outcomes(*labels: str) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    return np.array([Outcome[label.upper()] for label in labels], np.int8)


def test_counts_of_outcomes() -> None:
    counts = Counts.of(numbers_of_outcomes(outcomes("delivered", "filtered", "delivered", "discarded")))

    assert counts == Counts(read=4, delivered=2, filtered=1, discarded=1)
    assert counts.conserved


def test_a_record_without_an_outcome_is_missed() -> None:
    """Its run says that the counts do not add up."""
    counts = Counts.of(numbers_of_outcomes(np.array([Outcome.DELIVERED, -1], np.int8)))

    assert counts.read == 2
    assert counts.accounted == 1
    assert not counts.conserved


def test_each_outcome_is_a_count() -> None:
    assert set(OUTCOMES) < set(COUNTS)


def test_the_table_in_the_docs_is_that_of_the_declarations() -> None:
    """Copy the expected lines into docs/outcomes.md if they differ."""
    expected = "".join(f"| `{name}` | {info.unit} {info.meaning} |\n" for name, info in COUNTS.items())

    assert expected in ROUTES_PAGE.read_text(encoding="utf-8")


def test_counts_as_json() -> None:
    """Nothing is lost on the way, the flow neither; an object without counts has zeros."""
    counts = Counts(read=3, delivered=2, discarded=1, flow=Flow({"source": 3}, {"value": 1}))

    read = Counts.of_json(json.loads(json.dumps(counts.to_json())))

    assert (read, read.flow) == (counts, counts.flow)
    assert Counts.of_json({}) == Counts()
