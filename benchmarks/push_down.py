"""Flights for three carriers of sixteen, with and without leaving the others at the server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import SparkSession

from benchmarks._flights import publish, supply
from benchmarks.harness import Case, Options, Result, Setup, cpu_seconds, rates
from benchmarks.route import CORES, empty_outputs
from turnout.conditions import parse
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import Subscription, open_store

CARRIERS = ("UA", "B6", "WN")
RECORDS = 40_000
ROUNDS = 2


def cases(options: Options) -> Iterator[Case]:
    """One case: with and without, in alternation."""
    yield Case("push down", partial(_measure, options.rows(RECORDS, 10_000), 1 if options.quick else ROUNDS))


def _measure(records: int, rounds: int) -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder,
        NatsServer(Path(folder) / "nats") as server,
    ):
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        with open_store(store) as opened:
            for carrier in CARRIERS:
                condition = parse(f"topic:ops.*.???.{carrier}.?")
                opened.create(Subscription([f"deliver.{carrier.lower()}"], condition, id=carrier))
        route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": store})
        routes, flights = {"read whole": route, "pushed down": _pushed(route)}, supply()
        with route_session(route, log=work / "spark.log") as spark:
            # What comes first pays for workers and code that both need; deliveries are compared there.
            publish(server.url, flights.take(max(1_000, records // 10)))
            first = [_measured(f"first {name}", one, spark, work, server) for name, one in routes.items()]
            if first[0].delivered != first[1].delivered:
                raise RuntimeError(f"deliveries differ: {first}")
            taken: dict[str, list[Taken]] = {name: [] for name in routes}
            for turn in range(rounds):
                for name, one in routes.items():
                    publish(server.url, flights.take(records))
                    taken[name].append(_measured(f"{turn} {name}", one, spark, work, server))
    whole, pushed = taken.values()
    yield _result("read whole", records, whole)
    ratio = median(a.seconds / b.seconds for a, b in zip(whole, pushed, strict=True))
    yield replace(_result("pushed down", records, pushed), baseline="read whole", ratio=ratio)


def _pushed(route: Route) -> Route:
    assert isinstance(route.source, NatsSource)
    return replace(route, source=route.source.model_copy(update={"push_down": True}))


class Taken(NamedTuple):
    """What one run took, and did."""

    seconds: float
    cpu: float
    server_cpu: float
    read: int
    delivered: int


def _measured(name: str, route: Route, spark: SparkSession, work: Path, server: NatsServer) -> Taken:
    """One run over the whole stream, with new output streams."""
    empty_outputs(server)
    begun, served = cpu_seconds(), cpu_seconds(server.pid)
    done = job.run(route, spark, once=True, checkpoint=work / f"checkpoint {name}")
    served = cpu_seconds(server.pid) - served
    spent = cpu_seconds() - begun - served
    if not done.counts.conserved:
        raise RuntimeError(f"records are missing: {done.counts}")
    return Taken(done.seconds, spent, served, done.counts.read, done.counts.delivered)


def _result(case: str, records: int, taken: list[Taken]) -> Result:
    """Rows are the records of the stream, read or not."""
    extra = {
        "read": median(run.read for run in taken),
        "delivered": median(run.delivered for run in taken),
        "cpu_us": median(run.cpu for run in taken) / records * 1e6,
        "server_cpu_us": median(run.server_cpu for run in taken) / records * 1e6,
    }
    speeds = rates(records, (run.seconds for run in taken))
    return Result(case, records, speeds, Setup("new", None, CORES), extra=extra)
