"""Rows of a batch in which no leaf about any value can be true, found for all rows together.

Such leaves look at all values of a row, so that their key nearly always has several. Rows with several values are
matched one after another; but where none of a row's values has a literal, or passes a test, that the segment has for
that key, the row matches as if it had no value at all under it, and takes the fast way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from turnout.multivalued import ANY_KEY, Texts
from turnout.subscriptions.index.arrays import HOLDS, LIMITS
from turnout.subscriptions.index.buckets import Ints, Places, indices_of
from turnout.subscriptions.index.dictionary import Column, ValueDictionaries
from turnout.subscriptions.index.segment import Segment

_MOST_TESTS = 64
"""Tests of values that are tried on each different one; with more, every row counts as one that may match."""


def may_match(
    segments: Iterable[Segment], books: ValueDictionaries, values: Sequence[Texts | None]
) -> NDArray[np.bool_]:
    """Return a mask of the rows in which some leaf about any value may be true.

    Args:
        segments: of which the leaves are.
        books: the dictionaries of the segments' keys.
        values: the texts of each row.
    """
    flat: list[str] = []
    counts: list[int] = []
    for texts in values:
        before = len(flat)
        if isinstance(texts, str):
            flat.append(texts)
        elif texts is not None:
            flat += texts
        counts.append(len(flat) - before)
    codes, which = np.unique(books.book(ANY_KEY).codes(Column(flat)), return_inverse=True)
    wanted = np.zeros(len(codes), np.bool_)
    for segment in segments:
        if ANY_KEY in segment.head.keys:
            wanted |= _wanted(segment, books, codes)
    mask = np.zeros(len(values), np.bool_)
    mask[np.arange(len(values)).repeat(counts)[wanted.take(which)]] = True
    return mask


def _wanted(segment: Segment, books: ValueDictionaries, codes: Ints) -> NDArray[np.bool_]:
    """Return a mask of the codes whose value has a literal, or passes a test, of the segment."""
    key = segment.head.keys.index(ANY_KEY)
    tables = books.tables(segment)
    wanted = np.zeros(len(codes), np.bool_)
    singles = tables.singles()
    for fact in indices_of(segment.key_of_fact == key).tolist():
        if segment.many[fact]:
            first = tables.several(fact).first
            wanted |= first.take(codes + 1) > first.take(codes)
        else:
            wanted |= tables.literals_of(singles, np.full(len(codes), fact, np.int32), codes) > 0
    if _asked(segment, key, LIMITS).size:
        wanted |= ~np.isnan(tables.numbers(key).take(codes))
    tests = np.unique(_asked(segment, key, HOLDS))
    if tests.size > _MOST_TESTS:
        wanted[:] = True
    for test in tests.tolist():
        left = indices_of(~wanted)
        pairs = (np.int64(test) << 32) | codes.take(left).astype(np.int64)
        wanted[left] = tables.verdicts(pairs, np.full(len(left), key, np.int64))
    return wanted


def _asked(segment: Segment, key: int, kind: int) -> Places:
    """Return what the segment's checks of a kind ask about the values of a key."""
    arrays = segment.arrays
    checks = indices_of((arrays.check_op >> 1 == kind) & (arrays.check_a == key))
    nodes = indices_of((arrays.node_op >> 1 == kind) & (arrays.node_a == key))
    return np.concatenate([arrays.check_b.take(checks), arrays.node_b.take(nodes)]).astype(np.int64)
