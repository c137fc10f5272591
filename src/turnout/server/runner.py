"""Interface to the runner of routes: `turnout.spark.running.application`, a simpler one in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from turnout.errors import Mistake
from turnout.routes import Route
from turnout.runtime.open_splits.slots import SlotUse
from turnout.runtime.progress import Progress, RunResult


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

    def close(self) -> None:
        """Close the runner after all runs have ended."""
        ...
