"""A route on a Spark standalone cluster of one worker and of two, each with one core, all on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks._cluster import StandaloneCluster
from benchmarks._flights import publish, supply
from benchmarks.harness import Case, Options, Result, Setup, cpu_seconds
from benchmarks.route import empty_outputs, flights_server
from turnout.demo.flights import FlightMessage
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.spark.running import job
from turnout.spark.session.build import route_session

_ONE = "1 worker"
_WORKERS = {_ONE: 1, "2 workers": 2}


def cases(options: Options) -> Iterator[Case]:
    """A case for both numbers of workers."""
    yield Case("cluster", partial(_both, options.rows(100_000, 20_000), 100 if options.quick else 1_000))


def _both(records: int, subscriptions: int) -> Iterator[Result]:
    with flights_server(subscriptions) as (server, environment, work):
        route, flights = Route.load(route_file(), environment), supply()
        # Five micro-batches, of which the first is not measured; in each as many tasks as two workers have cores.
        update = {"partitions": 2, "max_records_per_trigger": max(1, records // 5)}
        route = replace(route, source=route.source.model_copy(update=update))
        one: Result | None = None
        for case, workers in _WORKERS.items():
            result = _measure(route, work / str(workers), case, workers, server, one, flights.take(records))
            one = one or result
            yield result


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
    reports: list[tuple[job.Progress, float]] = []
    empty_outputs(server)
    publish(server.url, sent)
    with (
        StandaloneCluster(work, workers) as cluster,
        route_session(route, master=cluster.url, log=work / "spark.log") as spark,
    ):
        done = job.run(
            route,
            spark,
            once=True,
            checkpoint=work / "checkpoint",
            on_progress=lambda progress: reports.append((progress, cpu_seconds() - cpu_seconds(server.pid))),
        )
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
        },
    )
