"""Literals of facts that derive several texts from a value, by fact and code, in one array for all facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turnout.subscriptions.index.buckets import GrowingArray, Indices, Ints, Longs, expanded, indices_of

_LEAST_ROOM = 256


class NewLists(NamedTuple):
    """Lists of further codes of a fact: the number of literals of each, and all of these."""

    fact: int
    counts: Longs
    literals: Ints


class Lists(NamedTuple):
    """Lists up to now. Arrays that were read before stay as they were for the codes that were known.

    Attributes:
        known: number of codes whose lists are known, by fact.
        first: index of each list's first literal; a list's index is the fact's offset plus the code.
        counts: number of literals of each list.
        offsets: by fact.
        literals: of all lists.
    """

    known: Longs
    first: Longs
    counts: Longs
    offsets: Longs
    literals: Ints

    def of(self, facts: Indices | Ints, codes: Ints) -> tuple[Indices, Ints]:
        """Return pairs of an index of these codes, which are known, and a literal of it."""
        lists = self.offsets.take(facts) + codes
        counts = self.counts.take(lists)
        some = indices_of(counts)
        which, indexes = expanded(self.first.take(lists.take(some)), counts.take(some))
        return some.take(which), self.literals.take(indexes)


class LiteralLists:
    """Lists of more and more codes.

    Args:
        facts: number of facts.
    """

    def __init__(self, facts: int) -> None:
        self._room = np.zeros(facts, np.int64)
        self._literals = GrowingArray(np.int32)
        empty = np.zeros(0, np.int64)
        self.known = Lists(np.zeros(facts, np.int64), empty, empty, np.zeros(facts, np.int64), self._literals.values)

    def extend(self, added: Sequence[NewLists]) -> None:
        """Add lists of further codes; by one thread at a time. The first code, 0, stands for no value: it has none."""
        known = np.maximum(self.known.known, 1)
        sizes = {new.fact: int(known[new.fact]) + len(new.counts) for new in added}
        self._make_room(sizes)
        _, first, counts, offsets, _ = self.known
        known = self.known.known.copy()
        for fact, own_counts, literals in added:
            end = offsets[fact] + sizes[fact]
            own = slice(end - len(own_counts), end)
            first[own] = len(self._literals) + np.cumsum(own_counts) - own_counts
            counts[own] = own_counts
            self._literals.extend(literals)
            known[fact] = sizes[fact]
        self.known = Lists(known, first, counts, offsets, self._literals.values)

    def _make_room(self, sizes: dict[int, int]) -> None:
        """Move the lists into larger arrays if these numbers of codes do not have room."""
        if all(size <= self._room[fact] for fact, size in sizes.items()):
            return
        old, old_room = self.known, self._room
        room = old_room.copy()
        for fact, size in sizes.items():
            if size > room[fact]:
                room[fact] = max(_LEAST_ROOM, 1 << size.bit_length())
        offsets = np.cumsum(room) - room
        first, counts = np.zeros((2, int(room.sum())), np.int64)
        for fact in indices_of(old_room).tolist():
            begin, begun, size = offsets[fact], old.offsets[fact], old.known[fact]
            first[begin : begin + size] = old.first[begun : begun + size]
            counts[begin : begin + size] = old.counts[begun : begun + size]
        self._room = room
        self.known = Lists(old.known, first, counts, offsets, old.literals)
