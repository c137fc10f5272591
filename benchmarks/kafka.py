"""Messages of Kafka through Spark's own connector, in and out, on a broker that is started for it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from itertools import count as count_up
from pathlib import Path
from typing import Any

from benchmarks.harness import CannotRunError, Case, Options, Result, Setup, rates, texts, timed
from turnout.errors import TurnoutError
from turnout.spark.session.build import build_session

REPEATS = 3
SIZES = ((60, 1.0), (1024, 0.2), (65_536, 0.01))


def cases(options: Options) -> Iterator[Case]:
    """Each size with one partition and with two, out and in again."""
    rows = options.rows(100_000, 10_000)
    # A session stays for all cases, once there is a broker for one.
    with ExitStack() as stack:
        started = cache(partial(_started, stack))
        for size, share in SIZES:
            for partitions in (1, 2):
                name = f"{size} B partitions={partitions}"
                yield Case(name, partial(_one, started, size, max(500, int(rows * share)), partitions))


def _started(stack: ExitStack) -> tuple[Any, Any]:
    """A session, and a broker."""
    try:
        from tests.integration.kafka_broker import KafkaBroker, connector_properties
    except ModuleNotFoundError as missing:
        raise CannotRunError("the broker that it starts is in a checkout of the source") from missing
    try:
        properties = connector_properties()
        broker = stack.enter_context(KafkaBroker(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
    except TurnoutError as missing:
        raise CannotRunError(str(missing)) from missing
    spark = build_session("turnout-bench", master="local[2]", conf=properties)
    stack.callback(spark.stop)
    return spark, broker


def _one(started: Callable[[], tuple[Any, Any]], size: int, count: int, partitions: int) -> Iterator[Result]:
    from pyspark.sql import functions as F

    spark, broker = started()
    topic = f"bench-{size}-{partitions}"
    broker.topics("--create", "--topic", topic, "--partitions", str(partitions))
    kafka = {"kafka.bootstrap.servers": broker.servers}
    count -= count % partitions
    setup = Setup("new", None, partitions)

    def rows(run: int) -> Any:
        ids = spark.range(run * count, (run + 1) * count, numPartitions=partitions)
        partition = (F.col("id") % partitions).cast("int").alias("partition")
        return ids.select(F.lit(topic).alias("topic"), partition, texts(size).alias("value"))

    def part(run: int) -> Any:
        """The records of one run, of which each partition has as many."""
        first, end = (
            json.dumps({topic: {str(n): at * count // partitions for n in range(partitions)}}) for at in (run, run + 1)
        )
        return spark.read.format("kafka").options(
            **kafka, subscribe=topic, startingOffsets=first, endingOffsets=end
        ).load()  # fmt: skip

    runs = (rows(run) for run in count_up())
    seconds = timed(REPEATS, lambda: next(runs), lambda frame: frame.write.format("kafka").options(**kafka).save())
    yield Result(f"write {size} B partitions={partitions}", count, rates(count, seconds), setup)
    parts = (part(run) for run in count_up(1))
    assert part(0).count() == count
    seconds = timed(REPEATS - 1, lambda: next(parts), lambda frame: frame.write.format("noop").mode("append").save())
    yield Result(f"read {size} B partitions={partitions}", count, rates(count, seconds), setup)
