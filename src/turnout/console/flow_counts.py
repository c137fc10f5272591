"""Recent traffic of a route, from the counts per minute that the server keeps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.engine.counts import Counts
from turnout.server.minutes import MinuteCounts
from turnout.server.state import State

HOUR = 3600
_RECENT_SECONDS = 60
"""The rate is that of the last minute that is over and of the one that has begun."""


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """Counts of some minutes.

    Attributes:
        total: all of them.
        recent: those of the last one to two minutes.
        recent_seconds: duration of that period.
        read: records read a second, minute by minute, the oldest first.
        sent: messages sent a second, likewise.
    """

    total: Counts
    recent: Counts
    recent_seconds: float
    read: Sequence[float]
    sent: Sequence[float]

    def rate(self, count: str) -> float:
        """Return the recent rate a second of a count, by its name."""
        value: int = getattr(self.recent, count)
        return value / self.recent_seconds

    def taken(self, stage: str) -> tuple[int, float]:
        """Return the number of records that entered a stage, and their current rate per second."""
        return self.total.flow.taken.get(stage, 0), self.recent.flow.taken.get(stage, 0) / self.recent_seconds

    def failed(self, *stages: str) -> tuple[int, float]:
        """Return the number of records that failed in some stages, and their current rate per second."""
        total, recent = (
            sum(period.flow.failed.get(name, 0) for name in stages) for period in (self.total, self.recent)
        )
        return total, recent / self.recent_seconds


def recent_of(state: State, route: str, now: float) -> tuple[Counts, float]:
    """Return the counts of a route in the minute that is over and the one that has begun, and their duration."""
    since = int(now // 60) * 60 - _RECENT_SECONDS
    return sum((minute.counts for minute in state.counts(route, since)), Counts()), now - since


def traffic_of(state: State, route: str) -> RecentTraffic:
    """Return the traffic of a route in the last hour."""
    now = time.time()
    this_minute = int(now // 60) * 60
    first = this_minute - HOUR + 60
    minutes = {minute.at: minute for minute in state.counts(route, first)}
    by_minute = [minutes.get(at, MinuteCounts(at, Counts())) for at in range(first, this_minute + 60, 60)]
    recent = [minute for minute in by_minute if minute.at >= this_minute - _RECENT_SECONDS]
    return RecentTraffic(
        total=sum((minute.counts for minute in by_minute), Counts()),
        recent=sum((minute.counts for minute in recent), Counts()),
        recent_seconds=_RECENT_SECONDS + now - this_minute,
        read=[minute.counts.read / 60 for minute in by_minute],
        sent=[minute.counts.messages / 60 for minute in by_minute],
    )
