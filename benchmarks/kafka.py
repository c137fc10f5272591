"""Messages of Kafka on a broker that is started for it: Spark's own connector, and routes, which do without it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from itertools import count as count_up
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._kafka_latency import latencies
from benchmarks.harness import CannotRunError, Case, Options, Result, Setup, rates, texts, timed
from turnout.demo.kafka_broker import KafkaBroker
from turnout.errors import TurnoutError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.spark.session.build import build_session, low_latency_session

REPEATS = 3
SIZES = ((60, 1.0), (1024, 0.2), (65_536, 0.01))


def cases(options: Options) -> Iterator[Case]:
    """Each size with one partition and with two, in and out; then routes, in alternation with their baselines."""
    rows = options.rows(100_000, 10_000)
    # A session stays for all cases, once there is a broker for one.
    with ExitStack() as stack:
        started = cache(partial(broker_and_session, stack))
        for size, share in SIZES:
            for partitions in (1, 2):
                name = f"{size} B partitions={partitions}"
                yield Case(name, partial(_one, started, size, max(500, int(rows * share)), partitions))
        yield Case("source of a route", partial(_sources, started, rows))
        yield Case("whole route", partial(_routes, started, rows))
        seconds = round(60 * options.minutes) if options.minutes else 5 if options.quick else 30
        yield from latencies(started, seconds=seconds)


def broker_and_session(stack: ExitStack) -> tuple[Any, Any]:
    """A session, and a broker with the compilers that the JVM has by default: that of the tests has only the first."""
    try:
        from tests.integration.kafka_broker import connector_properties
    except ModuleNotFoundError as missing:
        raise CannotRunError("the broker that it starts is in a checkout of the source") from missing
    try:
        properties = connector_properties()
        broker = stack.enter_context(KafkaBroker(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
    except TurnoutError as missing:
        raise CannotRunError(str(missing)) from missing
    # An open split has a slot to itself. Routes have these properties in a session of their own.
    spark = build_session("turnout-bench", master="local[4]", conf={**properties, **low_latency_session()})
    stack.callback(spark.stop)
    return spark, broker


def _one(started: Callable[[], tuple[Any, Any]], size: int, count: int, partitions: int) -> Iterator[Result]:
    from pyspark.sql import functions as F

    spark, broker = started()
    topic = f"bench-{size}-{partitions}"
    with KafkaAdmin(KafkaOptions.of(broker.servers)) as admin:
        admin.create_topic(topic, partitions, {})
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


def _fill(servers: str, topic: str, count: int) -> None:
    """Publish records of 100 bytes to a new topic of two partitions; no two of all topics are equal."""
    from turnout.kafka.producer import KafkaMessages, KafkaProducer

    options = KafkaOptions.of(servers)
    with KafkaAdmin(options) as admin:
        admin.create_topic(topic, 2, {})
    with KafkaProducer(options) as producer:
        for begin in range(0, count, 10_000):
            numbers = range(begin, min(count, begin + 10_000))
            values = [b'{"n": %d, "of": "%-80b"}' % (n, topic.encode()) for n in numbers]
            partitions = [n % 2 for n in numbers]
            messages = KafkaMessages([topic] * len(values), values, [None] * len(values), None, None, partitions)
            producer.publish(messages, _refuse)
        producer.flush()


def _refuse(index: int, reason: Exception) -> None:
    raise CannotRunError(f"message {index}: {reason}")


def _sources(started: Callable[[], tuple[Any, Any]], count: int) -> Iterator[Result]:
    """Records up to the engine: read by the stage, and through Spark's connector, in alternation."""
    import pyarrow as pa

    from turnout.routes.endpoints import KafkaSource
    from turnout.runtime.offsets import records_of
    from turnout.spark.columns import map_in_arrow
    from turnout.spark.endpoints import RECORD_COLUMNS, endpoint_of
    from turnout.spark.history.diff import RecordSpan

    spark, broker = started()

    def counted(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"count": [batch.num_rows]})

    def read(batches: Any) -> Any:
        for rows in batches:
            yield from counted(records_of(rows))

    def connector(topic: str) -> Any:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "includeHeaders": "true"}
        rows = spark.read.format("kafka").options(**options).load().select(*RECORD_COLUMNS)
        return map_in_arrow(rows, counted, "count bigint")

    def stage(topic: str) -> Any:
        source = KafkaSource.model_validate(
            {"format": "kafka", "servers": broker.servers, "topics": topic, "partitions": 2}
        )
        return map_in_arrow(endpoint_of(source).recorded(spark, RecordSpan()), read, "count bigint")

    taken = by_turns(broker.servers, count, {"connector": connector, "stage": stage}, _counted_once)
    setup = Setup("new", None, 2)
    yield Result("records by Spark's connector", count, rates(count, taken["connector"]), setup)
    ratio = median(taken["connector"]) / median(taken["stage"])
    yield Result("records by the stage", count, rates(count, taken["stage"]), setup, "Spark's connector", ratio)


def _counted_once(frame: Any, count: int) -> None:
    found = sum(row["count"] for row in frame.collect())
    if found != count:
        raise CannotRunError(f"{found} records were read, of {count}")


def _routes(started: Callable[[], tuple[Any, Any]], count: int) -> Iterator[Result]:
    """Routes from Kafka to Kafka, at least once and exactly once, in alternation."""
    from turnout.routes import Route
    from turnout.spark.running.job import run

    spark, broker = started()

    def route(topic: str, exact: bool) -> Route:
        end = {"format": "kafka", "servers": broker.servers}
        document = {
            "name": topic,
            "source": {**end, "topics": topic, "partitions": 2},
            "value": {"format": "json"},
            "transforms": [{"type": "InsertField$Value", "static.field": "via", "static.value": "turnout"}],
            "mappings": {topic: f"{topic}.out"},
            "sink": {**end, "exactlyOnce": exact},
        }
        return Route.parse(json.dumps(document))

    def work(prepared: Route, count: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            counts = run(prepared, spark, once=True, checkpoint=folder).counts
        if counts.delivered != count:
            raise CannotRunError(f"{counts.delivered} records were delivered, of {count}")

    kinds = {"at least once": partial(route, exact=False), "exactly once": partial(route, exact=True)}
    taken = by_turns(broker.servers, count, kinds, work)
    setup = Setup("new", None, 2)
    yield Result("route at least once", count, rates(count, taken["at least once"]), setup)
    ratio = median(taken["at least once"]) / median(taken["exactly once"])
    yield Result("route exactly once", count, rates(count, taken["exactly once"]), setup, "at least once", ratio)


def by_turns(
    servers: str, count: int, kinds: Mapping[str, Callable[[str], Any]], work: Callable[[Any, int], None]
) -> dict[str, list[float]]:
    """Return the seconds of each kind, each time with a topic of its own; the first turn of each is for warming up."""
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(REPEATS + 1):
        for kind, prepare in kinds.items():
            topic = f"{work.__name__.strip('_')}-{kind.replace(' ', '-')}-{turn}"
            _fill(servers, topic, count)
            prepared = prepare(topic)
            begun = time.perf_counter()
            work(prepared, count)
            taken[kind].append(time.perf_counter() - begun)
    return {kind: seconds[1:] for kind, seconds in taken.items()}
