"""Two versions of a route over what a real stream holds, in one job of Spark's."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.reads import RecordedReads
from tests.streams import own_stream

from turnout import spark as ts
from turnout.conditions import parse
from turnout.embedded import NatsServer, free_port
from turnout.errors import ConfigError, RunError, StreamError
from turnout.history.diff.differences import EndedRecord, RecordPosition
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stream_info
from turnout.routes import Route
from turnout.routes.endpoints import FileSource, KafkaSource, NatsSource
from turnout.runtime.kafka.source import KafkaSourceOptions
from turnout.runtime.offsets import decoded
from turnout.spark.formats.kafka.source import OPTIONS
from turnout.spark.history.diff import RecordSpan, recorded, same_source
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RECORDS = 20_000
EVERY = 10_000
RARE = (5_000, 15_000)

ROUTE = """
name: compared
source: {{format: nats, servers: "{url}", stream: {stream}, partitions: 3, maxRecordsPerTrigger: 10, start: latest}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
  - {{name: mask, type: MaskField$Value, fields: secret}}
mappings: {{"{stream}.*": "mapped.{{{{wildcard(1)}}}}"}}
subscriptions: {{store: "{store}", metadata: {{n: value.n}}}}
unmatched: pass
sink: {{format: nats, servers: "{url}"}}
errors: {{tolerance: all}}
"""


@pytest.fixture(scope="module")
def stream(nats_server: NatsServer) -> Iterator[str]:
    """A stream of records, one in ten thousand of them on a subject of its own."""
    with Connection.open(nats_server.url) as connection, own_stream(connection, "*") as name:
        with Publisher(connection) as publisher:
            for n in range(1, RECORDS + 1):
                payload = json.dumps({"n": n % 10, "secret": f"s{n}"}).encode()
                publisher.publish(
                    f"{name}.{'rare' if n in RARE else n % 4}", payload, [("Kind", "odd")] if n % 2 else []
                )
        yield name


@pytest.fixture
def text(nats_server: NatsServer, stream: str, tmp_path: Path) -> str:
    """A route with a store of its own."""
    return ROUTE.format(url=nats_server.url, stream=stream, store=store(tmp_path / "subscriptions.db", "n=3"))


def store(file: Path, *conditions: str) -> str:
    url = f"sqlite:///{file}"
    opened = open_store(url)
    opened.create_many(
        Subscription([f"out.{at}"], parse(condition), id=f"s{at}") for at, condition in enumerate(conditions)
    )
    opened.close()
    return url


def test_one_record_in_ten_thousand(spark: SparkSession, nats_server: NatsServer, stream: str, text: str) -> None:
    """The effect of a new predicate is found with exact counts and sequences, and nothing is published."""
    new = text.replace("{type: HasHeaderKey, name: Old}", f'{{type: TopicNameMatches, pattern: "{stream}[.]rare"}}')

    result = ts.diff(Route.parse(text, {}), Route.parse(new, {}), spark)

    differences = result.differences
    totals = {
        name: number for name, number in differences.totals.items() if number and name not in ("old_us", "new_us")
    }
    assert totals == {
        "records": RECORDS,
        "changed": 2,
        "outcomes": 2,
        "lost": 2,
        "old_delivered": RECORDS,
        "new_delivered": RECORDS - 2,
        "new_filtered": 2,
    }
    assert differences.matrix.changes == [(EndedRecord("delivered"), EndedRecord("filtered", "old"), 2)]
    assert [one.position for one in differences.examples.by_kind["lost", ""]] == [
        RecordPosition(n, stream, 0) for n in RARE
    ]
    assert sorted(map(tuple, result.matrix.collect())) == [
        ("delivered", "", "delivered", "", RECORDS - 2),
        ("delivered", "", "filtered", "old", 2),
    ]
    assert [(row.kind, row.offset, row.topic, row.old, row.new) for row in result.examples.collect()] == [
        ("lost", 5_000, f"{stream}.rare", '{"to": "mapped.rare"}', None),
        ("lost", 15_000, f"{stream}.rare", '{"to": "mapped.rare"}', None),
        ("outcome", 5_000, f"{stream}.rare", None, None),
        ("outcome", 15_000, f"{stream}.rare", None, None),
    ]
    with Connection.open(nats_server.url) as connection:
        assert stream_info(connection, stream)["state"]["messages"] == RECORDS


def test_two_snapshots_of_subscriptions(spark: SparkSession, text: str, tmp_path: Path) -> None:
    """Each version is matched with its own; one store is the same for both."""
    other = text.replace("subscriptions.db", "other.db")
    store(tmp_path / "other.db", "n=4", "n=3")

    same = ts.diff(Route.parse(text, {}), Route.parse(text, {}), spark, start=1, end=1001)
    result = ts.diff(Route.parse(text, {}), Route.parse(other, {}), spark, start="1", end="1001")

    assert (same.differences.records, same.differences.empty) == (1000, True)
    differences = result.differences
    # Those with n=3 went to out.0 for s0, and go to out.1 for s1; those with n=4 went under their own topic.
    assert (differences.records, differences.changed, differences.lost, differences.gained, differences.moved) == (
        1000,
        200,
        200,
        200,
        0,
    )
    assert (differences.losers.counts, differences.gainers.counts) == ({"s0": 100}, {"s0": 100, "s1": 100})
    assert differences.values == differences.headers == 0


def test_from_a_time(spark: SparkSession, text: str) -> None:
    """Records that were stored before it are not read; without any the report is empty."""
    result = ts.diff(Route.parse(text, {}), Route.parse(text, {}), spark, start=datetime.now(UTC))

    assert (result.differences.records, result.differences.totals["old_us"]) == (0, 0.0)
    assert result.matrix.collect() == result.examples.collect() == []


def test_servers_that_are_away(
    spark: SparkSession,
    nats_server: NatsServer,
    stream: str,
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A sink's is not needed, which is said; without the source nothing is begun."""
    away = f'"nats://127.0.0.1:{free_port()}", connectTimeout: 1, reconnectTimeout: 1'
    no_sink = text.replace(
        f'sink: {{format: nats, servers: "{nats_server.url}"', f"sink: {{format: nats, servers: {away}"
    )
    result = ts.diff(Route.parse(text, {}), Route.parse(no_sink, {}), spark, end=101)

    assert (result.differences.records, result.differences.empty) == (100, True)
    assert "destinations that lead back into the source are not looked for" in caplog.text
    other = Route.parse(text.replace(f"stream: {stream}", "stream: NONE"), {})
    with pytest.raises(StreamError, match=r"STREAM\.INFO\.NONE: stream not found"):
        ts.diff(other, other, spark)


def test_records_that_are_gone(spark: SparkSession, nats_server: NatsServer) -> None:
    """A range that the stream does not hold any more is an error, and not a comparison of the rest."""
    name = f"GONE{secrets.token_hex(4)}"
    text = (
        f'name: gone\nsource: {{format: nats, servers: "{nats_server.url}", stream: {name}}}\n'
        f'sink: {{format: nats, servers: "{nats_server.url}"}}\n'
    )
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [name], "storage": "memory", "max_msgs": 10})
        with Publisher(connection) as publisher:
            for _ in range(20):
                publisher.publish(name, b"{}", [])
        try:
            with pytest.raises(RunError, match="no longer has the sequences 1 to 10"):
                ts.diff(Route.parse(text, {}), Route.parse(text, {}), spark, start=1)
        finally:
            delete_stream(connection, name)


