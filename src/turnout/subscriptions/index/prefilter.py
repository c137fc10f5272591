"""Numeric checks of many entries for one message, in a few calls of numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import LIMITS
from turnout.subscriptions.index.buckets import Ints
from turnout.subscriptions.index.segment import Segment

_CHECKS = 2
"""Numeric checks of a program that are evaluated here; further ones are left."""

_MOST_KEYS = 64
"""Keys whose numbers are collected from a message."""


class Remaining(NamedTuple):
    """Entries without a false numeric check of those evaluated here.

    Attributes:
        subscriptions: subscriptions of each entry.
        programs: checks of each entry.
        decided: True for entries that have no further checks.
    """

    subscriptions: Ints
    programs: Ints
    decided: NDArray[np.bool_]


class NumericPrefilter:
    """Limits of each program's first numeric checks, side by side.

    Args:
        segment: segment with the programs.

    Attributes:
        is_useful: False if the segment has no numeric checks, or those of so many keys that a loop takes less time.
    """

    def __init__(self, segment: Segment) -> None:
        arrays = segment.arrays
        self._arrays = arrays
        checks = np.flatnonzero(arrays.check_op == LIMITS << 1)
        keys, columns = np.unique(arrays.check_a.take(checks), return_inverse=True)
        self._keys: list[int] = keys.tolist()
        self.is_useful = 0 < len(keys) <= _MOST_KEYS
        # Without any programs, there is nothing to keep in memory.
        programs = len(arrays.checks_at) - 1 if self.is_useful else 0
        sizes = np.diff(arrays.checks_at)
        owner = np.repeat(np.arange(len(sizes)), sizes).take(checks)
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        rank = np.arange(len(checks)) - np.repeat(begins, np.diff(begins, append=len(checks)))
        # Side by side for each program, so that they come from memory together. The last column is of programs without
        # such a check: its number is within any limits.
        self._limits = np.full((programs, _CHECKS, 2), (-inf, inf))
        self._columns = np.full((programs, _CHECKS), len(keys), np.min_scalar_type(len(keys)))
        for number in range(_CHECKS if self.is_useful else 0):
            mine = np.flatnonzero(rank == number)
            some, limits = owner.take(mine), arrays.check_b.take(checks.take(mine))
            self._columns[some, number] = columns.take(mine)
            self._limits[some, number, 0] = arrays.limit_low.take(limits)
            self._limits[some, number, 1] = arrays.limit_high.take(limits)
            sizes[some] -= 1
        self._is_decided = sizes == 0

    def remaining(self, ranges: Sequence[tuple[int, int]], number_of: Callable[[int], float]) -> Remaining:
        """Return the entries that may match.

        Args:
            ranges: first entry and the one after the last; at least one range.
            number_of: the number that the message has as the value of a key; NaN for none.
        """
        slices = [slice(begin, end) for begin, end in ranges]
        programs = np.concatenate([self._arrays.entry_program[part] for part in slices])
        numbers = np.array([*map(number_of, self._keys), 0.0])
        own = numbers.take(self._columns.take(programs, axis=0))
        limits = self._limits.take(programs, axis=0)
        with np.errstate(invalid="ignore"):
            within = (limits[:, :, 0] <= own) & (own <= limits[:, :, 1])
        likely = within.all(axis=1)
        programs = programs[likely]
        subscriptions = np.concatenate([self._arrays.entry_subscription[part] for part in slices])[likely]
        return Remaining(subscriptions, programs, self._is_decided.take(programs))
