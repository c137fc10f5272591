"""Wall clock that accepts a jump forward only after it has lasted, for deletion by age."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

JUMP_SECONDS: Final = 60.0
"""Largest lead of the wall clock over the monotonic clock between two readings."""

LASTING_SECONDS: Final = 3_600.0
"""Duration after which a jump forward is believed."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Simultaneous readings of both clocks, in seconds."""

    wall: float
    monotonic: float

    def at(self, monotonic: float) -> float:
        """Return the wall time at *monotonic*, provided that the wall clock is not set in between."""
        return self.wall + monotonic - self.monotonic


class TrustedClock:
    """Time used for the age of entries: never later than the wall clock, and not moved forward by one reading.

    A clock that is set back is followed at once, as less is old then. One that is set forward is followed after
    `LASTING_SECONDS`; until then the previous time continues by the monotonic clock. A process that begins cannot tell
    a jump from the time that it did not run: it begins with the latest time that was written down before.

    Not safe to use from several threads at once.

    >>> wall, monotonic = [1000.0], [0.0]
    >>> clock = TrustedClock(lambda: wall[0], lambda: monotonic[0])
    >>> clock.now()
    1000.0
    >>> wall[0] += 86_400
    >>> clock.now()
    1000.0
    >>> wall[0], monotonic[0] = wall[0] + 3600, monotonic[0] + 3600
    >>> clock.now()
    91000.0

    Args:
        wall: seconds since 1970; the machine's clock if not given.
        monotonic: seconds that only grow.
    """

    def __init__(
        self, wall: Callable[[], float] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall or (lambda: time.time())
        self._monotonic = monotonic
        self._believed: _Reading | None = None
        self._jumped: _Reading | None = None

    def now(self, recorded: float | None = None) -> float:
        """Read the clocks, and return the time that is believed, in seconds since 1970.

        Args:
            recorded: the latest time that was written down before, by whatever process; used by the first reading.
        """
        reading = _Reading(self._wall(), self._monotonic())
        if self._believed is None:
            began = reading.wall if recorded is None else min(reading.wall, recorded)
            self._believed = _Reading(began, reading.monotonic)
        expected = self._believed.at(reading.monotonic)
        if reading.wall <= expected + JUMP_SECONDS or self._lasts(reading):
            self._believed, self._jumped = reading, None
            return reading.wall
        return expected

    def _lasts(self, reading: _Reading) -> bool:
        """Return True if the wall clock has been ahead by the same amount for long enough."""
        jumped = self._jumped
        if jumped is None or abs(reading.wall - jumped.at(reading.monotonic)) > JUMP_SECONDS:
            self._jumped = jumped = reading
        return reading.monotonic - jumped.monotonic >= LASTING_SECONDS
