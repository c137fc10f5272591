"""Order of a feed over the partitions of a topic."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnout.history.feed import _in_turns

MATCHES = st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 50), max_size=8).map(sorted), max_size=5)


def one_by_one(matches: dict[int, list[int]], last: int) -> list[tuple[int, int]]:
    """The reference: the next partition behind the last one that has a match gives it."""
    left = {partition: list(offsets) for partition, offsets in matches.items()}
    keys: list[tuple[int, int]] = []
    while waiting := [partition for partition, offsets in left.items() if offsets]:
        last = min(waiting, key=lambda partition: (partition <= last, partition))
        keys.append((last, left[last].pop(0)))
    return keys


def in_turns(matches: dict[int, list[int]], last: int) -> list[tuple[int, int]]:
    """The keys of streams that are named by the partition, with and without matches."""
    found = {f"{partition}": np.array(matches.get(partition, []), np.int64) for partition in range(7)}
    return [(int(name), offset) for name, offset in _in_turns(found, f"{last}")]


@given(MATCHES, st.integers(-1, 6))
def test_partitions_take_turns(matches: dict[int, list[int]], last: int) -> None:
    """As if each match was chosen by itself."""
    assert in_turns(matches, last) == one_by_one(matches, last)


@given(MATCHES, st.integers(1, 4))
def test_the_size_of_pages_changes_no_order(matches: dict[int, list[int]], limit: int) -> None:
    """Each page continues with the partition behind the last one of the page before."""
    left, last = {partition: list(offsets) for partition, offsets in matches.items()}, -1
    keys: list[tuple[int, int]] = []
    while any(left.values()):
        for partition, offset in islice(in_turns(left, last), limit):
            keys.append((partition, offset))
            left[partition].remove(offset)
            last = partition

    assert keys == one_by_one(matches, -1)
