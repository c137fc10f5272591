"""Replay and diff beside the route's own batch, by turns: examples/flights.yaml on flights, none of them twice.

Each round runs the route over the stream, replays all of it, and compares it with itself, each over as many records
that are new. What is delivered goes to
streams that are made anew for each, so that the server has the same to do. ``ratio`` is the speed for each version that
is run (diff runs two) over the route's own in the same round, the median of all rounds; ``cpu_ratio`` is the same by
processor time without the server's, which other work on the machine disturbs less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks._flights import publish, supply
from benchmarks.harness import Case, Options, Result, Setup, Supply, clock, cpu_seconds, rates
from benchmarks.route import CORES, empty_outputs, flights_server
from turnout.demo.flights import FlightMessage
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.spark.history.diff import diff
from turnout.spark.history.replay import replay
from turnout.spark.running import job
from turnout.spark.session.build import route_session

RECORDS = 40_000
ROUNDS = 2


@dataclass(frozen=True)
class Taken:
    """What one run took: seconds by the clock, and of processors' time."""

    seconds: float
    cpu: float


def cases(options: Options) -> Iterator[Case]:
    """One case: each round measures all three, in alternation."""
    records = options.rows(RECORDS, 10_000)
    yield Case("history", partial(_measure, records, 1 if options.quick else ROUNDS, quick=options.quick))


def _measure(records: int, rounds: int, *, quick: bool) -> Iterator[Result]:
    """So many rounds, after one that warms up."""
    with flights_server(1_000 if quick else 10_000) as (server, environment, work):
        route = Route.load(route_file(), environment)
        works, flights = _works(route, work, records), supply()
        with route_session(route, log=work / "spark.log") as spark:
            taken = [_round(works, spark, server, number, flights, records) for number in range(1 + rounds)]
    yield from _results(records, taken[1:])


Work = Callable[[SparkSession, int], None]


def _works(route: Route, work: Path, records: int) -> dict[str, Work]:
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


def _round(
    works: dict[str, Work],
    spark: SparkSession,
    server: NatsServer,
    number: int,
    flights: Supply[FlightMessage],
    records: int,
) -> dict[str, Taken]:
    taken: dict[str, Taken] = {}
    for name, work in works.items():
        empty_outputs(server)
        publish(server.url, flights.take(records))
        begun = cpu_seconds() - cpu_seconds(server.pid)
        with clock() as seconds:
            work(spark, number)
        taken[name] = Taken(seconds(), cpu_seconds() - cpu_seconds(server.pid) - begun)
    return taken


def _results(records: int, rounds: list[dict[str, Taken]]) -> Iterator[Result]:
    for name in rounds[0]:
        versions = 2 if name == "diff" else 1
        own = [one["route"] for one in rounds]
        these = [one[name] for one in rounds]
        pairs = list(zip(own, these, strict=True))
        yield Result(
            f"history/{name}",
            records,
            rates(records, (run.seconds for run in these)),
            Setup("new", None, CORES),
            None if name == "route" else "route",
            None if name == "route" else median(a.seconds * versions / b.seconds for a, b in pairs),
            {
                "cpu_us": median(run.cpu for run in these) / records * 1e6,
                "cpu_ratio": median(a.cpu * versions / b.cpu for a, b in pairs),
                "versions": versions,
            },
        )
