"""Supervision of one route: a thread that runs its newest version, waits after a failure, and stops on command."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from turnout.base.background import Background, spread
from turnout.engine.counts import Counts
from turnout.errors import ConnectionLostError, Mistake, TurnoutError
from turnout.history.masking import masked_sentence
from turnout.routes import Route
from turnout.runtime.leases import Permit
from turnout.runtime.offsets import Progress, RunResult
from turnout.runtime.open_splits import SlotUse
from turnout.secrets import masked_url
from turnout.server.config import RestartsPart


class Runner(Protocol):
    """Runner of routes, each on the calling thread."""

    def mistakes(self, route: Route) -> list[Mistake]:
        """Return the reasons why this process cannot run a valid route; empty if it can."""
        ...

    def run(self, route: Route, *, stop: threading.Event, on_progress: Callable[[Progress], None]) -> RunResult:
        """Run the route until its source ends, its trigger ends the run, or *stop* is set.

        Raises:
            ConnectionLostError: a server is away.
            TurnoutError: the run failed, in a sentence.
        """
        ...

    def slots(self) -> SlotUse | None:
        """Return the use of task slots by routes of ``latency: low``; None if there are no slots."""
        ...

    def alive(self) -> bool:
        """Return True if routes can be run; False after the runner has ended."""
        ...

    def guard(self, permit: Callable[[], Permit]) -> Callable[[], bool]:
        """Write only while the lease of a leader permits it, whatever process writes.

        Returns:
            A function that returns True when routes can begin without a wait.
        """
        ...

    def close(self) -> None:
        """Close the runner after all runs have ended."""
        ...


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
        draw: Callable[[], float] = lambda: spread(1.0, 0.0),
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


_log = logging.getLogger("turnout.server")
_LINES = 3


class Phase(StrEnum):
    """Phase of a route."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """It has failed and will be started again."""
    STOPPING = "stopping"
    """Its last micro-batch is under way."""
    PAUSED = "paused"
    FAILED = "failed"
    """It has failed too often, and waits for a restart by an operator."""
    DONE = "done"
    """Its source, or its trigger, has ended it."""
    INVALID = "invalid"
    """Its file cannot be used, and no earlier version runs."""


@dataclass(frozen=True, slots=True)
class RouteVersion:
    """A route as it is to be run.

    Attributes:
        who: name of the caller, ``file`` for a change of the file.
    """

    route: Route
    text: str
    digest: str
    path: Path
    who: str


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """Status of a route.

    Attributes:
        reason: reason of a failure or a pause, as a sentence.
        since: start of the phase, in seconds since the epoch.
        retry_at: time of the next start.
        failures: failures within the policy's window.
        counts: everything since the server began.
        progress: the last micro-batch of the present run.
        last_success: end of the last micro-batch.
    """

    phase: Phase
    since: float
    reason: str = ""
    retry_at: float | None = None
    failures: int = 0
    counts: Counts = field(default_factory=Counts)
    progress: Progress | None = None
    last_success: float | None = None


class RouteObserver(Protocol):
    """Observer of a route. Called from the route's thread and from threads of commands; returns immediately."""

    def phase_changed(self, name: str, status: RouteStatus) -> None:
        """Handle a change of the phase."""
        ...

    def progressed(self, name: str, more: Counts, progress: Progress) -> None:
        """Handle a finished micro-batch; *more* is its addition to the counts."""
        ...


