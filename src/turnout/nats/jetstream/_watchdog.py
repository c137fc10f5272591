"""Detection of consumers that are silent for too long (ADR-15, "Heartbeats")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class Watchdog:
    """Calls *alarm* with the seconds of silence, once per period of silence, until it is stopped.

    Args:
        limit: seconds of silence that are too many.
        alarm: what to call; the watch goes on afterwards.
    """

    __slots__ = ("_alarm", "_limit", "_reported", "_timer", "last_seen")

    def __init__(self, limit: float, alarm: Callable[[float], None]) -> None:
        self._limit = limit
        self._alarm = alarm
        self._timer: asyncio.TimerHandle | None = None
        self.last_seen = monotonic()
        self._reported = self.last_seen

    def start(self) -> None:
        """Begin to watch; silence counts from now."""
        self.stop()
        self.last_seen = self._reported = monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._look)

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        # A program that blocked the loop wakes with timers due and frames unread: let the socket speak first.
        self._timer = asyncio.get_running_loop().call_later(0.01, self._judge)

    def _judge(self) -> None:
        now = monotonic()
        since = max(self.last_seen, self._reported)
        rest = self._limit - (now - since)
        if rest > 0:
            self._timer = asyncio.get_running_loop().call_later(rest, self._look)
            return
        self._reported = now
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._look)
        self._alarm(now - self.last_seen)
