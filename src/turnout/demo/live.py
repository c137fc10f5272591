"""The demo live: flights at a steady rate through the route of low latency, and how long each took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from turnout.demo.stage import check_stop
from turnout.demo.traffic import Traffic
from turnout.demo.year import Demo, DemoResult
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.routes.document import TriggerPart
from turnout.runtime.progress import RunResult
from turnout.spark.running.job import run
from turnout.spark.session.build import route_session

RATE: Final = 2_000
"""Messages per second."""

_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class LiveResult:
    """Result of the live demo.

    Attributes:
        demo: figures of the run and the server.
        ages: number of the messages that arrived, and percentiles of their ages in milliseconds.
    """

    demo: DemoResult
    ages: Fields


class LiveDemo:
    """Live part of a demo that has its server, its streams and its subscriptions.

    Args:
        demo: the demo.
        seconds: publish for so long; None for the whole year.
    """

    def __init__(self, demo: Demo, seconds: int | None = None) -> None:
        self._demo = demo
        self.count = demo.total if seconds is None else min(demo.total, seconds * RATE)

    def route(self) -> Route:
        """Return the demo's route with ``latency: low``."""
        route = self._demo.route()
        source = route.source.model_copy(update={"max_records_per_trigger": None})
        return replace(route, source=source, trigger=TriggerPart(latency="low"))

    def run(
        self,
        *,
        master: str,
        stop: threading.Event,
        on_ready: Callable[[], None],
        on_second: Callable[[Fields], None],
    ) -> LiveResult:
        """Run the route, publish when it is ready, and listen.

        Args:
            master: Spark's.
            stop: ends it before all is published.
            on_ready: called before the first message is published.
            on_second: called about once a second with the ages so far, and of the last second.

        Raises:
            TurnoutError: the run failed, nothing was delivered, or *stop* was set before anything was published.
        """
        demo, route, ended = self._demo, self.route(), threading.Event()
        publisher = ["-m", "turnout.demo.pace", demo.server.url, str(RATE), str(self.count)]
        with (
            # Its frames are made while Spark starts.
            Traffic(publisher, demo.server.url, "deliver.>") as traffic,
            route_session(route, master=master, log=demo.work / "spark.log") as spark,
            ThreadPoolExecutor(1, thread_name_prefix="turnout-live") as threads,
        ):
            ready = threading.Event()
            running = threads.submit(
                run, route, spark, checkpoint=demo.work / "checkpoint", stop=ended, on_ready=ready.set
            )
            try:
                _await(ready, running, stop)
                on_ready()
                begun = time.monotonic()
                ages = traffic.measured(on_second, stop)
                demo.publish_seconds = time.monotonic() - begun
            finally:
                ended.set()
            result = running.result()
        checked = demo.checked(result)
        return LiveResult(replace(checked, published=checked.ledger.source), ages)


def _await(ready: threading.Event, running: Future[RunResult], stop: threading.Event) -> None:
    """Wait until the run is ready; raise its failure."""
    while not ready.wait(_LOOK_SECONDS):
        check_stop(stop)
        if running.done():
            running.result()
