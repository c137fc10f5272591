"""Tables: from Kafka into Delta beside Spark's own copies with the same parse of JSON, and from Delta to JetStream.

Spark's connector for Delta does not run on Spark 4.3: the peers here are Spark's copy into a folder of Parquet, with no
log but that of the query, and one into a Delta table by delta-rs alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import CannotRunError, Case, Options, Result, Setup, rates, timed
from benchmarks.kafka import REPEATS, broker_and_session, by_turns

COLUMNS = {"n": "BIGINT", "of": "STRING"}
_FILES = 4


def cases(options: Options) -> Iterator[Case]:
    """Kafka into a table with its peers in alternation; a table to JetStream."""
    with ExitStack() as stack:
        started = cache(partial(broker_and_session, stack))
        yield Case("Kafka to Delta", partial(_into, started, options.rows(1_000_000, 10_000)))
        yield Case("Delta to NATS", partial(_out, options.rows(1_000_000, 10_000)))


def _into(started: Callable[[], tuple[Any, Any]], count: int) -> Iterator[Result]:
    import pyarrow.dataset as files
    from deltalake import DeltaTable, write_deltalake
    from pyspark.sql import functions as F

    from turnout.routes import Route
    from turnout.spark.running.job import run

    spark, broker = started()

    def parsed(topic: str) -> Any:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka").options(**options).load()
        schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        return rows.select(F.from_json(F.col("value").cast("string"), schema).alias("value")).select("value.*")

    def ended(writer: Any, folder: Path) -> None:
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    def spark_copy(topic: str, folder: Path) -> int:
        ended(parsed(topic).writeStream.format("parquet").option("path", str(folder / "out")), folder)
        return int(files.dataset(folder / "out", format="parquet").count_rows())

    def delta_copy(topic: str, folder: Path) -> int:
        def write(rows: Any, _number: int) -> None:
            write_deltalake(folder / "out", rows.toArrow(), mode="append")

        ended(parsed(topic).writeStream.foreachBatch(write), folder)
        return _rows(DeltaTable(folder / "out"))

    def route(topic: str, folder: Path) -> int:
        document = {
            "name": topic,
            "source": {"format": "kafka", "servers": broker.servers, "topics": topic, "partitions": 2},
            "value": {"format": "json", "schema": ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())},
            "sink": {"format": "delta", "path": str(folder / "out")},
        }
        run(Route.parse(json.dumps(document)), spark, once=True, checkpoint=folder / "checkpoint")
        return _rows(DeltaTable(folder / "out"))

    def work(copy: Callable[[Path], int], count: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = copy(Path(folder))
        if found != count:
            raise CannotRunError(f"{found:,} rows were written, of {count:,}")

    kinds = {"Spark to Parquet": spark_copy, "delta-rs in foreachBatch": delta_copy, "route to Delta": route}
    taken = by_turns(broker.servers, count, {name: partial(partial, copy) for name, copy in kinds.items()}, work)
    setup, peer = Setup("new", None, 2), "Spark to Parquet"
    for name, seconds in taken.items():
        ratio = None if name == peer else median(taken[peer]) / median(seconds)
        yield Result(name, count, rates(count, seconds), setup, None if ratio is None else peer, ratio)


def _rows(table: Any) -> int:
    return int(sum(table.get_add_actions(flatten=True)["num_records"].to_pylist()))


def _out(count: int) -> Iterator[Result]:
    import pyarrow as pa
    from deltalake import write_deltalake

    from turnout.embedded import NatsServer
    from turnout.nats.wire import Connection, create_stream
    from turnout.routes import Route
    from turnout.spark.running.job import run
    from turnout.spark.session.build import build_session

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(NatsServer(folder / "nats"))
        spark = build_session("turnout-bench", master="local[2]")
        numbers = iter(range(REPEATS + 1))

        def prepare() -> tuple[Route, Path]:
            """A table in files of a size, with rows that no other has, and a stream for them."""
            name = f"T{next(numbers)}"
            for file in range(_FILES):
                ids = pa.array(range(file, count, _FILES), pa.int64())
                texts = pa.array([f"{name}-{'x' * 64}-{n:012}" for n in range(len(ids))])
                write_deltalake(folder / name, pa.table({"n": ids, "of": texts}), mode="append")
            with Connection.open(server.url) as connection:
                create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "file"})
            document = {
                "name": name,
                "source": {"format": "delta", "path": str(folder / name), "record": {"topic": f"{name}.a"}},
                "sink": {"format": "nats", "servers": server.url, "stream": name},
            }
            return Route.parse(json.dumps(document)), folder / f"{name}-checkpoint"

        def work(given: tuple[Route, Path]) -> None:
            counts = run(given[0], spark, once=True, checkpoint=given[1]).counts
            if counts.delivered != count or counts.duplicates:
                raise CannotRunError(f"{counts.delivered:,} records were delivered, of {count:,}")

        seconds = timed(REPEATS, prepare, work)
        yield Result("Delta to NATS", count, rates(count, seconds), Setup("new", None, 2))
        spark.stop()
