"""A route end to end: a year of flights, repeated, through examples/flights.yaml past 10,000 subscriptions."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, Observation, SparkSession

from benchmarks.harness import Options, Result, clock
from turnout.demo.flights import Message, messages
from turnout.demo.stage import streams, subscribe
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.spark import job, pipeline
from turnout.spark.ends import write
from turnout.spark.matching import Matching
from turnout.spark.sampling import learn_from_stream
from turnout.spark.session import route_session
from turnout.spark.sources.nats import register
from turnout.subscriptions import open_store
from turnout.wire import Connection, Publisher, create_stream

SUBSCRIPTIONS = 10_000
RECORDS = 1_010_400


def run(options: Options) -> list[Result]:
    records = options.rows(RECORDS, 50_000)
    subscriptions = 1_000 if options.quick else SUBSCRIPTIONS
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        with NatsServer(work / "nats") as server:
            _fill(server, records)
            opened = open_store(store)
            subscribe(opened, subscriptions)
            opened.close()
            route = Route.load(route_file(), {"NATS_URL": server.url, "SUBSCRIPTIONS": store})
            with route_session(route, log=work / "spark.log") as spark:
                register(spark)
                results = []
                if options.wants("whole"):
                    results.append(_whole(route, spark, work, server))
                if options.wants("stages"):
                    results += _stages(route, spark, records)
                return results


def _fill(server: NatsServer, records: int) -> None:
    """The flights again and again until there are *records* of them."""
    with Connection.open(server.url) as connection:
        for config in streams():
            create_stream(connection, config)
        with Publisher(connection) as publisher:
            for message in _repeated(records):
                publisher.publish(message.subject, message.payload, message.headers)


def _repeated(records: int) -> Iterator[Message]:
    year = list(messages(records))
    for number in range(records):
        yield year[number % len(year)]


def _whole(route: Route, spark: SparkSession, work: Path, server: NatsServer) -> Result:
    """The route as `turnout run --once` runs it, from the beginning of the first micro-batch.

    In that the JVM compiles the route's code; ``after_first_batch`` tells what it does from then on.
    """
    told: list[job.Progress] = []
    with _peak_memory(server) as peak:
        done = job.run(route, spark, once=True, checkpoint=work / "checkpoint", on_progress=told.append)
    if not done.counts.conserved:
        raise RuntimeError(f"records are missing: {done.counts}")
    first, last = told[0], told[-1]
    later = (last.counts.read - first.counts.read) / ((last.seconds - first.seconds) or 1)
    return Result(
        "whole route, streaming",
        done.counts.read,
        done.records_per_second,
        extra={
            "messages": done.counts.messages,
            "messages_per_second": round(done.counts.messages / done.seconds, 1),
            "after_first_batch": round(later, 1),
            "first_batch_seconds": round(first.seconds, 1),
            "peak_memory_mb": round(peak() / 2**20),
        },
    )


def _stages(route: Route, spark: SparkSession, records: int) -> list[Result]:
    """What each stage adds: the route as a batch, cut off after one stage more each time."""
    assert route.subscriptions is not None
    store = open_store(route.subscriptions.store)
    matching = Matching(spark, store, route.subscriptions.metadata)
    learn_from_stream(route, spark, matching)
    source = {k: v for k, v in route.source.options().items() if k != "maxRecordsPerTrigger"}
    read = spark.read.format("nats").options(**source, includeStream="true").load()
    decoded = pipeline.decode(route, read)
    transformed = pipeline.transform(route, decoded)
    mapped = pipeline.map_topics(route, transformed)
    prepared = pipeline.prepare(route, read, Observation())

    def deliver() -> DataFrame:
        return pipeline.deliveries(route, pipeline.prepare(route, read, Observation()), matching, Observation())

    sink = next(iter(route.sinks.values()))
    cuts: list[tuple[str, Callable[[], None]]] = [
        ("read", lambda: _noop(read)),
        ("decode", lambda: _noop(decoded)),
        ("transform", lambda: _noop(transformed)),
        ("map", lambda: _noop(mapped)),
        ("match", lambda: _noop(pipeline.match(prepared, matching))),
        ("encode", lambda: _noop(deliver())),
        ("write", lambda: write(deliver(), sink, pipeline.MESSAGE_ID)),
    ]
    seconds = []
    for name, work in cuts:
        if name != "write":
            work()
        with clock() as elapsed:
            work()
        seconds.append(elapsed())
    store.close()
    total = max(seconds)
    added = [max(0.0, after - before) for before, after in zip([0.0, *seconds], seconds, strict=False)]
    return [
        Result(
            f"stages up to {name}",
            records,
            records / spent,
            extra={"seconds": round(spent, 2), "share_of_time": round(alone / total, 3)},
        )
        for (name, _), spent, alone in zip(cuts, seconds, added, strict=True)
    ]


def _noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


@contextmanager
def _peak_memory(server: NatsServer) -> Iterator[Callable[[], int]]:
    """The most memory that this process, the JVM and the workers held together (the server's not counted), in bytes."""
    seen = [0]
    ended = threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not ended.wait(0.25):
            held = 0
            for process in [me, *me.children(recursive=True)]:
                if process.pid == server.pid:
                    continue
                try:
                    held += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            seen[0] = max(seen[0], held)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: seen[0]
    finally:
        ended.set()
        watcher.join()
