"""Matching, covering, collisions and validity."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.vectors.subject_match import python_outcomes

from turnout.subjects import collide, is_subset, matches

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects" / "subject-match.json"
FILTERS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=0, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join([*tokens, ">"])] + ([".".join(tokens)] if tokens else []))
)
ALL_SUBJECTS = [".".join(s) for n in (1, 2, 3, 4) for s in itertools.product("ab", repeat=n)]


def test_every_vector_passes() -> None:
    """All that the server was asked."""
    outcomes = list(python_outcomes(json.loads(VECTORS.read_text(encoding="utf-8"))))

    assert len(outcomes) > 200
    assert [outcome for outcome in outcomes if outcome.status != "passed"] == []


@given(FILTERS, FILTERS)
def test_a_subset_matches_nothing_that_the_other_does_not(one: str, other: str) -> None:
    """Checked on every subject of up to four tokens over two letters."""
    if is_subset(one, other):
        assert [s for s in ALL_SUBJECTS if matches(one, s) and not matches(other, s)] == []


@given(FILTERS, FILTERS)
def test_filters_collide_when_some_subject_matches_both(one: str, other: str) -> None:
    """And only then; four tokens are enough to find one."""
    assert collide(one, other) == any(matches(one, s) and matches(other, s) for s in ALL_SUBJECTS)
