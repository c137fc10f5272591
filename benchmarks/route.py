"""A route end to end: a year of flights, repeated, through examples/flights.yaml past 10,000 subscriptions."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.harness import Options, Result, cpu_seconds
from turnout.demo.flights import FlightMessage, messages
from turnout.demo.stage import streams, subscribe
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.engine.reading import batch_of
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream
from turnout.routes import Route
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index

SUBSCRIPTIONS = 10_000
RECORDS = 1_010_400


def run(options: Options) -> list[Result]:
    records = options.rows(RECORDS, 50_000)
    subscriptions = 1_000 if options.quick else SUBSCRIPTIONS
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        with NatsServer(work / "nats") as server:
            fill(server, records)
            opened = open_store(store)
            subscribe(opened, subscriptions)
            opened.close()
            route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": store})
            with route_session(route, log=work / "spark.log") as spark:
                results = []
                if options.wants("whole"):
                    results.append(_whole(route, spark, work, server))
                if options.wants("stages"):
                    results += _stages(route, records, server)
                return results


def fill(server: NatsServer, records: int) -> None:
    """The flights again and again until there are *records* of them."""
    with Connection.open(server.url) as connection:
        for config in streams():
            create_stream(connection, config)
        with Publisher(connection) as publisher:
            for message in _repeated(records):
                publisher.publish(message.subject, message.payload, message.headers)


def _repeated(records: int) -> Iterator[FlightMessage]:
    year = list(messages(records))
    for number in range(records):
        yield year[number % len(year)]


def _whole(route: Route, spark: SparkSession, work: Path, server: NatsServer) -> Result:
    """The route as `turnout run --once` runs it, from the beginning of the first micro-batch.

    In that the workers begin and learn the values; ``after_first_batch`` tells what it does from then on. Processor
    time is that of this process, the JVM and the workers, without the server's.
    """
    reports: list[tuple[job.Progress, float]] = []
    with _peak_memory(server) as peak:
        begun = _cpu_without(server)
        done = job.run(
            route,
            spark,
            once=True,
            checkpoint=work / "checkpoint",
            on_progress=lambda progress: reports.append((progress, _cpu_without(server))),
        )
    if not done.counts.conserved:
        raise RuntimeError(f"records are missing: {done.counts}")
    (first, first_cpu), (last, last_cpu) = reports[0], reports[-1]
    later = max(1, last.counts.read - first.counts.read)
    return Result(
        "whole route, streaming",
        done.counts.read,
        done.records_per_second,
        extra={
            "messages": done.counts.messages,
            "messages_per_second": round(done.counts.messages / done.seconds, 1),
            "after_first_batch": round(later / ((last.seconds - first.seconds) or 1), 1),
            "first_batch_seconds": round(first.seconds, 1),
            "cpu_us_after_first": round((last_cpu - first_cpu) / later * 1e6, 1),
            "cpu_us_first": round((first_cpu - begun) / first.counts.read * 1e6, 1),
            "peak_memory_mb": round(peak() / 2**20),
        },
    )


def _cpu_without(server: NatsServer) -> float:
    return cpu_seconds() - cpu_seconds(server.pid)


def _stages(route: Route, records: int, server: NatsServer) -> list[Result]:
    """What each stage of the engine adds, in this process: the route cut off after one stage more each time."""
    assert route.subscriptions is not None
    store = open_store(route.subscriptions.store)
    program = Program.of(route)
    batches = batches_of(server, min(records, 200_000))
    sample = [row for batch in batches[:2] for row in program.sample(batch.slice(0, 1000), Index.of(store).keys)]
    index = Index.of(store, sample=sample)
    store.close()

    def decode(batch: Any) -> Any:
        return batch_of(batch, program.key, program.value)

    def transform(batch: Any) -> Any:
        read, consumed = decode(batch)
        program.chain.apply(read)
        return read, consumed

    def match(batch: Any) -> None:
        read = program.transformed(batch)
        alive = read.alive
        index.match(program.metadata.columns(read, alive, index.keys), len(alive))

    cuts: list[tuple[str, Callable[[Any], object]]] = [
        ("decode", decode),
        ("transform", transform),
        ("map", program.transformed),
        ("match", match),
        ("fan out and encode", lambda batch: program.run(batch, index)),
    ]
    size = sum(batch.num_rows for batch in batches)
    seconds = [_thread_seconds(batches, work) for _, work in cuts]
    added = [max(0.0, after - before) for before, after in zip([0.0, *seconds], seconds, strict=False)]
    return [
        Result(
            f"engine up to {name}",
            size,
            size / spent,
            extra={"cpu_us": round(spent / size * 1e6, 2), "of_that": round(alone / size * 1e6, 2)},
        )
        for (name, _), spent, alone in zip(cuts, seconds, added, strict=True)
    ]


def batches_of(server: NatsServer, records: int) -> list[Any]:
    """The stream's first records as the source gives them."""
    with Connection.open(server.url) as connection:
        reader = PullReader(connection, Range("FLIGHTS", 1, records + 1))
        return [
            batch.append_column("stream", pa.repeat(pa.scalar("FLIGHTS"), batch.num_rows)) for batch in reader.batches()
        ]


def _thread_seconds(batches: list[Any], work: Callable[[Any], object]) -> float:
    """Processor time of the second of two passes."""
    for _ in range(2):
        begun = time.thread_time()
        for batch in batches:
            work(batch)
    return time.thread_time() - begun


def _proportional(pid: int) -> int:
    """The memory of a process in bytes, of shared pages its part; 0 for one that has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


@contextmanager
def _peak_memory(server: NatsServer) -> Iterator[Callable[[], int]]:
    """The most memory that this process, the JVM and the workers held together (the server's not counted), in bytes.

    Pages that several processes share, as forked workers do, count once (PSS).
    """
    count = [0]
    ended = threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not ended.wait(1.0):
            pids = [process.pid for process in (me, *me.children(recursive=True)) if process.pid != server.pid]
            count[0] = max(count[0], sum(map(_proportional, pids)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: count[0]
    finally:
        ended.set()
        watcher.join()
