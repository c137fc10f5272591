"""Numbers and equalities of many entries in a few calls of NumPy, before all other checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import EQUAL, LIMITS, Arrays
from turnout.subscriptions.index.buckets import Indices, Ints, indices_of

_CHECKS = 3
"""Checks of a program that are evaluated here; further ones are left."""

_MOST_KEYS = 64
"""Keys whose numbers are collected from a message."""

_MOST_COLUMNS = 16
"""Keys and facts whose numbers and literals are collected from a message; with more of them, those of keys alone."""

_MOST_PROGRAMS = 1 << 17
"""Programs, without numeric checks, whose equalities are kept side by side."""

_MANY_PROGRAMS = 1 << 12
"""Programs, without numeric checks, beyond which a loop takes less time if most of them end at their first check."""

_MOST_ENDED = 0.5
"""Share of the programs that begin with an equality, which mostly is false, from which most of them end there."""

_LEAST_SHARE = 0.5
"""Share of the programs with numeric checks from which the filter is used for batches too."""

_LEAST_DECIDED = 0.9
"""Share of the programs without further checks from which the filter is used without numeric checks."""


def _ends_early(arrays: Arrays) -> bool:
    """Return True if there are many programs, and most of them end at their first check."""
    first, behind = arrays.checks_at[:-1], arrays.checks_at[1:]
    begins = arrays.check_op.take(first[first < behind])
    ended = int(np.count_nonzero(begins == EQUAL << 1))
    return len(first) > _MANY_PROGRAMS and ended >= _MOST_ENDED * len(first)


class Remaining(NamedTuple):
    """Entries without a false check of those evaluated here.

    Attributes:
        subscriptions: subscriptions of each entry.
        programs: checks of each entry.
        decided: True for entries that have no further checks.
    """

    subscriptions: Ints
    programs: Ints
    decided: NDArray[np.bool_]


class Prefilter:
    """Limits of each program's first checks, side by side.

    A literal that a fact has to be equal to is a number between two equal limits.

    Args:
        arrays: arrays with the programs.
        many_facts: mask of the facts that may have several literals, whose checks are left.

    Attributes:
        keys: keys whose numbers are compared.
        facts: facts whose literals are.
        is_useful: False where a loop over the checks takes less time.
        is_useful_for_batches: False if few programs have numeric checks.
    """

    def __init__(self, arrays: Arrays, many_facts: NDArray[np.bool_]) -> None:
        self._program_bytes, self._subscription_bytes = arrays.entry_program.data, arrays.entry_subscription.data
        self.is_useful = self.is_useful_for_batches = False
        kinds = arrays.check_op >> 1
        numeric = indices_of(kinds == LIMITS)
        programs = len(arrays.checks_at) - 1
        if len(numeric) == 0 and (not 0 < programs <= _MOST_PROGRAMS or _ends_early(arrays)):
            return
        keys = np.unique(arrays.check_a.take(numeric))
        equal = indices_of(kinds == EQUAL)
        equal = equal[~many_facts.take(arrays.check_a.take(equal))]
        facts = np.unique(arrays.check_a.take(equal))
        if len(keys) + len(facts) > _MOST_COLUMNS:
            equal, facts = equal[:0], facts[:0]
        self.keys: list[int] = keys.tolist()
        self.facts: list[int] = facts.tolist()
        if len(keys) + len(facts) == 0 or len(keys) > _MOST_KEYS:
            return
        owner = np.searchsorted(arrays.checks_at, np.concatenate([numeric, equal]), "right") - 1
        evaluated = np.bincount(owner, minlength=programs)
        self._is_decided = (evaluated == np.diff(arrays.checks_at)) & (evaluated <= _CHECKS)
        self.is_useful = len(keys) > 0 or bool(self._is_decided.mean() >= _LEAST_DECIDED)
        self.is_useful_for_batches = len(np.unique(owner[: len(numeric)])) >= _LEAST_SHARE * programs
        if self.is_useful:
            self._read(arrays, numeric, equal, owner)

    def _read(self, arrays: Arrays, numeric: Indices, equal: Indices, owner: Indices) -> None:
        """Put the limits of programs side by side, given their checks of the two kinds and the program of each."""
        checks = np.concatenate([numeric, equal])
        literals = arrays.check_b.take(equal)
        limits = arrays.check_b.take(numeric)
        low = np.concatenate([arrays.limit_low.take(limits), literals])
        high = np.concatenate([arrays.limit_high.take(limits), literals])
        negated = (arrays.check_op.take(checks) & 1).astype(np.bool_)
        columns = np.concatenate(
            [
                np.searchsorted(self.keys, arrays.check_a.take(numeric)),
                np.searchsorted(self.facts, arrays.check_a.take(equal)) + len(self.keys),
            ]
        )
        order = np.argsort(owner, kind="stable")
        begins = indices_of(np.diff(owner.take(order), prepend=-1))
        rank = np.arange(len(checks)) - np.repeat(begins, np.diff(begins, append=len(checks)))
        slots = min(int(rank.max()) + 1, _CHECKS)
        # Side by side for each program, so that they come from memory together. The last column is of programs without
        # such a check: its number is within any limits.
        count, programs = len(self.keys) + len(self.facts), len(self._is_decided)
        self._limits = np.full((programs, slots, 2), (-inf, inf))
        self._columns = np.full((programs, slots), count, np.min_scalar_type(count))
        self._negated = np.zeros((programs, slots), np.bool_) if negated.any() else None
        for slot in range(slots):
            mine = order.take(indices_of(rank == slot))
            some = owner.take(mine)
            self._columns[some, slot] = columns.take(mine)
            self._limits[some, slot, 0] = low.take(mine)
            self._limits[some, slot, 1] = high.take(mine)
            if self._negated is not None:
                self._negated[some, slot] = negated.take(mine)

    def remaining(self, ranges: Iterable[tuple[int, int]], values: Sequence[float]) -> Remaining:
        """Return the entries of one message that may match.

        Args:
            ranges: first entry and the one after the last; at least one range.
            values: the numbers that the message has as the values of `keys`, NaN for none; then the literals that it
                has in `facts`, 0 for none.
        """
        programs = _joined(self._program_bytes, ranges)
        numbers = np.array([*values, 0.0])
        within = _within(self._limits.take(programs, axis=0), numbers.take(self._columns.take(programs, axis=0)))
        if self._negated is not None:
            within ^= self._negated.take(programs, axis=0)
        likely = within.all(axis=1)
        programs = programs[likely]
        subscriptions = _joined(self._subscription_bytes, ranges)[likely]
        return Remaining(subscriptions, programs, self._is_decided.take(programs))

    def remaining_candidates(
        self,
        rows: Indices,
        programs: Ints,
        count: int,
        numbers_of: Callable[[int], NDArray[np.float64]],
        literals_of: Callable[[int], Ints],
    ) -> tuple[Indices, NDArray[np.bool_]]:
        """Return the indices of the candidates of a batch that may match, and a mask of those without further checks.

        Args:
            rows: row of each candidate.
            programs: checks of each candidate.
            count: number of rows.
            numbers_of: the numbers that the rows have as the values of a key; NaN for none.
            literals_of: the literals that the rows have in a fact; 0 for none.
        """
        columns = self._columns.take(programs, axis=0)
        readers = [*((numbers_of, key) for key in self.keys), *((literals_of, fact) for fact in self.facts)]
        numbers = np.zeros((len(readers) + 1, count))
        used = np.bincount(columns.ravel(), minlength=len(numbers))
        for column in indices_of(used[:-1]).tolist():
            read, number = readers[column]
            numbers[column] = read(number)
        limits = self._limits.take(programs, axis=0)
        likely = np.ones(len(rows), np.bool_)
        # One slot after the other: NumPy takes long for arrays with short rows.
        for slot in range(columns.shape[1]):
            within = _within(limits[:, slot], numbers.take(columns[:, slot] * np.int64(count) + rows))
            if self._negated is not None:
                within ^= self._negated[:, slot].take(programs)
            likely &= within
        indices = indices_of(likely)
        return indices, self._is_decided.take(programs.take(indices))


def _within(limits: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the numbers that are within their limits."""
    with np.errstate(invalid="ignore"):
        within: NDArray[np.bool_] = (limits[..., 0] <= numbers) & (numbers <= limits[..., 1])
    return within


def _joined(numbers: memoryview, ranges: Iterable[tuple[int, int]]) -> Ints:
    """Return the numbers of ranges in one array, in less time than NumPy's slices of a few numbers take."""
    return np.frombuffer(b"".join([numbers[begin:end] for begin, end in ranges]), np.int32)
