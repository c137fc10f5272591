"""Matching, covering, collisions, common filters and validity."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vectors.outcome import OLDER_SERVERS
from tests.vectors.subject_match import python_outcomes

from turnout.subjects import collide, is_subset, matches
from turnout.subjects.pattern import common

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects" / "subject-match.json"
FILTERS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=0, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join([*tokens, ">"])] + ([".".join(tokens)] if tokens else []))
)
ALL_SUBJECTS = [".".join(s) for n in (1, 2, 3, 4) for s in itertools.product("ab", repeat=n)]


def test_every_vector_passes() -> None:
    """All that the server was asked."""
    outcomes = list(python_outcomes(json.loads(VECTORS.read_text(encoding="utf-8"))))

    assert len(outcomes) > 200
    assert [outcome for outcome in outcomes if outcome.status == "failed"] == []
    older = [outcome for outcome in outcomes if outcome.status == "unsupported"]
    assert {outcome.reason for outcome in older} == {OLDER_SERVERS}
    assert 0 < len(older) < 5


@given(FILTERS, FILTERS)
def test_a_subset_matches_nothing_that_the_other_does_not(one: str, other: str) -> None:
    """Checked on every subject of up to four tokens over two letters."""
    if is_subset(one, other):
        assert [s for s in ALL_SUBJECTS if matches(one, s) and not matches(other, s)] == []


@given(FILTERS, FILTERS)
def test_filters_collide_when_some_subject_matches_both(one: str, other: str) -> None:
    """They collide only then; four tokens are enough to find a common subject."""
    assert collide(one, other) == any(matches(one, s) and matches(other, s) for s in ALL_SUBJECTS)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a.>", "a.b", "a.b"),
        ("*.b", "a.*", "a.b"),
        (">", ">", ">"),
        ("a.*.>", "a.>", "a.*.>"),
        ("a.b", "a.c", None),
        ("a.b", "a.b.c", None),
        ("a.>", "a", None),
        ("a.>", "b.>", None),
    ],
)
def test_what_two_filters_have_in_common(one: str, other: str, both: str | None) -> None:
    """One filter again, whichever way round."""
    assert common(one, other) == common(other, one) == both


_TOKENS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
_FILTERS = st.builds(lambda tokens, full: ".".join([*tokens, ">"] if full else tokens), _TOKENS, st.booleans())
_SUBJECTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(_FILTERS, _FILTERS, _SUBJECTS)
def test_a_subject_matches_it_where_it_matches_both(one: str, other: str, subject: str) -> None:
    """It matches no other subject."""
    both = common(one, other)

    assert (both is not None and matches(both, subject)) == (matches(one, subject) and matches(other, subject))
