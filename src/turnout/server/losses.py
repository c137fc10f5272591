"""Health of routes by their losses: shares of records against limits, and against the day before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from turnout.routes.loss_limits import HealthPart
from turnout.server.loss_counts import Losses
from turnout.server.route_entry import RouteEntry
from turnout.server.state import State

WINDOW_SECONDS: Final = 15 * 60
_PAST_SECONDS: Final = 24 * 3600
_LOOK_SECONDS: Final = 15.0
_PAST_LOOK_SECONDS: Final = 300.0
"""Seconds between two sums over the many minutes of the day before."""
_MIN_RECORDS: Final = 100
"""Records, or deliveries, below which a share of the window says nothing."""
_FEW_PAST: Final = 1000
_RISE: Final = 0.2
"""Rise of a share above the day before from which on it is a problem."""

DEFAULT_LIMITS: Final = HealthPart.model_validate(
    {"deadLettered": 0.5, "discarded": 0.5, "undeliverable": 0.5, "unmatched": 1.0}
)

_WORDS: Final = {
    "dead_lettered": "of its records became dead letters",
    "discarded": "of its records failed and were discarded",
    "undeliverable": "of its deliveries were accepted by no sink",
    "unmatched": "of its records were matched by no subscription",
}


@dataclass(frozen=True, slots=True)
class LossReport:
    """Losses of a route.

    Attributes:
        shares: by kind of loss, the share in the window; absent where too few records were read.
        problems: a sentence for each share that is too large.
    """

    shares: Mapping[str, float]
    problems: tuple[str, ...]


NOTHING_LOST: Final = LossReport({}, ())


def loss_report(limits: HealthPart, recent: Losses, past: Losses) -> LossReport:
    """Return the shares of the window, and those that reach a limit or exceed the day before."""
    shares: dict[str, float] = {}
    problems: list[str] = []
    for kind, words in _WORDS.items():
        limit = getattr(limits, kind)
        share = recent.share(kind, _MIN_RECORDS)
        if share is None:
            continue
        shares[kind] = share
        if limit is False or not share:
            continue
        before = past.share(kind, _FEW_PAST)
        if limit is not None and (share > limit or share == 1.0):
            problems.append(f"{share:.0%} {words} in the last 15 minutes; its limit is {limit:.0%}")
        elif before is not None and share > before + _RISE:
            problems.append(f"{share:.0%} {words} in the last 15 minutes, {before:.0%} in the day before")
    return LossReport(shares, tuple(problems))


class LossMonitor:
    """Loss reports of all routes, updated every few seconds.

    Args:
        state: has the counts of each minute.
        entries: gives the routes.
        limits: limits of the server, for routes without their own.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        state: State,
        entries: Callable[[], list[RouteEntry]],
        limits: HealthPart | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._entries = entries
        self._limits = DEFAULT_LIMITS if limits is None else limits.over(DEFAULT_LIMITS)
        self._clock = clock
        self._reports: Mapping[str, LossReport] = {}
        self._past: Mapping[str, Losses] = {}
        self._checked_at = self._past_checked_at = float("-inf")
        self._lock = threading.Lock()

    def report(self, name: str) -> LossReport:
        """Return the losses of a route; empty before the first check."""
        return self._reports.get(name, NOTHING_LOST)

    def look_if_due(self) -> None:
        """Look, unless that was done some seconds ago."""
        if self._clock() - self._checked_at >= _LOOK_SECONDS:
            self.check()

    def check(self) -> None:
        """Compare the last minutes of all routes with their limits, and with the day before."""
        with self._lock:
            now = self._checked_at = self._clock()
            begin = now - WINDOW_SECONDS
            if now - self._past_checked_at >= _PAST_LOOK_SECONDS:
                self._past_checked_at = now
                self._past = self._state.losses(begin - _PAST_SECONDS, begin)
            recent = self._state.losses(begin, now)
            self._reports = {
                entry.name: loss_report(
                    entry.version.route.health.over(self._limits),
                    recent.get(entry.name, Losses()),
                    self._past.get(entry.name, Losses()),
                )
                for entry in self._entries()
                if entry.version is not None
            }
