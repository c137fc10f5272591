"""A route's ends: which options reach Spark, and which columns a sink gets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from tests.spark.reads import RecordedReads

import turnout
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream, delete_stream, stream_info
from turnout.routes.endpoints import FileSink, FileSource, KafkaSource, NatsSink, NatsSource, Source
from turnout.runtime.offsets import encoded
from turnout.runtime.publishing import TALLY
from turnout.spark.endpoints import ReadOptions, activate, endpoint_of, register_source
from turnout.spark.formats.nats.source import register


@pytest.mark.parametrize(
    ("latency", "own", "expected"),
    [
        (None, {}, {}),
        ("low", {}, {"pollWait": "1", "partitions": "1"}),
        ("low", {"partitions": 3}, {"pollWait": "1", "partitions": "3"}),
    ],
)
def test_low_latency_reaches_the_source(latency: str | None, own: dict[str, Any], expected: dict[str, str]) -> None:
    """The trigger alone is enough; what the source names itself goes before."""
    source = NatsSource.model_validate({"format": "nats", "servers": "nats://a", "stream": "S", **own})
    reads = RecordedReads()
    endpoint_of(source).read(reads.session, ReadOptions(latency=latency))

    usual = {"servers": "nats://a", "stream": "S", "startingOffsets": "earliest", "includeStream": "true"}
    assert reads.given == usual | expected


@pytest.mark.parametrize(("own", "expected"), [({}, "1"), ({"pollWait": 5}, "5")])
def test_a_source_that_waits(own: dict[str, Any], expected: str) -> None:
    """It waits at the server for the next message, as long as its own options say."""
    source = NatsSource.model_validate({"format": "nats", "servers": "nats://a", "stream": "S", **own})
    reads = RecordedReads()
    endpoint_of(source).read(reads.session, ReadOptions(wait=True))

    assert reads.given["pollWait"] == expected
    assert "partitions" not in reads.given


@pytest.mark.parametrize(
    "source",
    [
        NatsSource.model_validate({"format": "nats", "servers": "nats://127.0.0.1:9", "stream": "S"}),
        KafkaSource.model_validate({"format": "kafka", "servers": "127.0.0.1:9", "topics": "T"}),
    ],
    ids=["nats", "kafka"],
)
def test_a_source_runs_the_stage_of_a_route(spark: SparkSession, source: Source) -> None:
    """In its own task, which reads and publishes: no second process gets its rows. Plans do not show the stage."""
    activate(spark)
    stage = encoded(b"a password")

    rows = endpoint_of(source).read(spark, ReadOptions(splits=True, stage=stage))

    assert rows.schema.names == [part.split(" ")[0] for part in TALLY.split(", ")]
    plan = rows._jdf.queryExecution().toString()
    assert "Relation" in plan
    assert "MapInArrow" not in plan
    assert stage not in plan


class OwnSource(DataSource):
    """Source that no package of the workers registers, as those of Kafka and of tables are not."""

    @classmethod
    def name(cls) -> str:
        return "turnout-test-own"


def test_a_thread_uses_one_session_after_another(spark: SparkSession) -> None:
    """As that of a route does which is run again: Spark refuses a name that the thread's session before has."""
    for _ in range(2):
        session = spark.newSession()
        for _ in range(2):
            register_source(session, OwnSource)
        # What `run` does with a route between brokers.
        activate(session)


def test_formats_are_registered_in_one_place() -> None:
    """Which makes the session that of the thread before."""
    files = (path for path in Path(turnout.__file__).parent.rglob("*.py") if "dataSource.register(" in path.read_text())
    assert [path.name for path in files] == ["endpoints.py"]


