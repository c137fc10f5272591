"""Counts of records, which offsets do not tell."""

from __future__ import annotations

import re
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.kafka.test_producer import refusing
from tests.kafka.test_reader import topic
from tests.server.conftest import wait_for

from turnout.embedded import free_port
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin, PartitionEnds, count_records
from turnout.kafka.clients import ErrorWatch, producer_of
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, check_topic

pytestmark = pytest.mark.kafka


def delete(options: KafkaOptions, name: str) -> None:
    """Delete a topic; the answer comes before every broker's metadata has it."""
    client = AdminClient({"bootstrap.servers": options.servers[0]})
    client.delete_topics([name])[name].result(10)
    with KafkaAdmin(options) as admin:
        wait_for(lambda: admin.existing([name]) == {})


def test_topics(options: KafkaOptions) -> None:
    """Topics are listed and described; one that is made anew under its name has another id."""
    with KafkaAdmin(options) as admin:
        assert admin.create_topic("described", 3, {"max.message.bytes": "100000"})
        assert not admin.create_topic("described", 3, {})
        first = admin.describe(["described"])["described"]

        assert "described" in admin.topics()
        assert first.partitions == (0, 1, 2)
        assert first.id
        limits = admin.record_limits(["described"])
        assert (limits.topics, limits.others) == ({"described": 100_000}, 1_048_588)

        delete(options, "described")
        with pytest.raises(StreamError, match="there is no topic 'described'") as missing:
            admin.describe(["described"])
        assert missing.value.code == 404
        assert admin.create_topic("described", 3, {})
        second = admin.describe(["described"])["described"]
        assert second.id != first.id
        check_topic(admin, PartitionRange("described", 0, 0, 1, second.id))
        with pytest.raises(StreamError, match=f"made anew .its id was {re.escape(str(first.id))} and is"):
            check_topic(admin, PartitionRange("described", 0, 0, 1, first.id))


def test_offsets(options: KafkaOptions) -> None:
    """Bounds are those that a consumer can read; a time means the first record from then on, or the end."""
    with KafkaAdmin(options) as admin:
        admin.create_topic("offsets", 2, {})
        producer = producer_of(options, ErrorWatch())
        for moment in (1000, 2000, 3000):
            producer.produce("offsets", b"x", partition=1, timestamp=moment)
        producer.flush(10)
        both = [("offsets", 0), ("offsets", 1)]

        assert admin.ends(both) == {both[0]: PartitionEnds(0, 0), both[1]: PartitionEnds(0, 3)}
        assert admin.offsets_at(both, 1500) == {both[0]: 0, both[1]: 1}
        assert admin.offsets_at(both, 9000) == {both[0]: 0, both[1]: 3}
        with pytest.raises(StreamError) as missing:
            admin.ends([("offsets", 7)])
        assert missing.value.code == 404


def test_offsets_whose_metadata_were_missed(options: KafkaOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is sent metadata again, and does not wait for seconds."""
    with KafkaAdmin(options) as admin:
        client, asked, late = admin._connected, list[str](), dict[Any, Future[Any]]()

        def list_offsets(partitions: Any, **_: Any) -> dict[Any, Future[Any]]:
            late.update((partition, Future()) for partition in partitions)
            return dict(late)

        def list_topics(name: str, timeout: float) -> object:
            asked.append(name)
            for future in late.values():
                future.set_result(SimpleNamespace(offset=7))
            return client.list_topics(name, timeout)

        stand_in = SimpleNamespace(list_offsets=list_offsets, list_topics=list_topics)
        monkeypatch.setattr(admin, "_connected", stand_in)
        monkeypatch.setattr(admin, "_options", replace(options, timeout=1.0))
        assert admin._listed([("a", 0)], OffsetSpec.latest()) == {("a", 0): 7}
        assert asked == ["a"]


def test_no_broker() -> None:
    """A request without a response ends after the timeout, with the address."""
    options = KafkaOptions.of(f"127.0.0.1:{free_port()}", timeout=1.0)

    with KafkaAdmin(options) as admin, pytest.raises(ConnectionLostError, match=r"no server of 127.0.0.1"):
        admin.topics()
    with KafkaAdmin(options) as admin, pytest.raises(ConnectionLostError, match=r"no server of 127.0.0.1"):
        admin.describe(["any"])


def test_committed_records_are_counted(options: KafkaOptions) -> None:
    """Marks of transactions are no records, and aborted records do not count; an empty topic has none."""
    topic(options, "counted", 2)
    topic(options, "counted.empty", 1)

    def send(producer: KafkaProducer, count: int) -> None:
        producer.begin()
        numbers = [number % 2 for number in range(count)]
        producer.publish(
            KafkaMessages(["counted"] * count, [b"x"] * count, [None] * count, None, None, numbers), refusing
        )
        producer.flush()

    with KafkaProducer(options, "turnout.test.counted") as producer:
        send(producer, 5)
        producer.commit()
    with KafkaProducer(options, "turnout.test.counted") as producer:
        send(producer, 3)
        producer.abort()

    assert count_records(options, ["counted", "counted.empty"]) == {"counted": 5, "counted.empty": 0}
    with pytest.raises(StreamError, match=r"there is no topic 'counted\.absent'"):
        count_records(options, ["counted.absent"])
