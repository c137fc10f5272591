"""Matching, covering, collisions, common filters and validity."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.subjects import strategies
from tests.vectors.outcome import OLDER_SERVERS
from tests.vectors.subject_match import python_outcomes

from turnout.subjects import MappingTable, SubjectTransform, collide, is_subset, matches
from turnout.subjects.errors import InvalidSubjectError
from turnout.subjects.pattern import common, covers_tokens


def test_a_lone_surrogate_is_refused_where_bytes_are_needed() -> None:
    """It represents no byte, so no server could have sent it."""
    with pytest.raises(InvalidSubjectError, match="lone surrogate"):
        SubjectTransform.parse("*", "{{partition(3,1)}}").apply("\ud800")


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


@given(strategies.tables_with_subjects(), strategies.draws)
def test_the_index_finds_what_trying_one_by_one_finds(case: tuple[dict[str, Any], list[str]], draw: float) -> None:
    """Shapes and dictionaries are only a faster way to the first match in order."""
    config, subjects = case
    table = MappingTable.from_config(config)
    again = pickle.loads(pickle.dumps(table))
    for subject in [*subjects, *strategies.ODD_SUBJECTS]:
        tokens = subject.split(".")
        slow = next(
            (m for m in table.mappings if m.source == subject or covers_tokens(tokens, m.source.split("."))), None
        )
        for cluster in (None, "west", "nowhere"):
            share = slow.choose(cluster, draw) if slow else None
            expected = share.transform.apply_tokens(tokens, draw) if share else None if slow else subject

            assert table.apply(subject, cluster, draw) == expected
            assert again.apply(subject, cluster, draw) == expected
        assert table.find(subject) is slow
