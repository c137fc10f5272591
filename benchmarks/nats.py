"""Messages of NATS through Spark, in and out, and from publish to delivered.

Beside it, in the same run: nats-py's pull fetch as what one would write by hand, and Parquet as the ceiling.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks._latency import latencies
from benchmarks.harness import Options, Result, clock, cpu_seconds, texts
from turnout.embedded import NatsServer
from turnout.errors import RunError
from turnout.nats.wire import (
    Connection,
    Publisher,
    PullReader,
    Range,
    create_consumer,
    create_stream,
    delete_stream,
    purge_stream,
)
from turnout.nats.wire.packing import id_lines
from turnout.spark.formats.nats.source import register
from turnout.spark.session.build import build_session
from turnout.spark.session.latency import low_latency_session

SIZES = ((60, 1.0), (1024, 0.2), (65_536, 0.01))
REPEATS = 3


def run(options: Options) -> list[Result]:
    rows = options.rows(1_000_000, 60_000)
    spark = build_session(
        "turnout-bench", master="local[2]", conf={"spark.driver.memory": "2g", **low_latency_session()}
    )
    register(spark)
    results: list[Result] = []
    with NatsServer() as server, tempfile.TemporaryDirectory() as folder:
        with Connection.open(server.url) as connection:
            for name in ("IN", "OUT"):
                create_stream(connection, _config(name))
        for size, share in SIZES:
            count = max(2000, int(rows * share))
            _take(results, _reading(spark, server, count, size, options, Path(folder)))
            _take(results, _writing(spark, server, count, size, options))
        _take(results, latencies(spark, server, Path(folder), options))
    spark.stop()
    return results


def _take(results: list[Result], measured: Iterator[Result]) -> None:
    """Keep what is measured, and say it at once: the whole takes minutes."""
    for result in measured:
        results.append(result)
        more = ", ".join(f"{name} {value:,.3g}" for name, value in result.extra.items())
        sys.stderr.write(f"{result.case}: {result.rows_per_second:,.0f}/s, {more}\n")


def _config(name: str) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "file", "num_replicas": 1}


def _anew(connection: Connection, count: int) -> None:
    """Check that OUT holds *count* messages and make it anew: a purged stream would still know all their ids."""
    assert connection.api("STREAM.INFO.OUT")["state"]["messages"] == count
    delete_stream(connection, "OUT")
    create_stream(connection, _config("OUT"))


def _fill(server: NatsServer, count: int, size: int) -> None:
    with Connection.open(server.url) as connection:
        purge_stream(connection, "IN")
        publisher = Publisher(connection)
        payload = (b'{"text":"' + b"x" * size)[: size - 2] + b'"}'
        for start in range(0, count, 10_000):
            some = min(10_000, count - start)
            subjects = pa.array([f"in.{n % 100}" for n in range(some)])
            publisher.publish_columns(subjects, pa.array([payload] * some, type=pa.binary()))
        publisher.flush()


def _measured(
    case: str,
    count: int,
    work: Callable[[], object],
    server: NatsServer,
    baseline: str | None = None,
    baseline_rate: float = 0.0,
) -> Result:
    """The median of three runs after a warm-up.

    ``spread_s`` is the slowest less the fastest; ``server_cpu`` the server's part of all processor time: where it is
    most of it, no client can be quicker.
    """
    work()
    times = []
    of_all, of_server = cpu_seconds(), cpu_seconds(server.pid)
    for _ in range(REPEATS):
        with clock() as seconds:
            work()
        times.append(seconds())
    share = (cpu_seconds(server.pid) - of_server) / (cpu_seconds() - of_all)
    rate = count / statistics.median(times)
    ratio = rate / baseline_rate if baseline_rate else None
    return Result(case, count, rate, baseline, ratio, {"spread_s": max(times) - min(times), "server_cpu": share})


def _reading(spark: Any, server: NatsServer, count: int, size: int, options: Options, folder: Path) -> Iterator[Result]:
    baseline = 0.0
    cases = ("nats-py fetch", "partitions=1", "partitions=2", "without Spark", "counted only", "parquet")
    if any(options.wants(f"read {size} B {case}") for case in cases):
        _fill(server, count, size)
    if options.wants(f"read {size} B nats-py"):
        some = min(count, 100_000)
        with clock() as seconds:
            asyncio.run(_fetch(server.url, some, size))
        baseline = some / seconds()
        yield Result(f"read {size} B nats-py fetch", some, baseline)
    for partitions in (1, 2):
        case = f"read {size} B partitions={partitions}"
        if options.wants(case):

            def read(partitions: int = partitions) -> None:
                options = {"servers": server.url, "stream": "IN", "partitions": str(partitions)}
                spark.read.format("nats").options(**options).load().write.format("noop").mode("append").save()

            yield _measured(case, count, read, server, "nats-py fetch", baseline)
    case = f"read {size} B without Spark"
    if options.wants(case):

        def pull() -> None:
            with Connection.open(server.url) as connection:
                first = connection.api("STREAM.INFO.IN")["state"]["first_seq"]
                for _ in PullReader(connection, Range("IN", first, first + count)).batches():
                    pass

        yield _measured(case, count, pull, server, "nats-py fetch", baseline)
    case = f"read {size} B counted only"
    if options.wants(case):
        yield _measured(case, count, lambda: _count(server, count, size), server, "nats-py fetch", baseline)
    case = f"read {size} B parquet"
    if options.wants(case):
        path = str(folder / f"parquet-{size}")
        loaded = spark.read.format("nats").options(servers=server.url, stream="IN").load()
        loaded.write.mode("overwrite").parquet(path)
        yield _measured(
            case, count, lambda: spark.read.parquet(path).write.format("noop").mode("append").save(), server
        )


def _count(server: NatsServer, count: int, size: int) -> None:
    """Take *count* messages off the socket and do nothing with them: what the server can deliver."""
    at_once = max(1, min(50_000, (8 << 20) // (size + 100)))
    with Connection.open(server.url) as connection:
        config = {"deliver_policy": "all", "ack_policy": "none", "mem_storage": True, "num_replicas": 1}
        name = create_consumer(connection, "IN", config)["name"]
        inbox = connection.new_inbox()
        connection.subscribe(inbox)
        request = json.dumps({"batch": at_once, "expires": 30_000_000_000}).encode()
        memory = bytearray(2 << 20)
        view = memoryview(memory)
        asked = taken = kept = 0
        while taken < count:
            while asked < min(taken + 2 * at_once, count):
                connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.IN.{name}", request, inbox)
                asked += at_once
            came = connection.receive_into(view[kept:], 10.0)
            if not came:
                raise RunError(f"{taken:,} of {count:,} messages came")
            filled = kept + came
            taken += memory.count(b"MSG ", 0, filled)
            # A frame's first letters may be the last that came.
            kept = min(filled, 3)
            memory[:kept] = memory[filled - kept : filled]


async def _fetch(url: str, count: int, size: int) -> None:
    from nats.js.api import AckPolicy, ConsumerConfig

    import nats

    client = await nats.connect(url)
    subscription = await client.jetstream().pull_subscribe(
        "in.>", stream="IN", config=ConsumerConfig(ack_policy=AckPolicy.NONE)
    )
    taken = 0
    # The server cuts off a client that has more than 64 MB to take.
    at_once = max(1, min(5000, (16 << 20) // size))
    while taken < count:
        messages = await subscription.fetch(min(at_once, count - taken), timeout=30)
        taken += len(messages)
    await client.close()


def _writing(spark: Any, server: NatsServer, count: int, size: int, options: Options) -> Iterator[Result]:
    from pyspark.sql import functions as F

    baseline = 0.0
    if options.wants(f"write {size} B nats-py"):
        some = min(count, 20_000)
        with clock() as seconds:
            asyncio.run(_publish(server.url, some, size))
        baseline = some / seconds()
        yield Result(f"write {size} B nats-py awaited in windows of 1000", some, baseline)
    runs = iter(range(100))
    for partitions in (1, 2):
        case = f"write {size} B with ids partitions={partitions}"
        if not options.wants(case):
            continue
        rows = spark.range(count, numPartitions=partitions).select(
            F.concat(F.lit("out."), F.col("id") % 100).alias("topic"),
            texts(size).alias("value"),
            F.col("id").alias("offset"),
        )

        def write(rows: Any = rows) -> None:
            named = rows.withColumn("stream", F.lit(f"{size}-{next(runs)}"))
            named.write.format("nats").options(servers=server.url, stream="OUT").mode("append").save()
            with Connection.open(server.url) as connection:
                _anew(connection, count)

        yield _measured(case, count, write, server, "nats-py windows", baseline)
    if options.wants(f"write {size} B without Spark"):
        subjects = pa.array([f"out.{n % 100}" for n in range(count)])
        payloads = pa.repeat(pa.scalar(b"x" * size, type=pa.binary()), count) if count * size < 1 << 30 else None

        def publish() -> None:
            run_number = next(runs)
            with Connection.open(server.url) as connection:
                publisher = Publisher(connection)
                ids = id_lines(pa.array([f"{run_number}:{n}" for n in range(count)]))
                publisher.publish_columns(subjects, payloads, ids)
                assert publisher.flush().stored == count
                _anew(connection, count)

        if payloads is not None:
            case = f"write {size} B without Spark, with ids"
            yield _measured(case, count, publish, server, "nats-py windows", baseline)


async def _publish(url: str, count: int, size: int) -> None:
    import nats

    client = await nats.connect(url)
    stream = client.jetstream()
    for start in range(0, count, 1000):
        some = range(start, min(count, start + 1000))
        headers = [{"Nats-Msg-Id": f"py-{size}-{time.time_ns()}-{n}"} for n in some]
        await asyncio.gather(*(stream.publish("out.x", b"x" * size, headers=header) for header in headers))
    await client.close()
    with Connection.open(url) as connection:
        purge_stream(connection, "OUT")
