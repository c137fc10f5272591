"""Messages of NATS through Spark, in and out, and from publish to delivered; no message comes twice.

Beside it, in the same run: nats-py's pull fetch as what one would write by hand, and Parquet as the ceiling.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks._latency import latencies
from benchmarks.harness import Case, Options, Result, Setup, clock, cpu_seconds, rates, texts
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
from turnout.spark.session.build import build_session, low_latency_session

SIZES = ((60, 1.0), (1024, 0.2), (65_536, 0.01))
REPEATS = 3


def cases(options: Options) -> Iterator[Case]:
    """Reading and writing of each size, and latencies."""
    rows = options.rows(100_000, 10_000)
    spark = build_session(
        "turnout-bench", master="local[2]", conf={"spark.driver.memory": "2g", **low_latency_session()}
    )
    register(spark)
    with NatsServer() as server, tempfile.TemporaryDirectory() as folder:
        with Connection.open(server.url) as connection:
            for name in ("IN", "OUT"):
                create_stream(connection, _config(name))
        for size, share in SIZES:
            count = max(1000, int(rows * share))
            yield Case(f"read {size} B", partial(_reading, spark, server, count, size, Path(folder)))
            yield Case(f"write {size} B", partial(_writing, spark, server, count, size))
        yield from latencies(spark, server, Path(folder), quick=options.quick, minutes=options.minutes)
    spark.stop()


def _config(name: str) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "file", "num_replicas": 1}


def _anew(connection: Connection) -> None:
    """Create OUT again: a purged stream would still know all ids."""
    delete_stream(connection, "OUT")
    create_stream(connection, _config("OUT"))


class Messages:
    """The stream IN, with other messages each time that it is filled."""

    def __init__(self, server: NatsServer, count: int, size: int) -> None:
        self._server, self._count, self._size = server, count, size
        self._numbers = itertools.count()

    def fill(self) -> None:
        """Make so many new messages the only ones of the stream."""
        with Connection.open(self._server.url) as connection:
            purge_stream(connection, "IN")
            publisher = Publisher(connection)
            for start in range(0, self._count, 10_000):
                some = min(10_000, self._count - start, max(1, (64 << 20) // self._size))
                for begin in range(start, min(start + 10_000, self._count), some):
                    part = min(some, self._count - begin)
                    subjects = pa.array([f"in.{n % 100}" for n in range(part)])
                    publisher.publish_columns(subjects, pa.array([self._payload() for _ in range(part)], pa.binary()))
            publisher.flush()

    def _payload(self) -> bytes:
        return b'{"number":%012d,"text":"%s"}' % (next(self._numbers), b"x" * (self._size - 34))


def _measured(
    case: str,
    count: int,
    prepare: Callable[[], object],
    work: Callable[[], object],
    server: NatsServer,
    threads: int,
    baseline: str | None = None,
    baseline_rate: float = 0.0,
) -> Result:
    """Some runs after a warm-up, each with messages of its own.

    ``server_cpu`` is the server's part of all processor time: where it is most of it, no client can be quicker.
    """
    times, of_all, of_server = [], 0.0, 0.0
    for _ in range(REPEATS + 1):
        prepare()
        all_before, server_before = cpu_seconds(), cpu_seconds(server.pid)
        with clock() as seconds:
            work()
        times.append(seconds())
        of_all += cpu_seconds() - all_before
        of_server += cpu_seconds(server.pid) - server_before
    speeds = rates(count, times[1:])
    ratio = statistics.median(speeds) / baseline_rate if baseline_rate else None
    return Result(case, count, speeds, Setup("new", None, threads), baseline, ratio, {"server_cpu": of_server / of_all})


def _reading(spark: Any, server: NatsServer, count: int, size: int, folder: Path) -> Iterator[Result]:
    messages = Messages(server, count, size)
    some = min(count, 50_000)
    messages.fill()
    with clock() as seconds:
        asyncio.run(_fetch(server.url, some, size))
    baseline = some / seconds()
    yield Result(f"read {size} B nats-py fetch", some, (baseline,), Setup("new", None, 1))

    def read(partitions: int) -> None:
        options = {"servers": server.url, "stream": "IN", "partitions": str(partitions)}
        spark.read.format("nats").options(**options).load().write.format("noop").mode("append").save()

    def pull() -> None:
        with Connection.open(server.url) as connection:
            first = connection.api("STREAM.INFO.IN")["state"]["first_seq"]
            for _ in PullReader(connection, Range("IN", first, first + count)).batches():
                pass

    works: dict[str, tuple[int, Callable[[], object]]] = {
        "partitions=1": (1, partial(read, 1)),
        "partitions=2": (2, partial(read, 2)),
        "without Spark": (1, pull),
        "counted only": (1, lambda: _count(server, count, size)),
    }
    for name, (threads, work) in works.items():
        case = f"read {size} B {name}"
        yield _measured(case, count, messages.fill, work, server, threads, "nats-py fetch", baseline)
    path = str(folder / f"parquet-{size}")

    def write_parquet() -> None:
        messages.fill()
        spark.read.format("nats").options(servers=server.url, stream="IN").load().write.mode("overwrite").parquet(path)

    def read_parquet() -> None:
        spark.read.parquet(path).write.format("noop").mode("append").save()

    yield _measured(f"read {size} B parquet", count, write_parquet, read_parquet, server, 2)


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


def _writing(spark: Any, server: NatsServer, count: int, size: int) -> Iterator[Result]:
    from pyspark.sql import functions as F

    some = min(count, 10_000)
    with clock() as seconds:
        asyncio.run(_publish(server.url, some, size))
    baseline = some / seconds()
    yield Result(f"write {size} B nats-py awaited in windows of 1000", some, (baseline,), Setup("new", 1_000, 1))
    runs = itertools.count(1)
    firsts: list[int] = []

    def prepare() -> None:
        with Connection.open(server.url) as connection:
            _anew(connection)
        firsts.append(next(runs) * count)

    def check() -> None:
        with Connection.open(server.url) as connection:
            assert connection.api("STREAM.INFO.OUT")["state"]["messages"] == count

    def write(partitions: int) -> None:
        rows = spark.range(firsts[-1], firsts[-1] + count, numPartitions=partitions).select(
            F.concat(F.lit("out."), F.col("id") % 100).alias("topic"),
            texts(size).alias("value"),
            F.col("id").alias("offset"),
            F.lit(f"{size}").alias("stream"),
        )
        rows.write.format("nats").options(servers=server.url, stream="OUT").mode("append").save()
        check()

    for partitions in (1, 2):
        case = f"write {size} B with ids partitions={partitions}"
        work = partial(write, partitions)
        yield _measured(case, count, prepare, work, server, partitions, "nats-py windows", baseline)
    columns: list[tuple[pa.Array, pa.Array, Any]] = []

    def prepare_columns() -> None:
        prepare()
        numbers = range(firsts[-1], firsts[-1] + count)
        payloads = pa.array([b"%012d%s" % (n, b"x" * (size - 12)) for n in numbers], pa.binary())
        ids = id_lines(pa.array([f"{size}:{n}" for n in numbers]))
        columns[:] = [(pa.array([f"out.{n % 100}" for n in numbers]), payloads, ids)]

    def publish() -> None:
        with Connection.open(server.url) as connection:
            publisher = Publisher(connection)
            publisher.publish_columns(*columns[0])
            assert publisher.flush().stored == count

    case = f"write {size} B without Spark, with ids"
    yield _measured(case, count, prepare_columns, publish, server, 1, "nats-py windows", baseline)


async def _publish(url: str, count: int, size: int) -> None:
    import nats

    client = await nats.connect(url)
    stream = client.jetstream()
    for start in range(0, count, 1000):
        some = range(start, min(count, start + 1000))
        headers = [{"Nats-Msg-Id": f"py-{size}-{time.time_ns()}-{n}"} for n in some]
        payloads = [b"%012d%s" % (n, b"x" * (size - 12)) for n in some]
        sent = zip(payloads, headers, strict=True)
        await asyncio.gather(*(stream.publish("out.x", payload, headers=header) for payload, header in sent))
    await client.close()
    with Connection.open(url) as connection:
        purge_stream(connection, "OUT")
