"""Messages of Kafka through Spark's own connector, in and out, on a broker that is started for it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Options, Result, best_of
from turnout.errors import TurnoutError
from turnout.spark.session import build_session
from turnout.spark.sources.kafka import kafka_properties

SIZES = ((60, 1.0), (1024, 0.2))


def run(options: Options) -> list[Result]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.integration.kafka_broker import KafkaBroker

    rows = options.rows(500_000, 20_000)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            properties, made = kafka_properties(), KafkaBroker(Path(folder))
        except TurnoutError as missing:
            sys.stderr.write(f"bench kafka: nothing measured: {missing}\n")
            return []
        with made as broker:
            spark = build_session("turnout-bench", master="local[2]", conf=properties)
            for size, share in SIZES:
                count = max(1000, int(rows * share))
                topic = f"bench-{size}"
                frame = spark.range(count).selectExpr(
                    f"'{topic}' topic", f"rpad(cast(id as string), {size}, 'x') value"
                )
                kafka = {"kafka.bootstrap.servers": broker.servers}
                if options.wants(f"write {size} B"):
                    seconds = best_of(3, lambda f=frame, k=kafka: f.write.format("kafka").options(**k).save())
                    results.append(Result(f"write {size} B", count, count / seconds))
                if options.wants(f"read {size} B"):
                    loaded = spark.read.format("kafka").options(**kafka, subscribe=topic).load()
                    total = loaded.count()
                    seconds = best_of(3, lambda d=loaded: d.write.format("noop").mode("append").save())
                    results.append(Result(f"read {size} B", total, total / seconds))
            spark.stop()
    return results
