"""A route on a Spark standalone cluster of one worker and of two, each with one core, all on this machine."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks._cluster import StandaloneCluster
from benchmarks.harness import Options, Result, cpu_seconds
from turnout.demo.flights import messages
from turnout.demo.stage import streams, subscribe
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream
from turnout.routes import Route
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import open_store

_ONE = "1 worker"
_WORKERS = {_ONE: 1, "2 workers": 2}


def run(options: Options) -> list[Result]:
    records = options.rows(336_776, 20_000)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        with NatsServer(work / "nats") as server:
            _fill(server, records)
            opened = open_store(store)
            subscribe(opened, 100 if options.quick else 1_000)
            opened.close()
            route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": store})
            # Five micro-batches, of which the first is not measured; in each as many tasks as two workers have cores.
            update = {"partitions": 2, "max_records_per_trigger": max(1, records // 5)}
            route = replace(route, source=route.source.model_copy(update=update))
            for case, workers in _WORKERS.items():
                if options.wants(case):
                    one = next((result for result in results if result.case == _ONE), None)
                    results.append(_measure(route, work / str(workers), case, workers, server, one))
    return results


def _measure(route: Route, work: Path, case: str, workers: int, server: NatsServer, one: Result | None) -> Result:
    """The route from the beginning; figures from the second micro-batch on, when the executors' workers are warm."""
    work.mkdir()
    reports: list[tuple[job.Progress, float]] = []
    with Connection.open(server.url) as connection:
        # Made anew, so that the server does not take the second cluster's messages for repeated ones.
        for config in streams()[1:]:
            delete_stream(connection, str(config["name"]))
            create_stream(connection, config)
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
        speed,
        baseline=_ONE if one else None,
        ratio=speed / one.rows_per_second if one else None,
        extra={
            "micro_batches": done.batches,
            "messages": done.counts.messages,
            "cpu_us": round((last_cpu - first_cpu) / max(1, records) * 1e6, 1),
            "first_batch_seconds": round(first.seconds, 1),
        },
    )


def _fill(server: NatsServer, records: int) -> None:
    with Connection.open(server.url) as connection:
        for config in streams():
            create_stream(connection, config)
        with Publisher(connection) as publisher:
            for message in messages(records):
                publisher.publish(message.subject, message.payload, message.headers)
