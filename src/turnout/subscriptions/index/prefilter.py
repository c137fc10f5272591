"""Numeric checks of many entries for one message, in a few calls of numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import LIMITS
from turnout.subscriptions.index.buckets import Ints, Places
from turnout.subscriptions.index.segment import Segment

_CHECKS = 2
"""Numeric checks of a program that are evaluated here; further ones are left."""


class Remaining(NamedTuple):
    """Entries of which no numeric check evaluated here is false.

    Attributes:
        subscriptions: of each entry.
        programs: checks of each entry.
        decided: True for entries that have no further checks.
    """

    subscriptions: Ints
    programs: Ints
    decided: NDArray[np.bool_]


class NumericPrefilter:
    """Limits of each program's first numeric checks, side by side.

    Args:
        segment: whose programs they are.

    Attributes:
        keys: that limits are of.
    """

    def __init__(self, segment: Segment) -> None:
        arrays = segment.arrays
        programs = len(arrays.checks_at) - 1
        checks = np.flatnonzero(arrays.check_op == LIMITS << 1)
        keys, columns = np.unique(arrays.check_a.take(checks), return_inverse=True)
        owner = np.searchsorted(arrays.checks_at, checks, "right") - 1
        rank = np.arange(len(checks)) - np.searchsorted(owner, owner)
        self.keys: list[int] = keys.tolist()
        self._arrays = arrays
        self._limits: list[tuple[Places, NDArray[np.float64], NDArray[np.float64]]] = []
        left = np.diff(arrays.checks_at)
        for number in range(_CHECKS):
            mine = np.flatnonzero(rank == number)
            some, limits = owner.take(mine), arrays.check_b.take(checks.take(mine))
            # The last column is of programs without such a check: its number is within any limits.
            column, low, high = np.full(programs, len(keys)), np.full(programs, -inf), np.full(programs, inf)
            column[some] = columns.take(mine)
            low[some], high[some] = arrays.limit_low.take(limits), arrays.limit_high.take(limits)
            left[some] -= 1
            self._limits.append((column, low, high))
        self._is_decided = left == 0

    def remaining(self, ranges: Sequence[range], number_of: Callable[[int], float]) -> Remaining:
        """Return the entries that may match.

        Args:
            ranges: of entries, at least one.
            number_of: the number that the message has as the value of a key; NaN for none.
        """
        slices = [slice(entries.start, entries.stop) for entries in ranges]
        programs = np.concatenate([self._arrays.entry_program[part] for part in slices])
        numbers = np.array([*map(number_of, self.keys), 0.0])
        likely = np.ones(len(programs), np.bool_)
        with np.errstate(invalid="ignore"):
            for column, low, high in self._limits:
                own = numbers.take(column.take(programs))
                likely &= low.take(programs) <= own
                likely &= own <= high.take(programs)
        programs = programs[likely]
        subscriptions = np.concatenate([self._arrays.entry_subscription[part] for part in slices])[likely]
        return Remaining(subscriptions, programs, self._is_decided.take(programs))
