"""The demo in Kafka as a user runs it, held to what another consumer finds in the broker's log afterwards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.kafka_broker import KafkaBroker

from turnout.demo.kafka_year import DEAD, SOURCE
from turnout.runtime.kafka.publisher import Note

pytestmark = pytest.mark.kafka

LIMIT = 10_000
OWN = {"turnout.control", "__transaction_state", "__consumer_offsets"}


def committed(servers: str) -> tuple[Counter[str], list[Note]]:
    """Read every topic by a consumer of its own: the number of records in each, and the notes of finished splits."""
    settings: Mapping[str, str | int | bool] = {
        "bootstrap.servers": servers,
        "group.id": "looks",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics
    places = [
        TopicPartition(name, number, 0)
        for name, topic in topics.items()
        if name not in OWN - {"turnout.control"}
        for number in topic.partitions
    ]
    counts: Counter[str] = Counter()
    notes: list[Note] = []
    consumer = Consumer({**settings})
    consumer.assign(places)
    left = {(place.topic, place.partition) for place in places}
    while left:
        messages = consumer.consume(5_000, 30)
        assert messages, f"nothing came from {len(left)} partitions"
        for message in messages:
            topic, error = str(message.topic()), message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                left.discard((topic, int(message.partition() or 0)))
                continue
            counts[topic] += 1
            if topic == "turnout.control":
                notes.append(Note.decode(message.value() or b""))
    consumer.close()
    return counts, notes


def left_by_demo(folder: Path) -> KafkaBroker:
    """The demo's broker, with its log and its ports: its controller is known by them."""
    work = folder / ".turnout" / "demo" / "kafka"
    properties = work / "server.properties"
    text = properties.read_text().replace(".turnout/demo/kafka", str(work))
    broker = KafkaBroker(work)
    properties.write_text(text)
    broker.port = int(re.findall(r"(?m)^listeners=PLAINTEXT://127\.0\.0\.1:(\d+)", text)[0])
    return broker


@pytest.mark.heavy
def test_demo(tmp_path: Path) -> None:
    """Flights go from Avro records past the subscriptions into Kafka: its counts are those of the broker's log."""
    command = [sys.executable, "-m", "turnout", "demo", "--kafka", "--keep", "--json"]
    options = ["--limit", str(LIMIT), "--subscriptions", "300", "--master", "local[2]"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    if "Maven" in done.stderr and done.returncode:
        pytest.skip(f"no Kafka broker: {done.stderr.strip()}")

    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    counts = told["counts"]
    assert (told["conserved"], told["disagreements"], counts["read"]) == (True, [], told["published"])
    broker = left_by_demo(tmp_path)
    try:
        broker.start()
        found, notes = committed(broker.servers)
    finally:
        broker.__exit__()

    assert (found.pop(SOURCE), found.pop(DEAD)) == (counts["read"], counts["dead_lettered"])
    assert found.pop("turnout.control") == len(notes) > 0
    assert sum(found.values()) == counts["messages"] == sum(int(str(note.counts["messages"])) for note in notes)
    assert {topic: found[topic] for topic in told["top_destinations"]} == told["top_destinations"]
    assert counts["delivered"] > 0 < counts["dead_lettered"]
