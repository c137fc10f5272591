"""The format nats as a sink, in batches and in streams."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.embedded import NatsServer
from turnout.nats.protocol import headers as wire_headers
from turnout.nats.wire import Connection, stream_info, subject_counts
from turnout.spark.formats.nats.source import register

pytestmark = pytest.mark.jetstream


@pytest.fixture(scope="module")
def nats(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def write(frame: DataFrame, server: NatsServer, **options: str) -> None:
    frame.write.format("nats").options(**{"servers": server.url, **options}).mode("append").save()


def stored(connection: Connection, stream: str) -> int:
    return int(stream_info(connection, stream)["state"]["messages"])


def message(connection: Connection, stream: str, subject: str) -> tuple[list[tuple[str, bytes]], bytes]:
    message = connection.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})["message"]
    block = base64.b64decode(message.get("hdrs", ""))
    return wire_headers.parse(block), base64.b64decode(message.get("data", ""))


def test_rows_become_messages(nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """Each has its own topic and headers; the key is the message id; headers about its old stream are dropped."""
    rows = [
        (f"{stream}.a", b"one", "id-1", [("A", b"1"), ("A", b"2"), ("Nats-Msg-Id", b"old"), ("Nats-Rollup", b"all")]),
        (f"{stream}.b", b"", None, None),
        (f"{stream}.c", None, "id-3", []),
    ]
    schema = "topic string, value binary, key string, headers array<struct<key: string, value: binary>>"
    write(nats.createDataFrame(rows, schema), nats_server)

    assert message(connection, stream, f"{stream}.a") == (
        [("Nats-Msg-Id", b"id-1"), ("A", b"1"), ("A", b"2")],
        b"one",
    )
    assert message(connection, stream, f"{stream}.b") == ([], b"")
    assert message(connection, stream, f"{stream}.c") == ([("Nats-Msg-Id", b"id-3")], b"")


def test_ids_come_from_the_data(
    nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str
) -> None:
    """Written again in another order and another partitioning, nothing is stored twice and nothing new is skipped."""
    frame = nats.range(3000).select(
        F.concat(F.lit(f"{stream}."), F.col("id") % 2).alias("topic"),
        F.col("id").cast("string").alias("value"),
        F.lit("SOURCE").alias("stream"),
        F.col("id").alias("offset"),
    )
    write(frame.repartition(2), nats_server, stream=stream)
    write(frame.orderBy(F.desc("id")).repartition(3), nats_server, stream=stream)
    write(frame.withColumn("topic", F.lit(f"{stream}.other")), nats_server, stream=stream)

    assert subject_counts(connection, stream) == {
        f"{stream}.0": 1500,
        f"{stream}.1": 1500,
        f"{stream}.other": 3000,
    }
    headers, _ = message(connection, stream, f"{stream}.1")
    assert dict(headers)["Nats-Msg-Id"].startswith(b"SOURCE:")


def test_no_id_where_none_is_wanted(
    nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str
) -> None:
    """Keys that are not unique, as Kafka's are, must not be ids; the option says so."""
    frame = nats.createDataFrame([(f"{stream}.a", "x", "k")] * 3, "topic string, value string, key string")
    write(frame, nats_server, messageId="none")
    write(frame.drop("key"), nats_server)

    assert stored(connection, stream) == 6


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("value", {}, "topic: the column is missing"),
        ("topic, struct(value) value", {}, r"the column is struct<value:string>, not binary or string: use to_json"),
        ("topic, value", {"messageId": "offset"}, "messageId: 'offset' needs the columns 'stream' and 'offset'"),
        ("topic, value", {"windwo": "1"}, 'windwo: is no option of the format \'nats\'; did you mean "window"'),
        ("topic, value", {"window": "0"}, "window: is a number from 1 to 10000, not '0'"),
        ("null topic, value", {}, "topic: the column is void, not string"),
        ("cast(null as string) topic, value", {}, "row 1 of 1 has no topic"),
        ("cast(null as string) topic, value, 'O' stream, 17L offset", {}, "the row of message O:17 has no topic"),
        ("'nobody.listens' topic, value, 'ORDERS' stream, 17L offset", {}, "that of the row of message ORDERS:17"),
        ("'a b' topic, value", {}, "'a b' is no subject to publish on"),
        ("'nobody.listens' topic, value", {}, "no stream listens on 'nobody.listens'"),
        ("topic, repeat('x', 1100000) value", {}, "1,100,000 bytes with its headers, the server takes 1,048,576"),
        ("topic, value", {"stream": "OTHER"}, "expected stream does not match"),
        ("topic, value", {"password": "hunter2", "user": "u", "servers": "nats://127.0.0.1:1",
                          "reconnectTimeout": "0.3"}, "no NATS server can be reached"),
    ],
)  # fmt: skip
def test_failures_say_why(
    nats: SparkSession, nats_server: NatsServer, stream: str, columns: str, options: dict[str, str], expected: str
) -> None:
    """In words that help, and without a secret."""
    frame = nats.createDataFrame([(f"{stream}.a", "x")], "topic string, value string")
    with pytest.raises(PySparkException, match=expected) as failure:
        write(frame.selectExpr(*_split(columns)), nats_server, **options)

    assert "hunter2" not in str(failure.value)


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


