"""Restart times of a failed route: with growing pauses, and a limit."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

from turnout.server.config import RestartsPart

_DOUBLINGS = 20


class Restarts:
    """Counter of one route's failures, which determines the pause after each.

    The pause doubles with each failure in the window, with a random factor between 0.5 and 1: routes that fail together
    do not restart together.

    Args:
        policy: number and delays of restarts.
        clock: seconds that only grow.
        draw: a number from 0 to 1.
    """

    def __init__(
        self,
        policy: RestartsPart,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._draw = draw
        self._failures: deque[float] = deque()
        self._outages = 0

    @property
    def count(self) -> int:
        """Number of failures within the window."""
        since = self._clock() - self._policy.window
        while self._failures and self._failures[0] < since:
            self._failures.popleft()
        return len(self._failures)

    def after_failure(self) -> float | None:
        """Return the seconds to wait after one more failure; None if the limit is exceeded."""
        self._failures.append(self._clock())
        return None if self.count > self._policy.max else self._pause(self.count)

    def after_outage(self) -> float:
        """Seconds to wait after a server was found to be away: that is not the route's fault, and never parks it."""
        self._outages += 1
        return self._pause(self._outages)

    def progressed(self) -> None:
        """Reset the count of outages after progress of the route."""
        self._outages = 0

    def forget(self) -> None:
        """Reset all counts, as a restart was requested."""
        self._failures.clear()
        self._outages = 0

    def _pause(self, failures: int) -> float:
        whole = min(self._policy.longest, self._policy.pause * 2.0 ** min(failures - 1, _DOUBLINGS))
        return whole * (0.5 + 0.5 * self._draw())