def test_a_sink_without_ids(spark: SparkSession, nats_server: NatsServer) -> None:
    """By default a message done again is stored once; with messageId none each is stored."""
    register(spark)
    rows = spark.range(10).select(
        F.lit("ends.a").alias("topic"),
        F.lit(b"x").alias("value"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.concat(F.lit("K:0:"), F.col("id").cast("string")).alias("_message_id"),
    )
    stored = []
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "ENDS", "subjects": ["ends.>"], "storage": "memory"})
        try:
            for format_ in (None, None, "none"):
                options = {"format": "nats", "servers": nats_server.url, "stream": "ENDS", "messageId": format_}
                endpoint_of(NatsSink.model_validate(options)).write(rows, "_message_id")
                stored.append(stream_info(connection, "ENDS")["state"]["messages"])
        finally:
            delete_stream(connection, "ENDS")

    assert stored == [10, 10, 20]


TEXTS = [
    "plain", "", 'x,"y"', '{"a": "say \\"hi\\""}', "back\\", "back\\\\", '\\"', "two\nlines", "\r", "cr\r\nlf",
    " blanks ", "\ttab\t", "#", "\x00", "\\N", "null", '"', '""', "'", "\u2028", "1.0", 'a\\"b,c\\',
]  # fmt: skip
"""Texts that a format of files may write or read in another way than others."""


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_files_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """All columns of a record: bytes that are no text, blanks, line ends, nulls and times to the microsecond."""
    values = [*map(str.encode, TEXTS), None, b"\xff\xfe\x00", b"\xc3\x28"]
    rows: list[tuple[Any, ...]] = [
        (
            "a.b",
            1,
            number,
            value,
            (*values[1:], b"k")[number],
            [("trace", value), ("trace", None)],
            1_000 + number * 1e-6,
        )
        for number, value in enumerate(values)
    ]
    rows.append(("a.c", None, len(rows), None, b"z", None, None))
    columns = "topic string, partition int, offset bigint, key binary, value binary, headers array<struct<key:string,"
    frame = spark.createDataFrame(rows, f"{columns}value:binary>>, seconds double")
    messages = frame.withColumn("timestamp", F.timestamp_micros(F.round(F.col("seconds") * 1e6).cast("bigint")))
    place = {"format": kind, "path": str(tmp_path / "files")}

    endpoint_of(FileSink.model_validate(place)).write(messages.coalesce(1), "offset")
    read = endpoint_of(FileSource.model_validate(place)).read(spark, ReadOptions())
    records = read.drop("problem").orderBy("offset").collect()

    written = messages.drop("seconds").orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in records] == [row.asDict(recursive=True) for row in written]


def test_rows_of_files_that_are_no_records(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes null what it cannot read, and takes a number of milliseconds for seconds."""
    lines = {
        '{"topic": "a", "timestamp": 1767225600}': (None, datetime(2026, 1, 1, tzinfo=UTC)),
        '{"topic": "b", "timestamp": "2026-01-01T00:00:00Z"}': (None, datetime(2026, 1, 1, tzinfo=UTC)),
        '{"topic": "c", "value": "x", "timestamp": 1767225600000}': ("a number is in seconds", None),
        '{"topic": "d", "offset": "7"}': ("does not fit the columns", None),
        '{"Topic": "e"}': ("has none of the columns", None),
    }
    (tmp_path / "lines.json").write_text("\n".join(lines))
    source = FileSource.model_validate({"format": "json", "path": str(tmp_path)})

    # Python's times end with the year 9999, as those of a record do.
    read = endpoint_of(source).read(spark, ReadOptions()).coalesce(1).collect()

    for row, (problem, time) in zip(read, lines.values(), strict=True):
        assert (row["problem"] is None) if problem is None else (problem in row["problem"])
        assert (row["timestamp"] and row["timestamp"].astimezone(UTC)) == time


def test_parquet_columns_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    """They are those of a record, as Spark finds them under its names."""
    spark.sql("SELECT 'a.b' Topic, 'v' VALUE, 7L OffSet").write.parquet(str(tmp_path / "files"))
    source = FileSource.model_validate({"format": "parquet", "path": str(tmp_path / "files")})

    (row,) = endpoint_of(source).read(spark, ReadOptions()).collect()

    assert (row["topic"], row["value"], row["offset"]) == ("a.b", b"v", 7)
