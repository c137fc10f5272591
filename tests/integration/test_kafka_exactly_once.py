"""Exactly once from and into Kafka: a route is killed in each of its parts, and a consumer finds each record once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.kafka_broker import KafkaBroker, started_broker
from tests.integration.routes import write_route
from tests.integration.switch import Switch

from turnout.embedded import NatsServer
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, stream_info
from turnout.runtime.offsets import committed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3600)]

ROUTE = """
name: exact
source: {source}
value: {{format: json}}
transforms: [{{name: where, type: InsertField$Value, "static.field": via, "static.value": turnout}}]
mappings: {{"in": "out"}}
sink: {sink}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with started_broker(tmp_path / "kafka") as broker:
        yield broker


def fill_kafka(options: KafkaOptions, count: int) -> None:
    with KafkaProducer(options) as producer:
        for begin in range(0, count, 10_000):
            numbers = range(begin, min(count, begin + 10_000))
            texts = [json.dumps({"n": n}).encode() for n in numbers]
            messages = KafkaMessages(["in"] * len(texts), texts, [b"%d" % n for n in numbers])
            producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
        producer.flush()


def fill_nats(url: str, count: int) -> None:
    with Connection.open(url) as connection, Publisher(connection) as publisher:
        create_stream(connection, {"name": "IN", "subjects": ["in"], "storage": "file"})
        for n in range(count):
            publisher.publish("in", json.dumps({"n": n}).encode())
        publisher.flush()


def done(switch: Switch) -> int:
    """Return the number of records committed in the checkpoint."""
    position = committed(switch.checkpoint).next
    return sum(sum(at.values()) if isinstance(at, dict) else int(str(at)) for at in position.values())


def delivered(options: KafkaOptions) -> Counter[int]:
    """Return the messages that a consumer with read_committed reads."""
    books: Counter[int] = Counter()
    with KafkaAdmin(options) as admin:
        places = [("out", number) for number in admin.describe(["out"])["out"].partitions]
        for (topic, number), end in admin.ends(places).items():
            for batch in RangeReader(options, PartitionRange(topic, number, end.first, end.next)).batches():
                books.update(json.loads(value)["n"] for value in batch.column("value").to_pylist())
    return books


def stored(url: str) -> Counter[int]:
    """Return the messages in the stream of the sink."""
    books: Counter[int] = Counter()
    with Connection.open(url) as connection:
        end = stream_info(connection, "OUT")["state"]["last_seq"] + 1
        for batch in PullReader(connection, Range("OUT", 1, end)).batches():
            books.update(json.loads(value)["n"] for value in batch.column("value").to_pylist())
    return books


def disturb(switch: Switch, broker: KafkaBroker, victim: str) -> None:
    """kill -9 of one part; the broker comes back, the route is started again by the caller."""
    if victim == "broker":
        broker.kill()
        time.sleep(2)
        broker.start()
    elif victim == "driver":
        switch.kill()
    else:
        jvm, workers = switch.jvm(), switch.workers()
        for process in workers if victim == "worker" else [jvm] if jvm else []:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


@pytest.mark.parametrize(
    ("source", "sink", "count"),
    [
        pytest.param("kafka", "kafka", 20_000, marks=pytest.mark.heavy),
        pytest.param("nats", "kafka", 20_000, marks=pytest.mark.heavy),
        pytest.param("kafka", "nats", 20_000, marks=pytest.mark.heavy),
        pytest.param("kafka", "kafka", 1_000_000, marks=pytest.mark.soak),
        pytest.param("kafka", "nats", 1_000_000, marks=pytest.mark.soak),
    ],
)
def test_kills(
    broker: KafkaBroker, nats_server: NatsServer, tmp_path: Path, source: str, sink: str, count: int
) -> None:
    """Worker, JVM, driver and broker are killed in the middle of micro-batches: 0 lost, 0 twice, and counted so."""
    options = KafkaOptions.of(broker.servers)
    with KafkaAdmin(options) as admin:
        admin.create_topic("in", 2, {})
        admin.create_topic("out", 3, {})
    batch = count // 20
    more = f"maxRecordsPerTrigger: {batch}, partitions: 2"
    if source == "kafka":
        fill_kafka(options, count)
        text = f'{{format: kafka, servers: "{broker.servers}", topics: in, {more}}}'
    else:
        fill_nats(nats_server.url, count)
        text = f'{{format: nats, servers: "{nats_server.url}", stream: IN, {more}}}'
    end = count if source == "kafka" else count + 1
    into = f'{{format: kafka, servers: "{broker.servers}", exactlyOnce: true}}'
    if sink == "nats":
        into = f'{{format: nats, servers: "{nats_server.url}"}}'
        with Connection.open(nats_server.url) as connection:
            create_stream(connection, {"name": "OUT", "subjects": ["out"], "storage": "file"})
    route = write_route(tmp_path, ROUTE.format(source=text, sink=into))
    victims = ["worker", "broker", "driver", "jvm"]
    deadline = time.monotonic() + max(240, count / 1000)
    with Switch(tmp_path, route, env={"SPARK_LOCAL_IP": "127.0.0.1"}) as switch:
        switch.start()
        reached = 0
        while (now := done(switch)) < end:
            assert time.monotonic() < deadline, (now, switch.said()[-3000:])
            if not switch.runs():
                switch.start()
            elif victims and now >= reached + 2 * batch:
                reached = now
                disturb(switch, broker, victims.pop(0))
            time.sleep(0.05)
        switch.kill()
    books = delivered(options) if sink == "kafka" else stored(nats_server.url)

    assert not victims
    lost, twice = set(range(count)) - books.keys(), [n for n, times in books.items() if times > 1]
    print(f"{source} to {sink}: {count:,} records, {sum(books.values()):,} delivered")
    print(f"{len(lost)} lost, {len(twice)} twice")
    assert (len(lost), len(twice), sum(books.values())) == (0, 0, count)
