"""Draws of records."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnout.subjects import draw_hash


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from([None, 0, 7]), st.none() | st.integers(0, 2**63 - 1))))
def test_the_loop_hashes_as_xxhash_does(records: list[Any]) -> None:
    """A record has the same draw by the reference and by the loop."""
    topics, partitions, offsets = ([record[part] for record in records] for part in range(3))

    expected = list(map(draw_hash._digest, topics, partitions, offsets))
    assert draw_hash._digests(topics, partitions, offsets).tolist() == expected
