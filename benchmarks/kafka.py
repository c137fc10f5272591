"""Messages of Kafka through Spark's own connector, in and out, on a broker that is started for it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Result, best_of, texts
from turnout.errors import TurnoutError
from turnout.spark.session.build import build_session

SIZES = ((60, 1.0), (1024, 0.2), (65_536, 0.01))


def run(options: Options) -> list[Result]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    try:
        from tests.integration.kafka_broker import KafkaBroker, connector_properties
    except ModuleNotFoundError:
        sys.stderr.write("bench kafka: nothing measured: the broker that it starts is in a checkout of the source\n")
        return []

    rows = options.rows(500_000, 20_000)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            properties, made = connector_properties(), KafkaBroker(Path(folder))
        except TurnoutError as missing:
            sys.stderr.write(f"bench kafka: nothing measured: {missing}\n")
            return []
        with made as broker:
            spark = build_session("turnout-bench", master="local[2]", conf=properties)
            for size, share in SIZES:
                for partitions in (1, 2):
                    count = max(1000, int(rows * share))
                    results += _one(spark, broker, size, count, partitions, options)
            spark.stop()
    return results


def _one(spark: Any, broker: Any, size: int, count: int, partitions: int, options: Options) -> Iterator[Result]:
    """One size and one number of partitions, out and in again."""
    from pyspark.sql import functions as F

    write, read = (f"{verb} {size} B partitions={partitions}" for verb in ("write", "read"))
    if not (options.wants(write) or options.wants(read)):
        return
    topic = f"bench-{size}-{partitions}"
    broker.topics("--create", "--topic", topic, "--partitions", str(partitions))
    kafka = {"kafka.bootstrap.servers": broker.servers}
    ids = spark.range(count, numPartitions=partitions)
    frame = ids.select(F.lit(topic).alias("topic"), texts(size).alias("value"))
    seconds = best_of(3, lambda: frame.write.format("kafka").options(**kafka).save())
    if options.wants(write):
        yield Result(write, count, count / seconds)
    if options.wants(read):
        loaded = spark.read.format("kafka").options(**kafka, subscribe=topic).load()
        total = loaded.count()
        seconds = best_of(3, lambda: loaded.write.format("noop").mode("append").save())
        yield Result(read, total, total / seconds)
