"""Matching a batch whose rows have several values under the key that stands for all keys.

Such a key nearly always has several values, so that rows with it would have to be matched one after another. Its facts
are looked up in the tables of a batch like several texts of one value: a row has the literals of all
its values. Numbers are left out: rows with some are matched one after another where a segment has numeric leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.multivalued import ANY_KEY, Texts
from turnout.subscriptions.index.arrays import LIMITS
from turnout.subscriptions.index.buckets import Indices, Ints, expanded, indices_of
from turnout.subscriptions.index.dictionary import ValueDictionaries
from turnout.subscriptions.index.facts import CELL, SPAN
from turnout.subscriptions.index.match_batch import _Columns, _Pairs, _Rows, joined
from turnout.subscriptions.index.message_columns import Column
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.tables import Tables


class AnyCodes(NamedTuple):
    """Codes of the values of each row under `ANY_KEY`; those of a row are ``codes[first[row]:first[row + 1]]``."""

    first: NDArray[np.int64]
    codes: Ints

    @classmethod
    def of(cls, dictionaries: ValueDictionaries, values: Sequence[Texts | None]) -> AnyCodes:
        """Return the codes of the texts of each row."""
        flat: list[str] = []
        ends = [0]
        for texts in values:
            if isinstance(texts, str):
                flat.append(texts)
            elif texts is not None:
                flat += texts
            ends.append(len(flat))
        return cls(np.array(ends, np.int64), dictionaries.dictionary(ANY_KEY).codes(Column(flat)))

    def rows(self, rows: slice) -> AnyCodes:
        """Return the codes of consecutive rows."""
        begin, end, _ = rows.indices(len(self.first) - 1)
        first = self.first[begin : end + 1]
        return AnyCodes(first - first[0], self.codes[first[0] : first[-1]])

    def of_rows(self, rows: Indices) -> tuple[Indices, Ints]:
        """Return places among these rows, and each of their codes."""
        first = self.first.take(rows)
        which, code_indices = expanded(first, self.first.take(rows + 1) - first)
        return which, self.codes.take(code_indices)


def asks_numbers(segment: Segment) -> bool:
    """Return True if a segment compares any value with numbers."""
    if ANY_KEY not in segment.head.keys:
        return False
    key = segment.head.keys.index(ANY_KEY)
    if any(name == ANY_KEY and kind in (CELL, SPAN) for name, kind in segment.head.facts):
        return True
    arrays = segment.arrays
    pairs = ((arrays.check_op, arrays.check_a), (arrays.node_op, arrays.node_a))
    return any(bool(((op >> 1 == LIMITS) & (a == key)).any()) for op, a in pairs)


def matched_any(
    segment: Segment, tables: Tables, codes: Sequence[Ints | None], count: int, texts: _Columns, of_any: AnyCodes
) -> _Pairs:
    """Return what `turnout.subscriptions.index.match_batch.matched` does, for rows with several values of `ANY_KEY`.

    Args:
        segment: subscriptions to find; it has leaves about any value.
        tables: its facts of the values in the dictionaries.
        codes: for each of the segment's keys, the code of each row's value; None if all are absent.
        count: how many rows there are.
        texts: as there.
        of_any: the codes of each row under `ANY_KEY`; none of them that of a number if the segment has numeric leaves.
    """
    of_keys = np.zeros((len(codes), count), np.int32)
    present = [segment.head.keys.index(ANY_KEY)]
    for key, own in enumerate(codes):
        if own is not None:
            of_keys[key] = own
            present.append(key)
    return _AnyRows(segment, tables, of_keys, present, texts, of_any).matched()


class _AnyRows(_Rows):
    """Current rows, with several values of one key."""

    def __init__(
        self,
        segment: Segment,
        tables: Tables,
        codes: NDArray[np.int32],
        present: Sequence[int],
        texts: _Columns,
        of_any: AnyCodes,
    ) -> None:
        super().__init__(segment, tables, codes, present, texts)
        self.of_any = of_any
        self.any_key = segment.head.keys.index(ANY_KEY)
        self.is_any = segment.key_of_fact == self.any_key
        self.many_facts = segment.many_facts | self.is_any

    def _matched(self, most: int | None) -> _Pairs:
        # Texts that exclude each other as one value do not as several.
        rows, subscriptions = super()._matched(most)
        distinct = np.unique((rows << 32) | subscriptions)
        return distinct >> 32, distinct & 0xFFFFFFFF

    def _by_halves(self) -> _Pairs:
        middle = self.count // 2
        parts = []
        for half in (slice(middle), slice(middle, None)):
            texts = {key: column.part(half) for key, column in self.texts.items()}
            codes, of_any = self.codes[:, half], self.of_any.rows(half)
            parts.append(_AnyRows(self.segment, self.tables, codes, self.present, texts, of_any).matched())
        first, (rows, subscriptions) = parts
        return joined([first, (rows + middle, subscriptions)])

    def _with_values(self, facts: Indices) -> tuple[Indices, Indices]:
        of_any = self.is_any.take(facts)
        some, rows = super()._with_values(facts[~of_any])
        everyone = np.tile(np.arange(self.count), int(of_any.sum()))
        return np.concatenate([some, facts[of_any].repeat(self.count)]), np.concatenate([rows, everyone])

    def _several(self, facts: Ints | Indices, rows: Indices) -> tuple[Indices, Ints]:
        of_any = self.is_any.take(facts)
        if not of_any.any():
            return super()._several(facts, rows)
        mine, others = indices_of(of_any), indices_of(~of_any)
        which, codes = self.of_any.of_rows(rows.take(mine))
        own = facts.take(mine).take(which)
        is_many = self.segment.many_facts.take(own)
        many, single = indices_of(is_many), indices_of(~is_many)
        index, several = self.tables.several(own.take(many), codes.take(many))
        literals = self.tables.literals_of(own.take(single), codes.take(single))
        some = indices_of(literals)
        which, literals = self._distinct(
            mine.take(np.concatenate([which.take(many.take(index)), which.take(single.take(some))])),
            np.concatenate([several, literals.take(some)]),
        )
        if not len(others):
            return which, literals
        index, several = super()._several(facts.take(others), rows.take(others))
        return np.concatenate([which, others.take(index)]), np.concatenate([literals, several])

    @staticmethod
    def _distinct(which: Indices, literals: Ints) -> tuple[Indices, Ints]:
        """Return each literal of a row once: several of its values may have it."""
        pairs = np.unique((which << 32) | literals)
        return pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.int32)

    def _equal(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        of_any = self.is_any.take(a)
        if not of_any.any():
            return super()._equal(a, b, rows)
        equal = np.zeros(len(a), np.bool_)
        mine, others = indices_of(of_any), indices_of(~of_any)
        equal[mine] = self._among_many(a.take(mine), b.take(mine), rows.take(mine))
        equal[others] = super()._equal(a.take(others), b.take(others), rows.take(others))
        return equal

    def _just_one(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        of_any = self.is_any.take(a)
        true = np.zeros(len(a), np.bool_)
        others = indices_of(~of_any)
        true[others] = super()._just_one(a.take(others), b.take(others), rows.take(others))
        mine = indices_of(of_any)
        if len(mine):
            which, literals = self._several(a.take(mine), rows.take(mine))
            members = self.segment.in_sets((b.take(mine).take(which).astype(np.int64) << 32) | literals)
            true[mine] = np.bincount(which[members], minlength=len(mine)) == 1
        return true

    def _holds(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        of_any = a == self.any_key
        true = np.zeros(len(a), np.bool_)
        mine, others = indices_of(of_any), indices_of(~of_any)
        true[others] = super()._holds(a.take(others), b.take(others), rows.take(others))
        which, codes = self.of_any.of_rows(rows.take(mine))
        pairs, inverse = np.unique((b.take(mine).take(which).astype(np.int64) << 32) | codes, return_inverse=True)
        verdicts = self.tables.verdicts(pairs, np.full(len(pairs), self.any_key, np.int64)).take(inverse)
        true[mine.take(which[verdicts])] = True
        return true
