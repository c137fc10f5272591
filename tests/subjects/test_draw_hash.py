"""Draws of a few records and of many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.subjects import draw_hash


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from([None, 0, 7]), st.none() | st.integers(0, 2**63 - 1))))
def test_draws(records: list[Any]) -> None:
    """A few records have the draws that many have."""

    def draws() -> list[float]:
        topics, partitions, offsets = ([record[part] for record in records] for part in range(3))
        return draw_hash.draws_of(topics, partitions, offsets).tolist()

    few = draws()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_hash, "_MAX_LISTED_DRAWS", -1)
        assert draws() == few
