"""A route on a Spark standalone cluster of one, two and four workers, each with one core, all on this machine.

More workers than cores make nothing faster; the figures show what a worker more adds to planning, to commits, to tasks
and to the distribution of the index. `tools.scale_out` extrapolates from them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from benchmarks._cluster import StandaloneCluster
from benchmarks._flights import publish, supply
from benchmarks.growth import generated
from benchmarks.harness import Case, Options, Result, Setup, clock, cpu_seconds
from benchmarks.route import empty_outputs, flights_server
from turnout.demo.flights import FlightMessage
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.runtime.driver import IndexServer
from turnout.runtime.offsets import Progress
from turnout.runtime.revisions import Revisions
from turnout.runtime.task_index import IndexLocation
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import Snapshot

_ONE = "1 worker"
_WORKERS = {_ONE: 1, "2 workers": 2, "4 workers": 4}

_PLANNING = ("latestOffset", "getBatch", "queryPlanning")
_COMMITTING = ("walCommit", "commitOffsets")
"""Spark's names for the durations of a micro-batch."""

_TASKS = 1_600
"""As many as 100 executors of 16 cores run at once."""

_REPORT_SECONDS = 5.0


def cases(options: Options) -> Iterator[Case]:
    """The route on each cluster, and copies of an index for executors on other hosts."""
    yield Case("cluster", partial(_all, options.rows(100_000, 20_000), 100 if options.quick else 1_000))
    yield Case("index", partial(_copies, 1_000 if options.quick else 100_000))


def _all(records: int, subscriptions: int) -> Iterator[Result]:
    with flights_server(subscriptions) as (server, environment, work):
        route, flights = Route.load(route_file(), environment), supply()
        one: Result | None = None
        for case, workers in _WORKERS.items():
            # Five micro-batches, of which the first is not measured; in each as many tasks as workers have cores.
            update = {"partitions": workers, "max_records_per_trigger": max(1, records // 5)}
            own = replace(route, source=route.source.model_copy(update=update))
            result = _measure(own, work / str(workers), case, workers, server, one, flights.take(records))
            one = one or result
            yield result


class _Durations(StreamingQueryListener):
    """Durations of the micro-batches in milliseconds, as Spark reports them."""

    def __init__(self) -> None:
        self.batches: list[dict[str, int]] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Keep the durations of a micro-batch that had records."""
        if "addBatch" in event.progress.durationMs:
            self.batches.append(dict(event.progress.durationMs))

    def await_all(self, count: int) -> None:
        """Wait until Spark has reported so many micro-batches."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while len(self.batches) < count and time.monotonic() < deadline:
            time.sleep(0.05)

    def of(self, names: tuple[str, ...]) -> float:
        """Return the median of the sum of these durations, without the first micro-batch."""
        later = self.batches[1:] or self.batches
        return median(sum(batch.get(name, 0) for name in names) for batch in later)


def _measure(
    route: Route,
    work: Path,
    case: str,
    workers: int,
    server: NatsServer,
    one: Result | None,
    sent: list[FlightMessage],
) -> Result:
    """The route from the beginning; figures from the second micro-batch on, when the executors' workers are warm."""
    work.mkdir()
    reports: list[tuple[Progress, float]] = []
    durations = _Durations()
    empty_outputs(server)
    publish(server.url, sent)
    with (
        StandaloneCluster(work, workers) as cluster,
        route_session(route, master=cluster.url, log=work / "spark.log") as spark,
    ):
        spark.streams.addListener(durations)
        done = job.run(
            route,
            spark,
            once=True,
            checkpoint=work / "checkpoint",
            on_progress=lambda progress: reports.append((progress, cpu_seconds() - cpu_seconds(server.pid))),
        )
        durations.await_all(done.batches)
        spark.streams.removeListener(durations)
        task_us = _task_us(spark)
    if not done.counts.conserved:
        raise RuntimeError(f"records are missing: {done.counts}")
    (first, first_cpu), (last, last_cpu) = reports[0], reports[-1]
    records = last.counts.read - first.counts.read
    speed = records / (last.seconds - first.seconds) if records else done.records_per_second
    return Result(
        case,
        done.counts.read,
        (speed,),
        Setup("new", len(sent) // 5, workers),
        baseline=_ONE if one else None,
        ratio=speed / one.rows_per_second if one else None,
        extra={
            "micro_batches": done.batches,
            "messages": done.counts.messages,
            "cpu_us": (last_cpu - first_cpu) / max(1, records) * 1e6,
            "first_batch_seconds": first.seconds,
            "planning_ms": durations.of(_PLANNING),
            "committing_ms": durations.of(_COMMITTING),
            "running_ms": durations.of(("addBatch",)),
            "driver_task_us": task_us,
        },
    )


def _task_us(spark: SparkSession) -> float:
    """Return the driver's processor time for each of many empty tasks."""
    driver = next(child for child in psutil.Process().children(True) if "SparkSubmit" in " ".join(child.cmdline()))

    def run(tasks: int) -> float:
        begun = cpu_seconds(driver.pid)
        spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()
        return cpu_seconds(driver.pid) - begun

    run(_TASKS // 2)
    return run(_TASKS) / _TASKS * 1e6


def _copies(subscriptions: int) -> Iterator[Result]:
    """Copy an index from the driver to one, two and four hosts at once, each of which is a process here."""
    pinned = Snapshot(tuple(generated(subscriptions)))
    with TemporaryDirectory(prefix="turnout-bench-") as name:
        folder = Path(name)
        revisions = Revisions("memory://", folder / "index", pinned=pinned)
        with IndexServer(revisions, "127.0.0.1") as server, ProcessPoolExecutor(4, get_context("spawn")) as pool:
            megabytes = sum(file.stat().st_size for file in revisions.files(0)) / 1e6
            list(pool.map(_copied, *zip(*[(name, server.url, f"warm {host}") for host in range(4)], strict=True)))
            for hosts in _WORKERS.values():
                used = time.process_time()
                with clock() as seconds:
                    calls = [(name, server.url, f"{hosts} {host}") for host in range(hosts)]
                    list(pool.map(_copied, *zip(*calls, strict=True)))
                extra = {
                    "index_mb": megabytes,
                    "copy_ms": seconds() / hosts * 1e3,
                    "driver_cpu_ms": (time.process_time() - used) / hosts * 1e3,
                }
                setup = Setup("none", None, hosts)
                yield Result(f"index to {hosts} hosts", subscriptions, (hosts / seconds(),), setup, extra=extra)
        revisions.close()


def _copied(folder: str, url: str, host: str) -> int:
    """Open the index as a process of another host does, and return its size."""
    scratch = Path(folder) / host
    scratch.mkdir()
    os.environ["SPARK_EXECUTOR_DIRS"] = str(scratch)
    return len(IndexLocation(str(scratch / "elsewhere"), host.replace(" ", "-"), url).open(0))
