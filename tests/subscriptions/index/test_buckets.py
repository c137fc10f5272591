"""Hash tables of flat arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnout.subscriptions.index.arrays import arranged, expanded, in_bucket, mixed


@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=200))
def test_each_row_is_in_the_bucket_of_its_hash(keys: list[int]) -> None:
    """A look-up gives it among the rows of its bucket."""
    hashes = mixed(np.array(keys, np.int64))
    order, starts = arranged(hashes)

    which, rows = in_bucket(starts, hashes)

    found = set(zip(which.tolist(), order.take(rows).tolist(), strict=True))
    assert {(number, number) for number in range(len(keys))} <= found


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_ranges_are_expanded(ranges: list[tuple[int, int]]) -> None:
    """Empty ones have no element."""
    first, count = (np.array([pair[side] for pair in ranges], np.int64) for side in (0, 1))
    owner, position = expanded(first, count)

    assert list(zip(owner.tolist(), position.tolist(), strict=True)) == [
        (number, at) for number, (start, size) in enumerate(ranges) for at in range(start, start + size)
    ]
