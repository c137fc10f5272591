"""A route from Kafka to Kafka whose keys and values have schemas of a registry, with a stand-in and a server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.codecs.schema_registry.tested_registry import TestedRegistry, opened_registry
from tests.integration.kafka_broker import KafkaBroker

from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

COUNT = 60
FIRST: Any = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "n", "type": "long"}, {"name": "card", "type": "string"}],
}  # fmt: skip
SECOND: Any = {**FIRST, "fields": [*FIRST["fields"], {"name": "city", "type": ["null", "string"], "default": None}]}
KEY: Any = {"type": "record", "name": "OrderKey", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
ROUTE = """
name: avro
source: {{format: kafka, servers: "{servers}", topics: "{topic}"}}
key: {{format: avro, registry: {registry}}}
value: {{format: avro, registry: {registry}}}
transforms:
  - {{name: mask, type: MaskField$Value, fields: card}}
  - {{name: via, type: InsertField$Value, "static.field": via, "static.value": turnout}}
mappings:
  "{topic}": "{topic}-out"
sink: {{format: kafka, servers: "{servers}"}}
trigger: {{availableNow: true}}
checkpoint: "{work}/checkpoint"
deadLetter: {{topic: "{topic}-dead"}}
errors: {{tolerance: all}}
"""


@pytest.fixture(params=("stand-in", "server"))
def registry(request: pytest.FixtureRequest) -> Iterator[TestedRegistry]:
    with opened_registry(request.param) as opened:
        yield opened


def test_avro_to_avro(
    broker: KafkaBroker,
    registry: TestedRegistry,
    tmp_path: Path,
) -> None:
    """Two versions get their changed schemas under the new topic's subject; an unknown id is a dead letter."""
    topic = registry.subject("orders")
    with KafkaAdmin(KafkaOptions.of(broker.servers)) as admin:
        for name in (topic, f"{topic}-out", f"{topic}-dead"):
            admin.create_topic(name, 1, {})
    keys, values = _serialized(registry, topic)
    unknown = b"\0\x7f\xff\xff\xff\x02"
    _publish(broker.servers, topic, [*keys, keys[0]], [*values, unknown])
    path = tmp_path / "route.yaml"
    text = ROUTE.format(servers=broker.servers, topic=topic, registry=json.dumps(registry.url), work=tmp_path)
    path.write_text(text, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "turnout", "run", str(path), "--json"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)["counts"]
    assert (counts["read"], counts["delivered"], counts["dead_lettered"]) == (COUNT + 1, COUNT, 1)
    written = _records(broker.servers, f"{topic}-out", COUNT)
    assert [record.key() for record in written] == keys
    read = AvroDeserializer(registry.client())
    context = SerializationContext(f"{topic}-out", MessageField.VALUE)
    assert [read(record.value(), context) for record in written] == [
        {"n": n, "card": "", "via": "turnout", **({"city": "Oulu"} if n % 2 else {})} for n in range(COUNT)
    ]
    assert len(registry.client().get_versions(f"{topic}-out-value")) == 2
    (dead,) = _records(broker.servers, f"{topic}-dead", 1)
    assert dead.value() == unknown


def _serialized(registry: TestedRegistry, topic: str) -> tuple[list[bytes], list[bytes]]:
    """Keys and values as Confluent's serializer writes them, alternately of both versions."""
    versions = [AvroSerializer(registry.client(), json.dumps(schema)) for schema in (FIRST, SECOND)]
    of_keys = AvroSerializer(registry.client(), json.dumps(KEY))
    keys = [of_keys({"id": n}, SerializationContext(topic, MessageField.KEY)) or b"" for n in range(COUNT)]
    values = [
        versions[n % 2]({"n": n, "card": str(n), "city": "Oulu"}, SerializationContext(topic, MessageField.VALUE))
        for n in range(COUNT)
    ]
    return keys, [value or b"" for value in values]


def _publish(servers: str, topic: str, keys: list[bytes], values: list[bytes]) -> None:
    messages = KafkaMessages([topic] * len(values), values, keys)
    with KafkaProducer(KafkaOptions.of(servers)) as producer:
        producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
        producer.flush()


def _records(servers: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "looks", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while len(found) < count:
        messages = consumer.consume(count, 30)
        assert messages, f"{topic}: {len(found)} of {count} records came"
        found += messages
    consumer.close()
    return found
