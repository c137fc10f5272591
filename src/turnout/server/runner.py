"""Interface to the runner of routes: `turnout.spark.running.application`, a simpler one in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from turnout.errors import Mistake
from turnout.routes import Route
from turnout.runtime.progress import Progress, RunResult


class Runner(Protocol):
    """Runs routes, each on the thread that asks for it."""

    def mistakes(self, route: Route) -> list[Mistake]:
        """Why this process cannot run the route, valid as it may be; nothing where it can."""
        ...

    def run(self, route: Route, *, stop: threading.Event, on_progress: Callable[[Progress], None]) -> RunResult:
        """Run the route until its source ends, its trigger says so, or *stop* is set.

        Raises:
            ConnectionLostError: a server is away.
            TurnoutError: the run failed, in a sentence.
        """
        ...

    def alive(self) -> bool:
        """Return True if routes can be run; False once the runner is gone for good."""
        ...

    def close(self) -> None:
        """End what runs routes; all runs have ended before."""
        ...
