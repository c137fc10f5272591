"""Routes from and to a real Kafka broker, without Spark's connector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.kafka_broker import KafkaBroker

from turnout.embedded import NatsServer
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.nats.wire import Connection, PullReader, Range, create_stream
from turnout.routes import Route
from turnout.spark.running import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


ROUTE = """
name: {name}
source: {source}
value: {{format: json}}
transforms:
  - {{name: where, type: InsertField$Value, "static.field": via, "static.value": turnout}}
sink: {sink}
trigger: {{availableNow: true}}
checkpoint: "{work}/{name}"
{more}"""


def run(spark: SparkSession, work: Path, name: str, source: str, sink: str, more: str = "") -> dict[str, int]:
    """Run a route until its source is read; the counts."""
    text = ROUTE.format(name=name, source=source, sink=sink, work=work, more=more)
    return job.run(Route.parse(text, {}), spark).counts.as_dict()


def test_a_broker_of_our_own(broker: KafkaBroker) -> None:
    """It accepts topics, so that a failing route does not fail for lack of a broker."""
    with KafkaAdmin(KafkaOptions.of(broker.servers)) as admin:
        admin.create_topic("orders", 3, {})

        assert "orders" in admin.topics()


def test_to_kafka_and_back(spark: SparkSession, broker: KafkaBroker, nats_server: NatsServer, tmp_path: Path) -> None:
    """NATS to Kafka to NATS: the record keeps its topic, its value and its headers."""
    count = 500
    nats = f'{{format: nats, servers: "{nats_server.url}", stream: %s}}'
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "TOKAFKA", "subjects": ["flights"], "storage": "memory"})
        for n in range(count):
            connection.request("flights", json.dumps({"n": n}).encode(), {"Trace": str(n)})
        kafka = f'{{format: kafka, servers: "{broker.servers}"'
        there = run(spark, tmp_path, "there", nats % "TOKAFKA", kafka + "}")
        connection.api("STREAM.UPDATE.TOKAFKA", {"name": "TOKAFKA", "subjects": ["unused"], "storage": "memory"})
        create_stream(connection, {"name": "FROMKAFKA", "subjects": ["flights"], "storage": "memory"})
        back = run(spark, tmp_path, "back", kafka + ", topics: flights}", nats % "FROMKAFKA")

        assert (there["read"], there["delivered"], back["read"], back["delivered"]) == (count,) * 4
        rows = [
            row
            for batch in PullReader(connection, Range("FROMKAFKA", 1, count + 1)).batches()
            for row in batch.to_pylist()
        ]
    assert sorted(json.loads(row["value"])["n"] for row in rows) == list(range(count))
    assert all(json.loads(row["value"])["via"] == "turnout" for row in rows)
    assert {header["key"] for row in rows for header in row["headers"]} >= {"Trace"}


def records(folder: Path, rows: list[dict[str, object]]) -> str:
    """A file source with these records."""
    folder.mkdir()
    (folder / "records.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return f'{{format: json, path: "{folder}"}}'


TOLERANT = "deadLetter: {topic: dead}\nerrors: {tolerance: all}\n"


@pytest.mark.parametrize(
    ("topic", "size"),
    [
        pytest.param("sized", 3_000_000, marks=pytest.mark.heavy),
        pytest.param("sized", (1 << 20) - 100, marks=pytest.mark.heavy),
        ("low", 200_000),
    ],
)
def test_a_record_that_is_too_large_is_a_dead_letter(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, topic: str, size: int
) -> None:
    """By the producer's limit, by the route's own transform, and by the topic's; its neighbour is delivered."""
    with KafkaAdmin(KafkaOptions.of(broker.servers)) as admin:
        if topic not in admin.topics():
            admin.create_topic(topic, 1, {"max.message.bytes": "100000"} if topic == "low" else {})
    rows: list[dict[str, object]] = [
        {"topic": topic, "partition": 7, "offset": 42, "value": json.dumps({"n": "a" * size})},
        {"topic": topic, "partition": 7, "offset": 43, "value": "{}"},
    ]
    sink = f'{{format: kafka, servers: "{broker.servers}"}}\n{TOLERANT}'

    counts = run(spark, tmp_path, "sized", records(tmp_path / "in", rows), sink)

    assert {name: counts[name] for name in ("read", "delivered", "dead_lettered", "undeliverable")} == {
        "read": 2, "delivered": 1, "dead_lettered": 1, "undeliverable": 1,
    }  # fmt: skip
