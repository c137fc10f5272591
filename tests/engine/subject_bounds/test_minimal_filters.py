"""Few filters that cover many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.test_subject_filters_property import _covered, filters, topics

from turnout.engine.subject_bounds.minimal_filters import minimal_filters
from turnout.subjects.pattern import collide


@given(st.lists(filters, min_size=1, max_size=40, unique=True), st.integers(1, 5), st.lists(topics, max_size=8))
def test_few_filters_cover_many(many: list[str], most: int, some: list[str]) -> None:
    """However few they are to be, what one of the filters has is still covered, and no two overlap."""
    chosen = minimal_filters(many, [">"], most)

    assert len(chosen) <= most
    assert not any(collide(one, other) for at, one in enumerate(chosen) for other in chosen[:at])
    assert all(_covered(topic, chosen) for topic in some if _covered(topic, tuple(many)))