MOMENT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def options_of(source: Any, start: Any, end: Any) -> dict[str, str]:
    reads = RecordedReads()
    recorded(reads.session, source, RecordSpan.parse(start, end))
    return {"format": reads.format_name, **reads.given}


def nats(**more: Any) -> NatsSource:
    return NatsSource.model_validate({"format": "nats", "servers": "nats://a", "stream": "S", **more})


def kafka(**more: Any) -> KafkaSource:
    return KafkaSource.model_validate({"format": "kafka", "servers": "a:9092", "topics": "t", **more})


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, ("earliest", "latest")),
        ("17", 18, ("17", "18")),
        ({"S": 1}, "2026-01-02T03:04Z", ('{"S": 1}', "2026-01-02T03:04:00+00:00")),
    ],
)
def test_places_in_streams(start: Any, end: Any, expected: tuple[str, str]) -> None:
    """They go to the batch source, without what only streaming reads know."""
    source = nats(start="latest", maxRecordsPerTrigger=7, ackConsumer=None, pollWait=1, filterSubject="a.>")

    options = options_of(source, start, end)

    assert (options["startingOffsets"], options["endingOffsets"]) == expected
    assert {name: options[name] for name in ("format", "splits", "stream", "filterSubject")} == {
        "format": "nats", "splits": "true", "stream": "S", "filterSubject": "a.>"
    }  # fmt: skip
    assert not {"maxRecordsPerTrigger", "pollWait"} & set(options)


def test_places_in_topics() -> None:
    """A time for all partitions, or offsets for each; one number for all is refused."""
    given: KafkaSourceOptions = decoded(options_of(kafka(maxRecordsPerTrigger=7), MOMENT, {"t": {"0": 5}})[OPTIONS])

    assert (given.start, given.end) == (MOMENT, {"t": {"0": 5}})
    with pytest.raises(ConfigError, match="17 is no place in Kafka"):
        options_of(kafka(), 17, None)


def test_places_in_files(spark: SparkSession, tmp_path: Path) -> None:
    """By offset or by timestamp; a streaming source is read as what is there now."""
    rows = [(f"t{n}", n, datetime(2026, 1, n, tzinfo=UTC)) for n in range(1, 6)]
    frame = spark.createDataFrame(rows, "topic string, offset bigint, timestamp timestamp")
    frame.write.parquet(str(tmp_path / "in"))
    source = FileSource.model_validate({"format": "parquet", "path": str(tmp_path / "in"), "stream": True})

    def offsets(start: Any, end: Any) -> list[int]:
        return sorted(row.offset for row in recorded(spark, source, RecordSpan.parse(start, end)).collect())

    assert offsets(None, None) == [1, 2, 3, 4, 5]
    assert offsets(2, 4) == [2, 3]
    assert offsets("2026-01-04T00:00:00Z", None) == [4, 5]


@pytest.mark.parametrize("place", ["yesterday", "1.5", True, "{"])
def test_what_is_no_place(place: Any) -> None:
    """It is named, with what was expected."""
    with pytest.raises(ConfigError, match=r"from: expected earliest, latest, a sequence, an ISO time"):
        RecordSpan.parse(place, None)


def test_the_same_records() -> None:
    """The reading of a source may differ, its contents may not; passwords and options are not shown."""
    same_source(nats(user="ann", password="x"), nats(start=17, partitions=2, tlsCa="ca.pem"))
    same_source(nats(stream="S, T"), nats(stream=["S", "T"]))
    with pytest.raises(ConfigError, match=r"source.stream: is 'S' in the old version and 'T' in the new"):
        same_source(nats(), nats(stream="T"))
    with pytest.raises(ConfigError) as refused:
        same_source(nats(servers="nats://ann:secret@a"), kafka(options={"kafka.ssl.key.password": "secret"}))

    assert "source.format: is 'nats' in the old version and 'kafka' in the new" in str(refused.value)
    assert "secret" not in str(refused.value)
