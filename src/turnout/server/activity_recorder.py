"""Recorder of route activity: in the log, as events, as counts of each minute, and as metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from turnout.engine.counts import Counts
from turnout.runtime.lag import Lag
from turnout.runtime.progress import Progress
from turnout.server.events import Events
from turnout.server.minutes import MinutePace
from turnout.server.state import State
from turnout.server.supervisor import Phase, RouteStatus

_log = logging.getLogger("turnout.server")


class CountsOfRoutes(Protocol):
    """Record counters for Prometheus."""

    def progressed(self, name: str, more: Counts, progress: Progress) -> None:
        """Record a finished micro-batch."""
        ...


class Recorder:
    """Observer of all routes.

    Args:
        state: keeps the counts of each minute, whenever `flush` is called.
        events: distributes events to listeners.
        metrics: count.
        clock: seconds since the epoch.
    """

    def __init__(
        self, state: State, events: Events, metrics: CountsOfRoutes, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._state = state
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._unwritten: dict[tuple[str, int], Counts] = {}
        self._pace: dict[tuple[str, int], MinutePace] = {}

    def phase_changed(self, name: str, status: RouteStatus) -> None:
        """Record a phase change in the log and as an event."""
        worse = status.phase in (Phase.FAILED, Phase.WAITING)
        reason = f": {status.reason}" if status.reason else ""
        _log.log(logging.WARNING if worse else logging.INFO, "route %s is %s%s", name, status.phase, reason)
        detail = {"state": str(status.phase), "reason": status.reason, "retry_at": status.retry_at}
        self._events.publish("route.state", name, detail)

    def progressed(self, name: str, more: Counts, progress: Progress) -> None:
        """Record progress: metrics at once, an event at most once a second, history at the next flush."""
        self._metrics.progressed(name, more, progress)
        self._events.progress(name, {"batch": progress.batch, "counts": more.as_dict()})
        minute = self._minute()
        with self._lock:
            self._unwritten[name, minute] = self._unwritten.get((name, minute), Counts()) + more
        self._keep_pace(name, MinutePace(minute, 1, progress.batch_seconds))

    def lagged(self, name: str, lag: Lag) -> None:
        """Record the measured lag of a route."""
        self._keep_pace(
            name, MinutePace(self._minute(), lag_records=sum(lag.records.values()), lag_seconds=lag.seconds)
        )

    def _minute(self) -> int:
        return int(self._clock() // 60) * 60

    def _keep_pace(self, name: str, pace: MinutePace) -> None:
        with self._lock:
            before = self._pace.get((name, pace.at))
            self._pace[name, pace.at] = pace if before is None else before + pace

    def record(self, kind: str, name: str, **detail: object) -> None:
        """Record another event of a route."""
        _log.info("route %s: %s %s", name, kind, detail or "")
        self._events.publish(kind, name, detail)

    def flush(self) -> None:
        """Write the counts, and the pace, that are not written yet."""
        with self._lock:
            unwritten, self._unwritten = self._unwritten, {}
            unwritten_pace, self._pace = self._pace, {}
        if unwritten or unwritten_pace:
            self._state.add_history(unwritten, unwritten_pace)
