"""Routes from and into Kafka whose micro-batches stay open: kills, several tasks, and their lag in a consumer group."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.kafka_broker import KafkaBroker, started_broker
from tests.integration.routes import wait_for, write_route
from tests.integration.switch import Switch, running

from turnout.embedded import NatsServer
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader, committed_progress
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, stream_info
from turnout.runtime.offsets import committed
from turnout.runtime.open_splits import ProgressFolder

pytestmark = [pytest.mark.kafka, pytest.mark.heavy, pytest.mark.timeout(900)]

ROUTE = """
name: low
source: {{{source}}}
value: {{format: raw}}
mappings: {{"{mapping}": "out"}}
sink: {{{sink}}}
trigger: {{latency: low}}
"""
KILLS: dict[str, Callable[[Switch], object]] = {
    "worker": lambda switch: [worker.kill() for worker in switch.workers()],
    "driver": lambda switch: switch.process.kill(),
    "JVM": lambda switch: psutil.Process((switch.jvm() or switch.process).pid).kill(),
    "all": Switch.kill,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with started_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def options(broker: KafkaBroker) -> Iterator[KafkaOptions]:
    options = KafkaOptions.of(broker.servers)
    with KafkaAdmin(options) as admin:
        for topic, partitions in (("in", 3), ("out", 2)):
            admin.create_topic(topic, partitions, {})
        yield options
        client = admin._client
        for topic in ("in", "out"):
            client.delete_topics([topic])[topic].result(20)
        while admin.existing(["in", "out"]):
            time.sleep(0.05)


def publish(options: KafkaOptions, first: int, last: int) -> None:
    texts = [b"%d" % number for number in range(first, last)]
    with KafkaProducer(options) as producer:
        messages = KafkaMessages(["in"] * len(texts), texts, texts)
        producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
        producer.flush()


def delivered(options: KafkaOptions) -> Counter[int]:
    found: Counter[int] = Counter()
    with KafkaAdmin(options) as admin:
        ends = admin.ends([("out", 0), ("out", 1)])
    for (topic, number), end in ends.items():
        for batch in RangeReader(options, PartitionRange(topic, number, end.first, end.next)).batches():
            found.update(map(int, batch.column("value").to_pylist()))
    return found


def stays_open(checkpoint: Path) -> bool:
    """Return True once the first two splits have ended; a later one stays open."""
    return len(ProgressFolder(checkpoint).numbers()) > 2


def from_kafka(broker: KafkaBroker, more: str = "") -> str:
    return f'format: kafka, servers: "{broker.servers}", topics: in{more}'


@pytest.mark.parametrize("victim", KILLS)
def test_exactly_once_through_kills(broker: KafkaBroker, options: KafkaOptions, tmp_path: Path, victim: str) -> None:
    """Two tasks read three partitions; whatever is killed, each record is there once, and all are counted once."""
    sink = f'format: kafka, servers: "{broker.servers}", exactlyOnce: true'
    text = ROUTE.format(source=from_kafka(broker, ", partitions: 2, commitGroup: lag"), mapping="in", sink=sink)
    path = write_route(tmp_path, text)
    with running(tmp_path, path, "--json-lines") as switch:
        wait_for(lambda: stays_open(switch.checkpoint))
        publish(options, 0, 300)
        wait_for(lambda: delivered(options).total() >= 300)
        for first in range(300, 400, 10):
            publish(options, first, first + 10)
        wait_for(lambda: bool(switch.workers()))
        KILLS[victim](switch)
        publish(options, 400, 500)
        switch.wait(60)
        switch.start()
        wait_for(lambda: delivered(options).keys() == set(range(500)))
        switch.process.terminate()
        assert switch.wait(60) == 0, switch.said()[-3000:]

    assert delivered(options) == Counter(range(500))
    reached = committed(switch.checkpoint)
    assert sum(reached.sequence(f"in:{number}") for number in range(3)) == 500
    group = committed_progress(options, "in", "lag", range(3))
    assert {f"in:{number}": progress.next for number, progress in group.items()} == reached.by_stream


def test_from_kafka_to_nats_and_back(
    broker: KafkaBroker, options: KafkaOptions, nats_server: NatsServer, tmp_path: Path
) -> None:
    """Each record once: by message ids in the stream, by transactions in the topic; a kill makes no difference."""
    with Connection.open(nats_server.url) as connection:
        config = {"name": "LOW", "subjects": ["out"], "storage": "file", "duplicate_window": 3600 * 10**9}
        create_stream(connection, config)
    nats = f'format: nats, servers: "{nats_server.url}"'
    path = write_route(tmp_path, ROUTE.format(source=from_kafka(broker), mapping="in", sink=nats))

    def stored() -> int:
        with Connection.open(nats_server.url) as connection:
            return int(stream_info(connection, "LOW")["state"]["messages"])

    with running(tmp_path, path) as switch:
        wait_for(lambda: stays_open(switch.checkpoint))
        publish(options, 0, 300)
        wait_for(lambda: stored() >= 300)
        switch.kill()
        publish(options, 300, 400)
        switch.start()
        wait_for(lambda: stored() >= 400)
        switch.process.terminate()
        assert switch.wait(60) == 0, switch.said()[-3000:]
    with Connection.open(nats_server.url) as connection:
        batches = list(PullReader(connection, Range("LOW", 1, stored() + 1)).batches())
    assert Counter(int(value) for batch in batches for value in batch.column("value").to_pylist()) == Counter(
        range(400)
    )

    back = tmp_path / "back"
    back.mkdir()
    sink = f'format: kafka, servers: "{broker.servers}", exactlyOnce: true'
    path = write_route(back, ROUTE.format(source=f"{nats}, stream: LOW", mapping="out", sink=sink))
    with running(back, path) as switch:
        wait_for(lambda: delivered(options).total() >= 400)
        switch.kill()
        with Connection.open(nats_server.url) as connection, Publisher(connection) as publisher:
            for number in range(400, 500):
                publisher.publish("out", b"%d" % number)
            publisher.flush()
        switch.start()
        wait_for(lambda: delivered(options).total() >= 500)
        switch.process.terminate()
        assert switch.wait(60) == 0, switch.said()[-3000:]

    assert delivered(options) == Counter(range(500))


def test_the_lag_of_micro_batches(broker: KafkaBroker, options: KafkaOptions, tmp_path: Path) -> None:
    """The group has the position behind the last micro-batch of a run that stops by itself, too."""
    sink = f'format: kafka, servers: "{broker.servers}"'
    source = from_kafka(broker, ", commitGroup: batches")
    path = write_route(tmp_path, ROUTE.format(source=source, mapping="in", sink=sink))
    publish(options, 0, 100)
    with running(tmp_path, path, "--once", "--json") as switch:
        assert switch.wait(120) == 0, switch.said()[-3000:]
        result = json.loads(switch.said()[switch.said().index("{") :])

    assert result["counts"]["delivered"] == 100
    group = committed_progress(options, "in", "batches", range(3))
    assert sum(progress.next for progress in group.values()) == 100
