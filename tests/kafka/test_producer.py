from __future__ import annotations

import pytest
from tests.kafka.test_reader import rows, topic

from turnout.embedded.nats_server import free_port
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import FencedError, KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange
from turnout.records.published import TOO_LARGE

pytestmark = pytest.mark.kafka


def values(options: KafkaOptions, name: str, partition: int = 0) -> list[object]:
    with KafkaAdmin(options) as admin:
        ends = admin.ends([(name, partition)])[name, partition]
    return [row["value"] for row in rows(options, PartitionRange(name, partition, ends.first, ends.next))]


def refusing(index: int, reason: StreamError) -> None:
    raise AssertionError(f"{index}: {reason}")


def test_messages(options: KafkaOptions) -> None:
    """Messages keep key, headers, time and the partition that is asked for; null values stay null."""
    topic(options, "sent", 3)
    with KafkaProducer(options) as producer:
        messages = KafkaMessages(
            ["sent"] * 3,
            [b"a", None, b"c"],
            [b"k", b"k", None],
            [[("h", b"1")], None, []],
            [5000, None, 7000],
            [2, 2, 0],
        )
        producer.publish(messages, refusing)
        published = producer.flush()

    assert (published.stored, published.delivery.count) == (3, 3)
    first, second = rows(options, PartitionRange("sent", 2, 0, 2))
    assert (first["key"], first["headers"], first["value"]) == (b"k", [{"key": "h", "value": b"1"}], b"a")
    assert first["timestamp"].timestamp() == 5  # type: ignore[attr-defined]
    assert (second["value"], second["headers"]) == (None, None)
    assert values(options, "sent") == [b"c"]


def test_partition_of_a_key(options: KafkaOptions) -> None:
    """Keys have the partitions of Java's client: murmur2, with vectors of Kafka's own `Utils.murmur2`."""
    topic(options, "keyed", 1000)
    vectors = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"abc": 479470107,
    }
    with KafkaProducer(options) as producer:
        producer.publish(KafkaMessages(["keyed"] * len(vectors), list(vectors), list(vectors)), refusing)
        producer.flush()

    for key, hashed in vectors.items():
        assert values(options, "keyed", (hashed & 0x7FFFFFFF) % 1000) == [key]


def test_refused_messages(options: KafkaOptions) -> None:
    """A message that is too large, or for a partition that there is not, is told; its neighbours are stored."""
    topic(options, "strict", 1, max_message_bytes="2000")
    refused: dict[int, StreamError] = {}
    with KafkaProducer(options) as producer:
        texts = [b"a", b"x" * 5000, b"b", b"y" * (2 << 20), b"c"]
        messages = KafkaMessages(["strict"] * 5, texts, [None] * 5, partitions=[0, 0, 9, 0, 0])
        producer.publish(messages, refused.__setitem__)
        published = producer.flush()

    assert {index: reason.code == TOO_LARGE for index, reason in refused.items()} == {1: True, 2: False, 3: True}
    assert published.stored == 2
    assert values(options, "strict") == [b"a", b"c"]


def test_transactions(options: KafkaOptions) -> None:
    """Committed records can be read, aborted ones cannot; a new producer fences the previous one."""
    topic(options, "exact")
    with KafkaProducer(options, "exact-1") as producer:
        producer.begin()
        producer.publish(KafkaMessages(["exact"], [b"one"], [None]), refusing)
        producer.flush()
        producer.commit()
    with KafkaProducer(options, "exact-1") as producer:
        producer.begin()
        producer.publish(KafkaMessages(["exact"], [b"no"], [None]), refusing)
        producer.flush()
        producer.abort()
    with KafkaProducer(options, "exact-1") as zombie:
        zombie.begin()
        zombie.publish(KafkaMessages(["exact"], [b"zombie"], [None]), refusing)
        zombie.flush()
        with KafkaProducer(options, "exact-1") as producer:
            producer.begin()
            producer.publish(KafkaMessages(["exact"], [b"two"], [None]), refusing)
            producer.flush()
            with pytest.raises(FencedError, match="another task has taken over the transactional id 'exact-1'"):
                zombie.commit()
            producer.commit()

    assert values(options, "exact") == [b"one", b"two"]


def test_no_broker() -> None:
    """Without a broker, publishing ends after its patience, with the address and the reason."""
    options = KafkaOptions.of(f"127.0.0.1:{free_port()}", patience=1.0, timeout=1.0)

    with KafkaProducer(options) as producer:
        producer.publish(KafkaMessages(["any"], [b"x"], [None]), refusing)
        with pytest.raises(ConnectionLostError, match=r"no server of 127.0.0.1:\d+"):
            producer.flush()
    with KafkaProducer(options, "none") as producer, pytest.raises(ConnectionLostError, match=r"127.0.0.1:\d+"):
        producer.begin()
