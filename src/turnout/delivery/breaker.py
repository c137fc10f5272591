"""Circuit breaker: after consecutive failures only probes are sent, until one of them succeeds."""

from __future__ import annotations

from turnout.subscriptions.delivery_settings import MONTH


class Breaker:
    """State of one circuit breaker; times are seconds of any one clock.

    Args:
        failures: consecutive failures that open it; 0 for never.
        pause: seconds until the first probe; doubles with each probe that fails.
        probe: seconds after which a probe without an outcome is given up.

    >>> breaker = Breaker(2, 30.0)
    >>> breaker.failed(0.0), breaker.failed(1.0), breaker.wait(1.0)
    (None, None, 30.0)
    >>> breaker.sent(31.0), breaker.wait(31.0) > 0
    (None, True)
    >>> breaker.succeeded(), breaker.wait(31.0)
    (None, 0.0)
    """

    def __init__(self, failures: int, pause: float, probe: float = 90.0) -> None:
        self._limit = failures
        self._pause = pause
        self._failures = 0
        self._next_pause = pause
        self._probe = probe
        self._opens_at = 0.0
        self._is_probing = False
        self.is_open = False

    def wait(self, now: float) -> float:
        """Return the seconds until a request may be sent."""
        return max(0.0, self._opens_at - now) if self.is_open else 0.0

    def sent(self, now: float) -> None:
        """Count a request; of an open breaker it is the probe, and no other follows until its outcome is known."""
        if self.is_open:
            self._opens_at, self._is_probing = now + self._probe, True

    def abandoned(self, now: float) -> None:
        """Allow another probe: the last request was not sent, and has no outcome."""
        if self.is_open and self._is_probing:
            self._opens_at, self._is_probing = now, False

    def succeeded(self) -> None:
        """Close it."""
        self._failures, self._next_pause, self.is_open, self._is_probing = 0, self._pause, False, False

    def failed(self, now: float) -> None:
        """Count a failure, and open it after the last one that is allowed."""
        self._failures += 1
        if not self._limit or self._failures < self._limit:
            return
        if self.is_open and not self._is_probing:
            # A request that was under way when it opened says nothing new.
            return
        self.is_open, self._is_probing = True, False
        self._opens_at = now + self._next_pause
        self._next_pause = min(2 * self._next_pause, MONTH)