@pytest.mark.parametrize(
    ("mode", "problem"),
    [("complete", "outputMode: 'complete' writes all results again"), ("update", "nats does not support Update")],
)
def test_output_modes(
    nats: SparkSession, nats_server: NatsServer, stream: str, tmp_path: Path, mode: str, problem: str
) -> None:
    """An aggregate is written by foreachBatch; Spark or the sink refuse the modes that a stream does not have."""
    write(nats.range(6).selectExpr(f"'{stream}.a' topic", "cast(id as string) value"), nats_server)
    source = nats.readStream.format("nats").options(servers=nats_server.url, stream=stream, filterSubject=f"{stream}.a")
    counts = source.load().groupBy().count().selectExpr(f"'{stream}.count' topic", "cast(count as string) value")

    def run(writer: Any, checkpoint: str) -> None:
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(60)

    with pytest.raises(PySparkException, match=problem):
        run(counts.writeStream.format("nats").outputMode(mode).options(servers=nats_server.url), mode)
    batches = counts.writeStream.outputMode(mode).foreachBatch(lambda batch, _: write(batch, nats_server))
    run(batches, f"each-{mode}")

    with Connection.open(nats_server.url) as opened:
        assert message(opened, stream, f"{stream}.count")[1] == b"6"


def test_views_in_sql(nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """A view is read and written by SQL; a table of Spark's catalog has no options, which the error says."""
    options = f"OPTIONS (servers '{nats_server.url}', stream '{stream}')"
    nats.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING nats {options}")

    nats.sql(f"INSERT INTO messages SELECT '{stream}.sql', 0, 0L, null, cast('x' as binary), null, null")

    assert nats.sql("SELECT topic FROM messages WHERE cast(value as string) = 'x'").collect() == [(f"{stream}.sql",)]
    nats.sql(f"CREATE TABLE catalog_messages USING nats {options}")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            nats.sql("SELECT * FROM catalog_messages").collect()
    finally:
        nats.sql("DROP TABLE catalog_messages")


def test_a_stream_is_not_overwritten(nats: SparkSession, nats_server: NatsServer, stream: str) -> None:
    """Spark's overwrite is refused instead of taken for append."""
    frame = nats.createDataFrame([(f"{stream}.a", "x")], "topic string, value string")

    with pytest.raises(PySparkException, match="a stream cannot be overwritten"):
        frame.write.format("nats").option("servers", nats_server.url).mode("overwrite").save()


def test_a_stream_into_a_stream(
    nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str, tmp_path: Path
) -> None:
    """From one stream to another and again from the beginning, with the checkpoint thrown away: nothing twice."""
    write(nats.range(4000).selectExpr(f"concat('{stream}.in.', id % 5) topic", "cast(id as string) value"), nats_server)
    loaded = (
        nats.readStream.format("nats")
        .options(servers=nats_server.url, stream=stream, filterSubject=f"{stream}.in.*", includeStream="true")
        .option("maxRecordsPerTrigger", "1500")
        .load()
    )

    def copy(checkpoint: str) -> Any:
        query = (
            loaded.withColumn("topic", F.regexp_replace("topic", r"\.in\.", ".out."))
            .writeStream.format("nats")
            .options(servers=nats_server.url, stream=stream, checkpointLocation=str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    copy("one")
    copy("two")

    counts = subject_counts(connection, stream)
    assert {name: counts[name] for name in counts if ".out." in name} == {f"{stream}.out.{n}": 800 for n in range(5)}
    assert sum(counts.values()) == 8000


def test_a_query_with_a_name(
    nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str, tmp_path: Path
) -> None:
    """Spark hands the name of a query to its sink, among the options."""
    (tmp_path / "in").mkdir()
    rows = nats.createDataFrame([(f"{stream}.a", "1")], "topic string, value string")
    rows.write.mode("append").json(str(tmp_path / "in"))
    query = (
        nats.readStream.schema(rows.schema)
        .json(str(tmp_path / "in"))
        .writeStream.format("nats")
        .queryName("orders")
        .options(servers=nats_server.url, stream=stream, checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )

    query.awaitTermination(60)

    assert stored(connection, stream) == 1


@pytest.mark.parametrize("way", ["batch", "stream", "foreachBatch"])
def test_rows_are_no_requests(
    nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str, tmp_path: Path, way: str
) -> None:
    """A subject of JetStream's API in data purges nothing, however rows are written; the error has the subject."""
    write(nats.createDataFrame([(f"{stream}.a", "x")] * 3, "topic string, value string"), nats_server)
    rows = nats.createDataFrame([(f"$JS.API.STREAM.PURGE.{stream}", "")], "topic string, value string")

    def written() -> None:
        if way == "batch":
            return write(rows, nats_server)
        rows.write.mode("append").json(str(tmp_path / "in"))
        loaded = nats.readStream.schema(rows.schema).json(str(tmp_path / "in")).writeStream
        settings = {"servers": nats_server.url, "checkpointLocation": str(tmp_path / "c")}
        to = loaded.format("nats") if way == "stream" else loaded.foreachBatch(lambda df, _: write(df, nats_server))
        query = to.options(**settings).trigger(availableNow=True).start()
        query.awaitTermination(60)
        return None

    with pytest.raises(PySparkException, match=rf"'\$JS\.API\.STREAM\.PURGE\.{stream}' is not allowed"):
        written()

    assert stored(connection, stream) == 3


@pytest.mark.parametrize("way", ["explode", "join", "union"])
@pytest.mark.parametrize("include_stream", ["true", pytest.param("false", marks=pytest.mark.heavy)])
def test_rows_that_share_a_record(
    nats: SparkSession, nats_server: NatsServer, connection: Connection, stream: str, way: str, include_stream: str
) -> None:
    """Twice the rows are stored, or the number of those that are not is an error."""
    rows = nats.range(2000).selectExpr(f"'{stream}.in' topic", "cast(id as string) value", "cast(id as string) key")
    write(rows, nats_server)
    read = nats.read.format("nats").options(servers=nats_server.url, stream=stream, filterSubject=f"{stream}.in")
    records = read.option("includeStream", include_stream).load().withColumn("topic", F.lit(f"{stream}.out"))
    others = nats.range(2).withColumnRenamed("id", "other")
    # Ids of the source's messages are known to their stream.
    records = records.withColumn("key", F.concat(F.lit("copy-"), F.col("key").cast("string")))

    if way == "union":
        with pytest.raises(PySparkException, match=r"2,000 of 4,000 rows were not stored"):
            write(records.union(records), nats_server)
        return
    write(
        records.select("*", F.explode(F.array(F.lit(1), F.lit(2)))) if way == "explode" else records.join(others),
        nats_server,
    )

    assert subject_counts(connection, stream)[f"{stream}.out"] == 4000
