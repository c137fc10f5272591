"""How long a message takes from publish to delivered, and what a query costs that has nothing to do.

Processes of their own publish and listen, so that nothing of the measured program delays their clocks:
``python -m benchmarks._latency URL KIND RATE COUNT`` is the publisher.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Case, Result, Setup, cpu_seconds
from benchmarks.peers.latency import running
from benchmarks.peers.programs import BENTO, bento
from turnout.demo.traffic import Traffic, serve
from turnout.embedded import NatsServer
from turnout.errors import RunError
from turnout.nats.wire import Connection, create_stream, purge_stream

_FLIGHTS = 20_000
_BESIDE = "latency of a route beside Bento"
_ROUTE = """
name: latency
source: {{format: nats, servers: "{url}", stream: IN, start: latest}}
mappings: {{"in.*": "out.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
trigger: {{latency: low}}
checkpoint: "{checkpoint}"
"""


@dataclass(frozen=True)
class _Scene:
    """What is measured: how it is started, what is published, and where it arrives.

    Attributes:
        case: its name.
        start: of the measured program, for the length of a block.
        kind: ``plain`` or ``flights``.
        subject: of what is delivered.
        rates: messages per second.
    """

    case: str
    start: Callable[[Any, NatsServer, Path], Any]
    kind: str
    subject: str
    rates: tuple[int, ...]


def latencies(spark: Any, server: NatsServer, folder: Path, *, quick: bool, minutes: float | None) -> Iterator[Case]:
    """A query of one's own, with short micro-batches, and routes whose micro-batches stay open.

    Args:
        spark: the session.
        server: with the streams IN and OUT.
        folder: for checkpoints.
        quick: a second or two of each rate.
        minutes: of each rate, if given.
    """
    seconds = round(60 * minutes) if minutes else 2 if quick else 8
    thousands = 1 if quick else 100
    for scene in (
        _Scene("latency of a query", _query, "plain", "out.>", (1000,)),
        _Scene("latency of a route", _route, "plain", "out.>", (1000, 10_000)),
        _Scene("latency of the flights route", partial(_flights, 10_000), "flights", "deliver.>", (1000, 10_000)),
        _Scene(
            f"latency of {thousands},000 subscriptions",
            partial(_flights, thousands * 1000),
            "flights",
            "deliver.>",
            (1000,),
        ),
    ):
        yield Case(scene.case, partial(_latency, scene, spark, server, folder, seconds))
    yield Case(_BESIDE, partial(_beside_bento, spark, server, folder, seconds))
    yield Case("latency idle micro-batch", lambda: [_idle(spark, server, folder)])


def _latency(scene: _Scene, spark: Any, server: NatsServer, folder: Path, seconds: int) -> Iterator[Result]:
    with Connection.open(server.url) as connection:
        for stream in ("IN", "OUT"):
            purge_stream(connection, stream)
    with scene.start(spark, server, folder):
        query = spark.streams.active[0]
        try:
            # The first flights also make the index of the subscriptions, and the engine's caches.
            _traffic(server, scene, 2 * seconds, min(scene.rates))
            for rate in scene.rates:
                yield _measure(query, server, scene, rate, seconds)
        except RunError as failure:
            raise RunError(f"{scene.case}: {query.exception() or failure}") from failure


@contextmanager
def _query(spark: Any, server: NatsServer, folder: Path) -> Iterator[None]:
    from turnout.spark.session.build import low_latency_source

    options = {"servers": server.url, "stream": "IN", "startingOffsets": "latest", "includeStream": "true"}
    loaded = spark.readStream.format("nats").options(**options, **low_latency_source()).load()
    started = (
        loaded.selectExpr("regexp_replace(topic, '^in', 'out') topic", "value", "headers", "stream", "offset")
        .writeStream.format("nats")
        .options(servers=server.url, stream="OUT", checkpointLocation=str(folder / "query"))
        .start()
    )
    try:
        yield
    finally:
        started.stop()


@contextmanager
def _route(spark: Any, server: NatsServer, folder: Path) -> Iterator[None]:
    from turnout import Route

    with _running(Route.parse(_ROUTE.format(url=server.url, checkpoint=folder / "route"), {}), spark):
        yield


@contextmanager
def _flights(subscriptions: int, spark: Any, server: NatsServer, folder: Path) -> Iterator[None]:
    """The example route past so many subscriptions."""
    from turnout import Route
    from turnout.demo.flights import streams, subscribe
    from turnout.demo.year import route_file
    from turnout.routes.document import TriggerPart
    from turnout.subscriptions import open_store

    url = f"sqlite:///{folder / f'subscriptions-{subscriptions}.db'}"
    with contextlib.closing(open_store(url)) as store:
        subscribe(store, subscriptions)
    with Connection.open(server.url) as connection:
        for config in streams():
            create_stream(connection, config)
    route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": url})
    source = route.source.model_copy(update={"start": "latest", "max_records_per_trigger": None})
    checkpoint = str(folder / f"flights-{subscriptions}")
    with _running(replace(route, source=source, trigger=TriggerPart(latency="low"), checkpoint=checkpoint), spark):
        yield


@contextmanager
def _running(route: Any, spark: Any) -> Iterator[None]:
    from turnout.spark.running.job import run

    stop = threading.Event()
    thread = threading.Thread(target=run, args=(route, spark), kwargs={"stop": stop})
    thread.start()
    try:
        while not spark.streams.active:
            if not thread.is_alive():
                raise RunError("the route did not start: its reason stands above")
            time.sleep(0.1)
        yield
    finally:
        stop.set()
        thread.join(60)


def _measure(query: Any, server: NatsServer, scene: _Scene, rate: int, seconds: int) -> Result:
    traffic = _traffic(server, scene, seconds, rate)
    batches = [progress for progress in query.recentProgress if progress.numInputRows][-50:]
    parts = {
        f"{name}_ms": statistics.median(batch.durationMs.get(name, 0) for batch in batches)
        for name in ("triggerExecution", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
        if batches and scene.start is _query
    }
    before = cpu_seconds()
    time.sleep(5)
    idle = (cpu_seconds() - before) / 5
    messages = traffic.pop("count")
    extra = {**traffic, **parts, "idle_cores": idle, "published_per_second": rate}
    case, setup = f"{scene.case}, {rate:,} messages/s", Setup("new", None, 2)
    return Result(case, seconds * rate, (messages / seconds,), setup, extra=extra)


def _beside_bento(spark: Any, server: NatsServer, folder: Path, seconds: int) -> Iterator[Result]:
    """Measure the mapping-only route and Bento in alternation, each for half of the time in two parts."""
    program = bento()
    scene = _Scene(_BESIDE, _route, "plain", "out.>", ())
    peer = replace(scene, kind="peer", subject="peer_out.>")
    with _route(spark, server, folder), running(program, server):
        _traffic(server, scene, 2 * seconds, 1000)
        _traffic(server, peer, min(2 * seconds, 20), 1000)
        for rate in (1000, 10_000):
            part = max(1, seconds // 2)
            turns = [(_traffic(server, scene, part, rate), _traffic(server, peer, part, rate)) for _ in range(2)]
            mine, its = (
                {name: statistics.median(turn[side][name] for turn in turns) for name in ("p50_ms", "p99_ms")}
                for side in (0, 1)
            )
            extra = {**mine, **{f"its_{name}": value for name, value in its.items()}}
            extra |= {f"times_its_{name[:3]}_ratio": mine[name] / its[name] for name in mine}
            extra["published_per_second"] = rate
            messages = sum(turn[0]["count"] for turn in turns)
            ratio, case = its["p50_ms"] / mine["p50_ms"], f"{_BESIDE}, {rate:,} messages/s"
            yield Result(
                case, messages, (messages / (2 * part),), Setup("new", None, 2), f"Bento {BENTO}", ratio, extra
            )


def _idle(spark: Any, server: NatsServer, folder: Path) -> Result:
    """How long a trigger takes that finds nothing new, asked every 10 ms instead of waiting at the server."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(name, "0")
    try:
        loaded = spark.readStream.format("nats").options(servers=server.url, stream="IN", start="latest").load()
        query = (
            loaded.writeStream.format("noop")
            .option("checkpointLocation", str(folder / "idle"))
            .queryName("idle")
            .start()
        )
        try:
            time.sleep(8)
            taken = [
                progress.durationMs["triggerExecution"]
                for progress in query.recentProgress
                if not progress.numInputRows
            ]
        finally:
            query.stop()
    finally:
        spark.conf.unset(name)
    p50, p99 = np.percentile(taken, [50, 99])
    extra = {"p50_ms": float(p50), "p99_ms": float(p99)}
    speed = 1000 / max(1.0, float(p50))
    return Result("latency idle micro-batch", len(taken), (speed,), Setup("none", None, 2), extra=extra)


def _traffic(server: NatsServer, scene: _Scene, seconds: int, rate: int) -> dict[str, Any]:
    """Messages at a steady rate for some seconds, and how old they were when they came."""
    publisher = ["-m", "benchmarks._latency", server.url, scene.kind, str(rate), str(seconds * rate)]
    with Traffic(publisher, server.url, scene.subject, Path(__file__).parents[1]) as traffic:
        return dict(traffic.measured())


def _messages(kind: str) -> Iterator[tuple[str, list[tuple[str, str]], bytes]]:
    if kind == "flights":
        from benchmarks._flights import endless_flights

        for message in endless_flights(_FLIGHTS):
            yield message.subject, list(message.headers), message.payload
    for number in count(1):
        yield "peer_in.x" if kind == "peer" else "in.x", [], b"%020d" % number


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[3]), islice(_messages(sys.argv[2]), int(sys.argv[4])))
