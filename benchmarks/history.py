"""Replay and diff beside the route's own batch, by turns over the same records: examples/flights.yaml on the flights.

Each round runs the route from the beginning, replays all of it, and compares it with itself. What is delivered goes to
streams that are made anew for each, so that the server has the same to do. ``ratio`` is the speed for each version that
is run (diff runs two) over the route's own in the same round, the median of all rounds; ``cpu_ratio`` is the same by
processor time without the server's, which other work on the machine disturbs less.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.harness import Options, Result, clock, cpu_seconds
from benchmarks.route import fill
from turnout.demo.stage import streams, subscribe
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream, delete_stream
from turnout.routes import Route
from turnout.spark.history.diff import diff
from turnout.spark.history.replay import replay
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import open_store

RECORDS = 1_010_400
ROUNDS = 3


@dataclass(frozen=True)
class Taken:
    """What one run took: seconds by the clock, and of processors' time."""

    seconds: float
    cpu: float


def run(options: Options) -> list[Result]:
    """So many rounds, the first of which warms up and does not count."""
    records = options.rows(RECORDS, 30_000)
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        fill(server, records)
        with open_store(store) as opened:
            subscribe(opened, 1_000 if options.quick else 10_000)
        route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": store})
        cases = {
            name: case for name, case in _cases(route, work, records).items() if name == "route" or options.wants(name)
        }
        with route_session(route, log=work / "spark.log") as spark:
            rounds = [_round(cases, spark, server, number) for number in range(1 + (1 if options.quick else ROUNDS))]
    return list(_results(records, rounds[1:]))


Case = Callable[[SparkSession, int], None]


def _cases(route: Route, work: Path, records: int) -> dict[str, Case]:
    def own(spark: SparkSession, number: int) -> None:
        done = job.run(route, spark, once=True, checkpoint=work / f"checkpoint-{number}")
        _check(done.counts.read, records)

    def replayed(spark: SparkSession, number: int) -> None:
        done = replay(route, spark, id=f"round{number}", folder=work / "replays")
        _check(done.counts.read, records)

    def compared(spark: SparkSession, _: int) -> None:
        _check(diff(route, route, spark).report.differences.totals["records"], records)

    return {"route": own, "replay": replayed, "diff": compared}


def _check(read: int, records: int) -> None:
    if read != records:
        raise RuntimeError(f"{read} records were read, and there are {records}")


def _round(cases: dict[str, Case], spark: SparkSession, server: NatsServer, number: int) -> dict[str, Taken]:
    taken: dict[str, Taken] = {}
    for name, case in cases.items():
        _empty(server)
        begun = cpu_seconds() - cpu_seconds(server.pid)
        with clock() as seconds:
            case(spark, number)
        taken[name] = Taken(seconds(), cpu_seconds() - cpu_seconds(server.pid) - begun)
    return taken


def _empty(server: NatsServer) -> None:
    """Make the streams that are delivered to anew."""
    with Connection.open(server.url) as connection:
        for config in streams()[1:]:
            delete_stream(connection, str(config["name"]))
            create_stream(connection, config)


def _results(records: int, rounds: list[dict[str, Taken]]) -> Iterator[Result]:
    for name in rounds[0]:
        versions = 2 if name == "diff" else 1
        own = [one["route"] for one in rounds]
        these = [one[name] for one in rounds]
        pairs = list(zip(own, these, strict=True))
        yield Result(
            f"history/{name}",
            records,
            records / median(run.seconds for run in these),
            None if name == "route" else "route",
            None if name == "route" else median(a.seconds * versions / b.seconds for a, b in pairs),
            {
                "cpu_us": round(median(run.cpu for run in these) / records * 1e6, 1),
                "cpu_ratio": "" if name == "route" else round(median(a.cpu * versions / b.cpu for a, b in pairs), 2),
                "versions": versions,
            },
        )
