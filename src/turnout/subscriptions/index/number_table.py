"""A hash table of numbers in flat arrays, read one number at a time."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from turnout.subscriptions.index.buckets import mixed_one, shift_of, viewed

_PLACES_OF_NUMBER = 8
"""Places for each number in a table of the numbers that may be there."""

Range: TypeAlias = tuple[int, int]
"""The first of some places or entries, and the one after the last."""

NO_RANGE: Final[Range] = (0, 0)


class NumberTable:
    """Positions of numbers in a hash table of numbers.

    Attributes:
        likely: has a 1 at the remainder of each number, divided by the length: most others have a 0 there.
    """

    def __init__(self, numbers: Any, starts: Any, first: int) -> None:
        self._numbers = viewed(numbers)
        self._starts = viewed(starts)
        self._shift = shift_of(len(starts))
        self._first = first
        self.likely = bytearray(_PLACES_OF_NUMBER * len(numbers) | 1)
        np.frombuffer(self.likely, np.uint8)[numbers % len(self.likely)] = 1

    def range_of(self, number: int) -> Range:
        """Return the places of a number, one after another: no other has its hash. `NO_RANGE` without any."""
        bucket = mixed_one(number) >> self._shift
        numbers = self._numbers
        slot, end = self._starts[bucket], self._starts[bucket + 1]
        while slot < end and numbers[slot] != number:
            slot += 1
        begun = slot
        if slot < end and numbers[end - 1] == number:
            # Mostly the rest of a bucket is one number, however often.
            slot = end
        while slot < end and numbers[slot] == number:
            slot += 1
        return (self._first + begun, self._first + slot) if begun < slot else NO_RANGE
