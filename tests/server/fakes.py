"""Runner without Spark: it delivers the given records, and stops or fails on request."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from turnout.engine.counts import Counts, Flow
from turnout.errors import Mistake, RunError
from turnout.routes import Route
from turnout.runtime.leases import Permit
from turnout.runtime.offsets import Progress, RunResult
from turnout.runtime.open_splits import SlotUse


@dataclass
class Run:
    """One run of a route that is under way."""

    route: Route
    stop: threading.Event
    on_progress: Callable[[Progress], None]
    counts: Counts = field(default_factory=Counts)
    batches: int = 0
    failure: Exception | None = None
    finished: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def deliver(self, records: int, flow: Flow | None = None, **counts: int) -> None:
        """A micro-batch of so many records, all of them delivered unless *counts* say else."""
        more = Counts.of({"read": records, "delivered": records, "messages": records} | counts, flow)
        self.counts += more
        self.on_progress(Progress(self.batches, self.counts, 1.0, 0.1, 7, 3))
        self.batches += 1

    def fail(self, failure: Exception | None = None) -> None:
        with self.changed:
            self.failure = failure or RunError(f"route {self.route.name} failed: no luck")
            self.changed.notify_all()

    def finish(self) -> None:
        with self.changed:
            self.finished = True
            self.changed.notify_all()


class FakeRunner:
    """Runs nothing, and remembers what it was asked to run."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = defaultdict(list)
        self.refused: dict[str, str] = {}
        self.broken: dict[str, Exception] = {}
        self.lives = True
        self.used: SlotUse | None = SlotUse(2)
        self.closed = False
        self.is_warm = True
        self._active: set[str] = set()
        self._lock = threading.Lock()

    def guard(self, permit: Callable[[], Permit]) -> Callable[[], bool]:
        """Remember what is left of the lease."""
        self.permit = permit
        return lambda: self.is_warm

    def mistakes(self, route: Route) -> list[Mistake]:
        return [Mistake("spark", self.refused[route.name])] if route.name in self.refused else []

    def run(self, route: Route, *, stop: threading.Event, on_progress: Callable[[Progress], None]) -> RunResult:
        with self._lock:
            assert route.name not in self._active, "two runs of a route at once would share a checkpoint"
            self._active.add(route.name)
        try:
            return self._run(Run(route, stop, on_progress))
        finally:
            with self._lock:
                self._active.discard(route.name)

    def _run(self, run: Run) -> RunResult:
        self.runs[run.route.name].append(run)
        if run.route.name in self.broken:
            raise self.broken[run.route.name]
        with run.changed:
            while not (run.failure or run.finished or run.stop.is_set()):
                run.changed.wait(0.01)
        if run.failure:
            raise run.failure
        return RunResult(run.counts, run.batches, 1.0, stopped=run.stop.is_set())

    def slots(self) -> SlotUse | None:
        return self.used

    def alive(self) -> bool:
        return self.lives

    def close(self) -> None:
        self.closed = True
