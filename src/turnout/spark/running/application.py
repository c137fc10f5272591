"""One Spark application for many routes: a session, a streaming query and a scheduling pool for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.errors import Mistake, RunError
from turnout.routes import Route
from turnout.runtime.java import run_error
from turnout.runtime.offsets import Progress, RunResult
from turnout.runtime.open_splits import SLOTS, SlotUse
from turnout.spark.running.job import run
from turnout.spark.running.open_run import task_slots
from turnout.spark.session.build import server_session, session_for
from turnout.spark.session.route_properties import missing_properties

_FAIR = {"spark.scheduler.mode": "FAIR"}


class Application:
    """Runs routes, each on the calling thread and in its own session with its own properties.

    The tasks of routes take turns (FAIR scheduling): one that reads a year of messages does not keep a trickle waiting.
    Settings of the JVM as a whole, like its memory or jars, have to be known when it starts.

    Args:
        routes: the known routes; the application gets the dependencies of their endpoints, as a connector.
        master: Spark's master.
        properties: Spark properties, over turnout's own.
        log: file for the standard error of the JVM and the workers.
    """

    def __init__(
        self,
        routes: Iterable[Route] = (),
        *,
        master: str = "local[*]",
        properties: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._session: SparkSession = server_session(
            list(routes), master=master, properties={**_FAIR, **(properties or {})}, log=log
        )
        # Read once: later callers, like metrics, need not wait for the JVM.
        self._id = str(self._session.sparkContext.applicationId)
        self._slots = task_slots(self._session)
        self._closed = False

    def mistakes(self, route: Route) -> list[Mistake]:
        """Return the properties that require a restart of the application."""
        return [
            Mistake(
                name, f"a running application cannot take {value!r}: set it in turnout.yaml, and start the server again"
            )
            for name, value in missing_properties(self._session, route).items()
        ]

    def run(self, route: Route, *, stop: threading.Event, on_progress: Callable[[Progress], None]) -> RunResult:
        """Run the route on the calling thread, until it ends or is to stop; see `turnout.spark.running.job.run`."""
        try:
            # Holds for this thread, and those that Spark starts from it.
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", route.name)
            session = session_for(self._session, route)
            return run(route, session, stop=stop, on_progress=on_progress)
        except PySparkException as failure:
            raise run_error(f"route {route.name} failed", failure) from failure
        except (ConnectionError, EOFError) as failure:
            if self.alive():
                raise
            raise RunError(f"route {route.name} failed: the Spark session has ended") from failure

    def slots(self) -> SlotUse:
        """Return the use of the application's task slots by open splits."""
        return SLOTS.use(self._id, self._slots)

    def alive(self) -> bool:
        """Return True if the JVM answers."""
        with suppress(Exception):
            # A question that a context which has stopped refuses, as a JVM does which is no longer there.
            return not self._closed and self._session.sparkContext.defaultParallelism > 0
        return False

    def close(self) -> None:
        """Stop the application."""
        self._closed = True
        with suppress(Exception):
            self._session.stop()
