"""Predicates of queries on the format nats that the server, or the choice of a range, applies."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.types import StructType
from tests.documentation import blocks
from tests.streams import own_stream

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info
from turnout.runtime.nats.source import SourceOptions
from turnout.spark.formats.nats.source import NatsDataSource, PushingReader, register

pytestmark = pytest.mark.jetstream

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TOPIC, OFFSET, TIME = ("topic",), ("offset",), ("timestamp",)


@pytest.fixture(scope="module")
def stream(nats_server: NatsServer) -> Iterator[tuple[str, datetime]]:
    """A stream of 60 messages on six subjects, and a time between the first 30 and the others."""
    with Connection.open(nats_server.url) as connection, own_stream(connection) as name:
        for half in range(2):
            publisher = Publisher(connection)
            for number in range(30):
                region = ("eu", "us", "eu.north")[number % 3]
                publisher.publish(f"{name}.{region}.{'new' if number % 2 else 'old'}", str(half * 30 + number).encode())
            publisher.flush()
            if not half:
                time.sleep(0.05)
                moment = datetime.now(UTC)
                time.sleep(0.05)
        yield name, moment


Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, nats_server: NatsServer, stream: tuple[str, datetime]) -> Iterator[Load]:
    """Loads the stream, in a session that pushes predicates down."""
    register(spark)
    options = {"servers": nats_server.url, "stream": stream[0], "includeStream": "true"}
    spark.conf.set(PUSHDOWN, "true")
    yield lambda **more: spark.read.format("nats").options(**options, **more).load()
    spark.conf.unset(PUSHDOWN)


def reader(server: NatsServer, stream: str, schema: str | None = None, **options: str) -> PushingReader:
    source = NatsDataSource({"servers": server.url, "stream": stream, "includeStream": "true", **options})
    found = SourceOptions.from_mapping(source.options, streaming=False)
    return PushingReader(found, cast("StructType", StructType.fromDDL(schema or str(source.schema()))))


def read(pushed: PushingReader) -> int:
    """Return how many messages the tasks receive from the server."""
    return sum(batch.num_rows for part in pushed.partitions() for batch in pushed.read(part))


@pytest.mark.parametrize(
    ("filters", "left", "received"),
    [
        ([EqualTo(OFFSET, 7)], 0, 1),
        ([IsNotNull(OFFSET), GreaterThan(OFFSET, 10), LessThanOrEqual(OFFSET, 20)], 0, 10),
        ([GreaterThanOrEqual(OFFSET, 10), LessThan(OFFSET, 20)], 0, 10),
        ([In(OFFSET, (5, 9, None))], 1, 5),
        ([GreaterThan(OFFSET, 60)], 0, 0),
        ([GreaterThan(OFFSET, 20), LessThan(OFFSET, 10)], 0, 0),
        ([EqualTo(TOPIC, "{}.eu.new")], 0, 10),
        ([In(TOPIC, ("{}.eu.new", "{}.us.old", "elsewhere"))], 0, 20),
        ([StringStartsWith(TOPIC, "{}.eu.")], 0, 40),
        ([StringStartsWith(TOPIC, "{}.eu.north.n")], 1, 20),
        ([StringStartsWith(TOPIC, "{}.e")], 1, 60),
        ([StringStartsWith(TOPIC, "{}.eu."), EqualTo(TOPIC, "{}.us.new")], 0, 0),
        ([EqualTo(TOPIC, "{}.*.new")], 1, 60),
        ([EqualTo(TOPIC, "{}..new")], 1, 60),
        ([StringContains(TOPIC, "eu")], 1, 60),
        ([Not(EqualTo(TOPIC, "{}.eu.new"))], 1, 60),
        ([EqualTo(("stream",), "{}"), EqualTo(OFFSET, 1)], 0, 1),
        ([EqualTo(("stream",), "OTHER")], 0, 0),
        ([EqualTo(("headers", "key"), "a")], 1, 60),
        ([In(TOPIC, tuple(f"none.{number}" for number in range(200)))], 1, 60),
    ],
    ids=str,
)
def test_what_is_received(
    nats_server: NatsServer, stream: tuple[str, datetime], filters: list[Any], left: int, received: int
) -> None:
    """Only what the predicates leave is received; what they leave too much of is tested by Spark."""
    name = stream[0]

    def named(value: Any) -> Any:
        return tuple(map(named, value)) if isinstance(value, tuple) else str(value).format(name)

    texts = (EqualTo, In, StringStartsWith, StringContains)
    own: list[Filter] = [
        type(one)(one.attribute, named(one.value)) if isinstance(one, texts) and one.attribute != OFFSET else one
        for one in filters
    ]
    if isinstance(filters[0], Not):
        own = [Not(EqualTo(TOPIC, f"{name}.eu.new"))]
    pushed = reader(nats_server, name)

    assert len(list(pushed.pushFilters(own))) == left
    assert read(pushed) == received


def test_times_are_wide(nats_server: NatsServer, stream: tuple[str, datetime]) -> None:
    """Clocks of leaders differ: a minute more is received on both sides, and Spark tests the rows."""
    name, moment = stream
    minutes = timedelta(minutes=2)
    for predicate, received in (
        (GreaterThan(TIME, moment), 60),
        (GreaterThan(TIME, moment + minutes), 0),
        (LessThan(TIME, moment), 60),
        (LessThan(TIME, moment - minutes), 0),
        (GreaterThan(TIME, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)), 60),
        (LessThan(TIME, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)), 60),
        (GreaterThan(TIME, datetime(1, 1, 1, tzinfo=UTC)), 60),
    ):
        pushed = reader(nats_server, name)
        assert list(pushed.pushFilters([predicate])) == [predicate]
        assert read(pushed) == received, predicate


def test_own_filters_and_bounds_stay(nats_server: NatsServer, stream: tuple[str, datetime]) -> None:
    """Predicates only narrow what the options name; a task of a subject partition has its own filter."""
    name = stream[0]
    pushed = reader(nats_server, name, filterSubjects=f"{name}.eu.new,{name}.us.new", start="31")
    assert list(pushed.pushFilters([StringStartsWith(TOPIC, f"{name}.eu."), LessThan(OFFSET, 46)])) == []
    assert read(pushed) == 2

    partitioned = reader(nats_server, name, partitionSubject=f"{name}.{{partition}}.new", subjectPartitions="1")
    assert len(list(partitioned.pushFilters([EqualTo(TOPIC, f"{name}.eu.new")]))) == 1


def test_a_column_of_another_type_is_not_pushed(nats_server: NatsServer, stream: tuple[str, datetime]) -> None:
    """A text that is declared for the offset, or a collation, compares in another way."""
    pushed = reader(nats_server, stream[0], schema="offset string, topic string collate UTF8_LCASE")

    assert len(list(pushed.pushFilters([GreaterThan(OFFSET, "5"), EqualTo(TOPIC, "a.b")]))) == 2


def test_results_are_the_same(load: Load, stream: tuple[str, datetime]) -> None:
    """Each query has the rows that it has without push-down."""
    name, moment = stream
    queries = [
        "offset > 10 and offset <= 20",
        "offset between 5 and 7 or offset = 9",
        f"topic = '{name}.eu.new' and offset >= 31",
        f"topic in ('{name}.eu.new', '{name}.us.old')",
        f"topic like '{name}.eu.%'",
        f"topic like '{name}.e%' and not topic like '%old'",
        f"timestamp > timestamp'{moment.isoformat()}' and topic <> '{name}.us.new'",
        f"timestamp <= timestamp'{moment.isoformat()}'",
        f"stream = '{name}' and cast(value as string) = '12'",
        "offset is null",
    ]
    whole = load()

    def found(frame: DataFrame, query: str) -> list[int]:
        return sorted(row.offset for row in frame.where(query).select("offset").collect())

    pushed = [found(load(pushFilters="true"), query) for query in queries]

    assert pushed == [found(whole, query) for query in queries]
    assert [len(offsets) for offsets in pushed] == [10, 4, 5, 20, 40, 20, 25, 30, 1, 0]


def test_sql_and_plans(load: Load, spark: SparkSession) -> None:
    """A view takes the predicates of its query, whose plan has no filter for those that are exact."""
    load(pushFilters="true").createOrReplaceTempView("messages")

    found = spark.sql("select count(*) as found from messages where offset > 50 and offset < 56")

    assert found.collect()[0].found == 5
    assert "Filter" not in found._jdf.queryExecution().optimizedPlan().toString()


def test_a_frame_is_for_one_query(load: Load) -> None:
    """Spark 4.3.0 reads by the last plan of a frame: where this fails, docs/nats.md and the default can change."""
    frame = load(pushFilters="true")

    assert frame.where("offset <= 10").count() == 10
    assert frame.count() == 10


def test_without_the_setting_of_the_session(load: Load, spark: SparkSession) -> None:
    """Spark names its setting; without the option nothing is pushed, whatever the session says."""
    spark.conf.set(PUSHDOWN, "false")
    with pytest.raises(PySparkException, match=r"filterPushdown\.enabled"):
        load(pushFilters="true").where("offset = 3").collect()
    assert load().where("offset = 3").count() == 1

    with pytest.raises(ConfigError, match="pushFilters: is for batch reads: use filterSubject"):
        SourceOptions.from_mapping({"servers": "nats://x", "stream": "A", "pushFilters": "true"}, streaming=True)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_the_page_for_users_of_the_connector(spark: SparkSession, tmp_path: Path) -> None:
    """Its programs and its SQL run as they stand, with an end for the queries."""
    with NatsServer() as server:
        with Connection.open(server.url) as connection:
            for name, subjects in (("ORDERS", "orders.>"), ("COPIES", "copy.>"), ("COUNTS", "counts.>")):
                create_stream(connection, {"name": name, "subjects": [subjects], "storage": "memory"})
            for number in range(3):
                connection.request(f"orders.eu.{number}", zlib.compress(b"{}"), headers={"A": "1"})

        def edited(text: str) -> str:
            end = ".trigger(availableNow=True).start().awaitTermination(60)"
            place = f'"checkpointLocation", "{tmp_path}/{text.count("groupBy")}"'
            text = text.replace(".start()", end).replace('"checkpointLocation", "…"', place)
            return text.replace("nats://127.0.0.1:4222", server.url)

        names: dict[str, Any] = {"spark": spark}
        for block in blocks("from-nats-spark-connector.md", "python"):
            # Streams of the page that it only selects from are batches here, so that they can be looked at.
            reader: Any = spark.readStream if "Stream" in block.text else spark.read
            names["messages"] = reader.format("nats").options(servers=server.url, stream="ORDERS").load()
            block.run(names, edited)
        rows = names["as_before"].orderBy("streamSeq").collect()
        assert [(row.subject, row.headers, row.streamSeq) for row in rows] == [
            (f"orders.eu.{number}", {"A": ["1"]}, number + 1) for number in range(3)
        ]
        assert {row.value for row in names["texts"].collect()} == {"{}"}
        (sql,) = blocks("from-nats-spark-connector.md", "sql")
        for statement in filter(str.strip, sql.text.split(";")):
            spark.sql(edited(statement)).collect()
        with Connection.open(server.url) as connection:
            stored = {
                name: stream_info(connection, name)["state"]["messages"] for name in ("ORDERS", "COPIES", "COUNTS")
            }
    spark.conf.unset(PUSHDOWN)

    assert stored == {"ORDERS": 4, "COPIES": 3, "COUNTS": 3}
