"""The time of a MongoDB server: one clock for all machines that write to a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

_FRESH_SECONDS = 10.0
"""Seconds for which the server's time is continued by this machine's monotonic clock."""


class ServerClock:
    """Clock of the server, in seconds since 1970, queried at most once in ten seconds.

    Args:
        ask: gives the server's time; a time without a zone is UTC, as the driver returns it.
        monotonic: seconds that only grow.
    """

    def __init__(self, ask: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._answer = 0.0
        self._asked: float | None = None

    def now(self) -> float:
        """Return the server's time."""
        if self._asked is None or self._monotonic() - self._asked > _FRESH_SECONDS:
            self._answer = self._ask().replace(tzinfo=UTC).timestamp()
            self._asked = self._monotonic()
        return self._answer + self._monotonic() - self._asked
