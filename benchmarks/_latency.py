"""How long a message takes from publish to delivered, and what a query costs that has nothing to do.

A process of its own publishes and listens, so that nothing of the measured program delays its clock: run as
``python -m benchmarks._latency URL SECONDS`` it prints percentiles as JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Case, Result, Setup, cpu_seconds
from turnout.embedded import NatsServer
from turnout.errors import RunError
from turnout.nats.wire import Connection, purge_stream

RATE = 1000
_ROUTE = """
name: latency
source: {{format: nats, servers: "{url}", stream: IN, start: latest}}
mappings: {{"in.*": "out.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
trigger: {{latency: low}}
checkpoint: "{checkpoint}"
"""


def latencies(spark: Any, server: NatsServer, folder: Path, *, quick: bool) -> Iterator[Case]:
    """A query of one's own, and a route that maps subjects; both with the low-latency settings."""
    seconds = 2 if quick else 8
    for case, start in (("latency of a query", _query), ("latency of a route", _route)):
        yield Case(case, partial(_latency, case, start, spark, server, folder, seconds))
    yield Case("latency idle micro-batch", lambda: [_idle(spark, server, folder)])


def _latency(
    case: str, start: Callable[..., Any], spark: Any, server: NatsServer, folder: Path, seconds: int
) -> Iterator[Result]:
    with Connection.open(server.url) as connection:
        for stream in ("IN", "OUT"):
            purge_stream(connection, stream)
    with start(spark, server, folder):
        yield _measure(spark, server, f"{case}, {RATE:,} messages/s", seconds)


@contextmanager
def _query(spark: Any, server: NatsServer, folder: Path) -> Iterator[None]:
    from turnout.spark.session.latency import low_latency_source

    options = {"servers": server.url, "stream": "IN", "startingOffsets": "latest", "includeStream": "true"}
    loaded = spark.readStream.format("nats").options(**options, **low_latency_source()).load()
    started = (
        loaded.selectExpr("regexp_replace(topic, '^in', 'out') topic", "value", "stream", "offset")
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
    from turnout.spark.running.job import run

    route = Route.parse(_ROUTE.format(url=server.url, checkpoint=folder / "route"), {})
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


def _measure(spark: Any, server: NatsServer, case: str, seconds: int) -> Result:
    query = spark.streams.active[0]
    try:
        _traffic(server, 2 * seconds)
        traffic = _traffic(server, seconds)
    except RunError as failure:
        raise RunError(f"{case}: {query.exception() or failure}") from failure
    batches = [progress for progress in query.recentProgress if progress.numInputRows][-50:]
    parts = {
        f"{name}_ms": statistics.median(batch.durationMs.get(name, 0) for batch in batches)
        for name in ("triggerExecution", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
    }
    before = cpu_seconds()
    time.sleep(5)
    idle = (cpu_seconds() - before) / 5
    extra = {**traffic["ms"], **parts, "idle_cores": idle}
    return Result(case, traffic["count"], (traffic["count"] / seconds,), Setup("new", None, 2), extra=extra)


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


def _traffic(server: NatsServer, seconds: int) -> dict[str, Any]:
    """Messages at a steady rate for some seconds; what the other process says of them."""
    command = [sys.executable, "-m", "benchmarks._latency", server.url, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode != 0:
        raise RunError("the latency was not measured: " + done.stderr.strip()[-500:])
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


# The other process


def _main(url: str, seconds: int) -> None:
    count = seconds * RATE
    taken: list[float] = []
    ended = threading.Event()
    listener = threading.Thread(target=_listen, args=(url, count, taken, ended))
    listener.start()
    time.sleep(0.2)
    with Connection.open(url) as connection:
        begun = time.monotonic()
        # Two messages every two milliseconds: no bursts that a batch would take as a whole.
        for tick in range(count // 2):
            time.sleep(max(0.0, begun + tick * 2 / RATE - time.monotonic()))
            for _ in range(2):
                connection.publish("in.x", repr(time.time()).encode())
        connection.ping()
    ended.set()
    listener.join()
    if not taken:
        raise SystemExit(f"of {count:,} messages none was delivered")
    p50, p90, p99, most = np.percentile(taken, [50, 90, 99, 100]) * 1000
    ms = {"p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": most}
    sys.stdout.write(json.dumps({"count": len(taken), "ms": ms}))


def _listen(url: str, count: int, taken: list[float], ended: threading.Event) -> None:
    """Note how old each message is when it comes; all of them, or what has come 10 s after the last was sent."""
    with Connection.open(url) as connection:
        connection.subscribe("out.>")
        patience = 20
        while len(taken) < count and patience:
            try:
                for message in connection.messages(time.monotonic() + 0.5):
                    taken.append(time.time() - float(message.payload))
                    if len(taken) == count:
                        return
            except TimeoutError:
                patience -= ended.is_set()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
