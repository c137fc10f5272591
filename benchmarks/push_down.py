"""A year of flights for three carriers of sixteen, with and without leaving the others at the server."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import Options, Result, cpu_seconds
from benchmarks.route import fill
from turnout.conditions import parse
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import Subscription, open_store

CARRIERS = ("UA", "B6", "WN")
RECORDS = 1_010_400


def run(options: Options) -> list[Result]:
    records = options.rows(RECORDS, 50_000)
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        with NatsServer(work / "nats") as server:
            fill(server, records)
            opened = open_store(store)
            for carrier in CARRIERS:
                condition = parse(f"topic:ops.*.???.{carrier}.?")
                opened.create(Subscription([f"deliver.{carrier.lower()}"], condition, id=carrier))
            opened.close()
            route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": store})
            with route_session(route, log=work / "spark.log") as spark:
                # What comes first pays for workers and code that both need.
                _measured("warm-up", route, spark, work, server)
                whole = _measured("read whole", route, spark, work, server)
                pushed = _measured("pushed down", _pushed(route), spark, work, server)
    if whole.extra["delivered"] != pushed.extra["delivered"]:
        raise RuntimeError(f"deliveries differ: {whole.extra} and {pushed.extra}")
    return [whole, replace(pushed, baseline=whole.case, ratio=pushed.rows_per_second / whole.rows_per_second)]


def _pushed(route: Route) -> Route:
    assert isinstance(route.source, NatsSource)
    return replace(route, source=route.source.model_copy(update={"push_down": True}))


def _measured(case: str, route: Route, spark: SparkSession, work: Path, server: NatsServer) -> Result:
    """One run over the whole stream; rows are the records of the stream, read or not."""
    begun, served = cpu_seconds(), cpu_seconds(server.pid)
    done = job.run(route, spark, once=True, checkpoint=work / f"checkpoint {case}")
    served = cpu_seconds(server.pid) - served
    spent = cpu_seconds() - begun - served
    counts = done.counts
    if not counts.conserved:
        raise RuntimeError(f"records are missing: {counts}")
    size = counts.read + counts.not_read
    return Result(
        case,
        size,
        size / done.seconds,
        extra={
            "read": counts.read,
            "not_read": counts.not_read,
            "delivered": counts.delivered,
            "seconds": round(done.seconds, 2),
            "cpu_seconds": round(spent, 2),
            "server_cpu_seconds": round(served, 2),
        },
    )