class Supervisor:
    """Supervisor that keeps one route running or stopped, by the last command. Commands return immediately.

    Args:
        name: the route's.
        runner: runs it.
        restarts: schedule of restarts.
        prepare: called on the route's thread before each run, and gives the route to run.
        watcher: hears of everything.
        after: another one of the same name that is still ending: both would use one checkpoint.
    """

    def __init__(
        self,
        name: str,
        runner: Runner,
        restarts: Restarts,
        *,
        prepare: Callable[[RouteVersion], Route],
        watcher: RouteObserver,
        after: Supervisor | None = None,
    ) -> None:
        self.name = name
        self._runner = runner
        self._restarts = restarts
        self._prepare = prepare
        self._watcher = watcher
        self._after = after
        self._changed = threading.Condition()
        self._version: RouteVersion | None = None
        self._should_run = False
        self._paused = ""
        self._not_before = 0.0
        self._closed = False
        self._stop: threading.Event | None = None
        self._status = RouteStatus(Phase.STARTING, time.time())
        self._background = Background(f"route {name}", self._work).start()

    @property
    def status(self) -> RouteStatus:
        """Return the current status of the route."""
        return self._status

    @property
    def idle(self) -> bool:
        """True if no run is under way, and none will start on its own."""
        with self._changed:
            return self._stop is None and not self._should_run

    # Commands

    def run(self, version: RouteVersion, *, paused_by: str = "") -> None:
        """Run this version instead of any other, or keep it ready while the route is paused."""
        with self._changed:
            self._version = version
            if paused_by or self._paused:
                self.pause(self._paused or paused_by)
            else:
                self.restart()

    def pause(self, who: str) -> None:
        """Stop after the micro-batch that is under way, and stay so."""
        with self._changed:
            self._paused = who
            self._should_run = False
            self._interrupt(Phase.PAUSED, f"paused by {who}")

    def resume(self) -> None:
        """Continue from the checkpoint."""
        with self._changed:
            self._paused = ""
            self.restart()

    def restart(self) -> None:
        """Start, or stop after the micro-batch that is under way and start again; earlier failures are forgotten."""
        with self._changed:
            self._paused = ""
            self._should_run = True
            self._not_before = 0.0
            self._restarts.forget()
            self._interrupt(Phase.STARTING, "")

    def close(self) -> None:
        """Stop after the micro-batch that is under way, for good."""
        with self._changed:
            self._closed = True
            self._background.stop()
            self._should_run = False
            self._interrupt(Phase.PAUSED, "the server ends")

    def join(self, seconds: float | None = None) -> bool:
        """Wait until a closed route has ended; whether it has."""
        return self._background.join(seconds)

    def _interrupt(self, phase: Phase, reason: str) -> None:
        if self._stop is not None:
            self._stop.set()
            phase = Phase.STOPPING
        self._set_phase(phase, reason)
        self._changed.notify_all()

    # The thread

    def _work(self) -> None:
        if self._after is not None:
            self._after.join()
            self._after = None
        while (task := self._next()) is not None:
            self._attempt(*task)

    def _next(self) -> tuple[RouteVersion, threading.Event] | None:
        with self._changed:
            while not self._closed:
                wait = self._not_before - time.monotonic() if self._should_run else None
                if self._version is not None and wait is not None and wait <= 0:
                    self._stop = threading.Event()
                    self._set_phase(Phase.STARTING)
                    return self._version, self._stop
                self._changed.wait(wait)
            return None

    def _attempt(self, version: RouteVersion, stop: threading.Event) -> None:
        before = Counts()

        def progressed(progress: Progress) -> None:
            nonlocal before
            more, before = progress.counts - before, progress.counts
            self._progressed(more, progress)

        try:
            route = self._prepare(version)
            self._set_phase(Phase.RUNNING)
            result = self._runner.run(route, stop=stop, on_progress=progressed)
            self._add(result.counts - before)
        except Exception as failure:  # noqa: BLE001 - whatever a route's failure, the others continue
            self._ended(stop, failure, version.route)
        else:
            self._ended(stop, None, version.route)

    def _progressed(self, more: Counts, progress: Progress) -> None:
        with self._changed:
            self._restarts.progressed()
            self._status = replace(self._status, progress=progress, last_success=time.time())
        self._add(more, progress)

    def _add(self, more: Counts, progress: Progress | None = None) -> None:
        """Add to the counts. A run that is stopped may have delivered a micro-batch that Spark has not reported."""
        if progress is None and not more.read:
            return
        with self._changed:
            self._status = replace(self._status, counts=self._status.counts + more)
        self._watcher.progressed(self.name, more, progress or Progress(-1, more, 0.0, 0.0, None))

    def _ended(self, stop: threading.Event, failure: Exception | None, route: Route) -> None:
        with self._changed:
            self._stop = None
            if stop.is_set():
                if failure is not None:
                    _log.warning("route %s failed while it stopped: %s", self.name, _sentence(failure))
                self._set_phase(Phase.STARTING if self._should_run else Phase.PAUSED, self._status.reason)
            elif failure is None:
                self._should_run = False
                self._set_phase(Phase.DONE, "")
            else:
                self._failed(failure, route)
            self._changed.notify_all()

    def _failed(self, failure: Exception, route: Route) -> None:
        is_turnout_error = isinstance(failure, TurnoutError)
        if not is_turnout_error:
            _log.error("route %s failed", self.name, exc_info=failure)
        sentence = _sentence(failure)
        # Every client with the right to read the route sees its status; the log has all of it.
        reason = masked_sentence(route, sentence, known=is_turnout_error)
        if is_turnout_error and reason != sentence:
            _log.error("route %s failed: %s", self.name, sentence)
        outage = isinstance(failure, ConnectionLostError)
        pause = self._restarts.after_outage() if outage else self._restarts.after_failure()
        if pause is None:
            self._should_run = False
            self._set_phase(Phase.FAILED, reason)
            return
        self._not_before = time.monotonic() + pause
        self._set_phase(Phase.WAITING, reason, retry_at=time.time() + pause)

    def _set_phase(self, phase: Phase, reason: str = "", retry_at: float | None = None) -> None:
        """Change the phase, and notify the observer."""
        with self._changed:
            before = self._status
            self._status = replace(
                before,
                phase=phase,
                since=before.since if phase == before.phase else time.time(),
                reason=reason,
                retry_at=retry_at,
                failures=self._restarts.count,
            )
            if (before.phase, before.reason) == (phase, reason):
                return
            try:
                self._watcher.phase_changed(self.name, self._status)
            except Exception:  # noqa: BLE001 - what cannot be written down should not end the route
                _log.exception("route %s is %s, which cannot be written down", self.name, phase)


def _sentence(failure: BaseException) -> str:
    """Return the failure as one line, without secrets."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return masked_url(" ".join(lines) if len(lines) <= _LINES else lines[0]) or type(failure).__name__
