"""Subjects that match two filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.subjects import matches
from turnout.subjects.pattern import common


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


_tokens = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
_filters = st.builds(lambda tokens, full: ".".join([*tokens, ">"] if full else tokens), _tokens, st.booleans())
_subjects = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(_filters, _filters, _subjects)
def test_a_subject_matches_it_where_it_matches_both(one: str, other: str, subject: str) -> None:
    """And only there."""
    both = common(one, other)

    assert (both is not None and matches(both, subject)) == (matches(one, subject) and matches(other, subject))
