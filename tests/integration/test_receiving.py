"""The Python programs of docs/receiving.md receive what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.documentation import Block, blocks
from tests.integration.kafka_broker import started_broker

from turnout import jetstream
from turnout.embedded import NatsServer
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer

VALUE = b'{"total": 20}'
OF_NATS, OF_KAFKA = "nats://127.0.0.1:4222", "127.0.0.1:9092"
EXAMPLES = blocks("receiving.md", "python")


def check(example: Block, edit: Callable[[str], str]) -> None:
    printed = example.run({}, edit)

    assert printed
    assert printed == example.told


@pytest.mark.jetstream
@pytest.mark.parametrize("example", [one for one in EXAMPLES if OF_NATS in one.text], ids=str)
def test_from_nats(example: Block) -> None:
    """From a stream of its own."""

    async def publish(url: str) -> None:
        async with jetstream.connect(url) as js:
            await js.create_stream(jetstream.StreamConfig(name="SHOP", subjects=["shop.>"]))
            await js.publish("shop.eu", VALUE, msg_id="order-17")

    with NatsServer() as server:
        asyncio.run(publish(server.url))
        check(example, lambda text: text.replace(OF_NATS, server.url))


@pytest.mark.heavy
@pytest.mark.kafka
def test_from_kafka(tmp_path: Path) -> None:
    """From a topic of its own."""
    (example,) = [one for one in EXAMPLES if OF_KAFKA in one.text]
    with started_broker(tmp_path) as started:
        options = KafkaOptions.of(started.servers)
        with KafkaAdmin(options) as admin:
            admin.create_topic("orders.checked", 1, {})
        with KafkaProducer(options) as producer:
            messages = KafkaMessages(["orders.checked"], [VALUE], [None])
            producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
            producer.flush()
        check(example, lambda text: text.replace(OF_KAFKA, started.servers))


def test_there_is_an_example_of_each() -> None:
    """A page whose examples are not found would pass every test."""
    assert [OF_KAFKA in one.text for one in EXAMPLES] == [False, False, True]
