from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.integration.routes import wait_for
from tests.kafka.test_reader import rows, topic

from turnout.embedded import free_port
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import REPORTS, KafkaOptions
from turnout.kafka.producer import FencedError, KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange
from turnout.records.published import TOO_LARGE

pytestmark = pytest.mark.kafka


def values(options: KafkaOptions, name: str, partition: int = 0) -> list[object]:
    """Return the values of a partition whose transactions have ended: brokers mark the end after the commit."""
    uncommitted = replace(options, properties={**options.properties, "isolation.level": "read_uncommitted"})
    with KafkaAdmin(uncommitted) as admin:
        last = admin.ends([(name, partition)])[name, partition].next
    with KafkaAdmin(options) as admin:
        wait_for(lambda: admin.ends([(name, partition)])[name, partition].next >= last, 30)
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


def test_a_mark(options: KafkaOptions) -> None:
    """It is reached, without a flush, when all that was published before it is stored or refused."""
    topic(options, "marked", 3)
    topic(options, "marked-strict", 1, max_message_bytes="2000")
    options = replace(options, properties={REPORTS: "false"})
    refused: dict[int, StreamError] = {}
    with KafkaProducer(options) as producer:
        is_stored, until = producer.mark(), time.monotonic() + 60
        assert is_stored is not None
        assert is_stored()
        texts = [b"%d" % number for number in range(500)]
        producer.publish(KafkaMessages(["marked"] * 500, texts, texts), refusing)
        is_stored = producer.mark()
        assert is_stored is not None
        assert not is_stored()
        while not is_stored():
            assert time.monotonic() < until
            producer.collect()
        assert sum(len(values(options, "marked", partition)) for partition in range(3)) == 500

        producer.publish(KafkaMessages(["marked-strict"] * 2, [b"a", b"x" * 5000], [b"a", b"a"]), refused.__setitem__)
        is_stored = producer.mark()
        assert is_stored is not None
        producer.flush()
        assert is_stored()

    assert list(refused) == [1]


def test_a_mark_without_reports(options: KafkaOptions) -> None:
    """Of messages that are stored a producer has no reports by default: only a flush says it."""
    with KafkaProducer(options) as producer:
        assert producer.mark() is None


def keyless(count: int, *bad: int) -> KafkaMessages:
    """Messages with keys, but for the *bad* ones."""
    return KafkaMessages(
        ["compacted"] * count,
        [b"%d" % index for index in range(count)],
        [None if index in bad else b"k%d" % index for index in range(count)],
    )


def old(count: int, *bad: int) -> KafkaMessages:
    """Messages of now, but for the *bad* ones, which are a year old."""
    now = int(time.time() * 1000)
    return KafkaMessages(
        ["recent"] * count,
        [b"%d" % index for index in range(count)],
        [b"k"] * count,
        timestamps=[now - 365 * 86_400_000 if index in bad else now for index in range(count)],
    )


STRICT = [(keyless, "compacted"), (old, "recent")]


@pytest.fixture
def strict(options: KafkaOptions) -> None:
    with KafkaAdmin(options) as admin:
        admin.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        admin.create_topic("recent", 1, {"message.timestamp.before.max.ms": "600000"})


@pytest.mark.parametrize("knows_rules", [True, False])
@pytest.mark.parametrize(("messages", "name"), STRICT)
@pytest.mark.parametrize(("count", "bad"), [(20, (10,)), (2000, (1234,)), (300, (0, 1, 150, 299)), (4, (0, 1, 2, 3))])
@pytest.mark.usefixtures("strict")
def test_one_refused_record_of_a_batch(
    options: KafkaOptions,
    monkeypatch: pytest.MonkeyPatch,
    messages: Callable[..., KafkaMessages],
    name: str,
    count: int,
    bad: tuple[int, ...],
    knows_rules: bool,
) -> None:
    """Of a batch that a broker refuses only the bad messages are refused; the others are stored once.

    Without the topic's settings the batch is divided, into at most 2 k log n parts.
    """
    refused: dict[int, StreamError] = {}
    if not knows_rules:
        monkeypatch.setattr(KafkaAdmin, "topic_rules", lambda *_: {})
    before = len(values(options, name))
    waits: list[int] = []
    wait = KafkaProducer._wait
    monkeypatch.setattr(KafkaProducer, "_wait", lambda self: (waits.append(1), wait(self)))
    with KafkaProducer(options) as producer:
        producer.publish(messages(count, *bad), refused.__setitem__)
        published = producer.flush()

    assert sorted(refused) == list(bad), refused
    assert published.stored == count - len(bad)
    assert len(waits) <= 2 * len(bad) * count.bit_length() + 6
    if knows_rules:
        assert all(f"the topic {name!r} " in str(reason) for reason in refused.values())
    good = [b"%d" % index for index in range(count) if index not in bad]
    assert Counter(values(options, name)[before:]) == Counter(good)


@pytest.mark.parametrize("knows_rules", [True, False])
@pytest.mark.parametrize(("messages", "name"), STRICT)
@pytest.mark.usefixtures("strict")
def test_one_refused_record_of_a_transaction(
    options: KafkaOptions,
    monkeypatch: pytest.MonkeyPatch,
    messages: Callable[..., KafkaMessages],
    name: str,
    knows_rules: bool,
) -> None:
    """A transaction with a refused message cannot be committed; the next one, without it, has all others once."""
    if not knows_rules:
        monkeypatch.setattr(KafkaAdmin, "topic_rules", lambda *_: {})
    refused: dict[int, Any] = {}
    before = len(values(options, name))
    with KafkaProducer(options, f"divided-{name}-{knows_rules}") as producer:
        producer.begin()
        everything = messages(500, 7, 300)
        producer.publish(everything.take(range(250)), refused.__setitem__)
        producer.publish(everything.take(range(250, 500)), lambda row, reason: refused.__setitem__(row + 250, reason))
        producer.flush()
        assert sorted(refused) == [7, 300]
        was_incomplete = producer.is_incomplete

        producer.begin()
        assert (was_incomplete, producer.is_incomplete) == (True, False)
        producer.publish(everything.take([row for row in range(500) if row not in refused]), refusing)
        producer.flush()
        producer.commit()

    assert values(options, name)[before:] == [b"%d" % row for row in range(500) if row not in (7, 300)]


class Purging:
    """Client of a transaction that reports the messages it has purged before the refusal that it purged them for."""

    def __init__(self) -> None:
        self._queue: list[tuple[bytes, Callable[[KafkaError, None], None]]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def produce(self, _topic: str, value: bytes, on_delivery: Callable[[KafkaError, None], None], **_: object) -> None:
        self._queue.append((value, on_delivery))

    def poll(self, _seconds: float) -> None:
        queue, self._queue = self._queue, []
        end = next((number + 1 for number, (value, _) in enumerate(queue) if value in (b"7", b"300")), 0)
        for part, code in ((queue[end:], KafkaError._PURGE_QUEUE), (queue[:end], KafkaError.INVALID_RECORD)):
            for _, report in part if end else ():
                report(KafkaError(code), None)

    def _nothing(self, *_: object) -> None:
        pass

    purge = init_transactions = begin_transaction = abort_transaction = _nothing


def test_messages_that_are_purged_before_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent again with the others of the refused batch, so that every bad message of a transaction is found."""
    monkeypatch.setattr("turnout.kafka.producer.producer_of", lambda *_: Purging())
    monkeypatch.setattr(KafkaAdmin, "topic_rules", lambda *_: {})
    refused: dict[int, StreamError] = {}
    with KafkaProducer(KafkaOptions.of(f"127.0.0.1:{free_port()}"), "purged") as producer:
        producer.begin()
        producer.publish(keyless(500, 7, 300), refused.__setitem__)
        published = producer.flush()

        assert sorted(refused) == [7, 300]
        assert (published.stored, producer.is_incomplete) == (498, True)


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
            with pytest.raises(FencedError, match="messages cannot be stored: another task has taken over"):
                zombie.publish(KafkaMessages(["exact"], [b"zombie"], [None]), refusing)
            producer.commit()

    assert values(options, "exact") == [b"one", b"two"]


def test_several_transactions_of_one_producer(options: KafkaOptions) -> None:
    """Each begins anew, also where a task has several splits; a second close does nothing."""
    topic(options, "several")
    with KafkaProducer(options, "several-1") as producer:
        for value, step in ((b"one", producer.commit), (b"no", producer.abort), (b"two", producer.commit)):
            producer.begin()
            producer.publish(KafkaMessages(["several"], [value], [None]), refusing)
            producer.flush()
            step()
        producer.close()

    assert values(options, "several") == [b"one", b"two"]


def test_a_client_that_cannot_be_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is that of the client, not of its absence; the producer can be closed."""
    options = KafkaOptions.of(f"127.0.0.1:{free_port()}", patience=1.0, timeout=1.0)
    with KafkaProducer(options, "none") as producer:
        with pytest.raises(ConnectionLostError):
            producer.begin()
        monkeypatch.setattr("turnout.kafka.producer.producer_of", _no_client)
        with pytest.raises(StreamError, match="no client"):
            producer.begin()
        producer.close()


def _no_client(*_: object) -> None:
    raise StreamError("no client")


def test_no_broker() -> None:
    """Without a broker, publishing ends after its patience, with the address and the reason."""
    options = KafkaOptions.of(f"127.0.0.1:{free_port()}", patience=1.0, timeout=1.0)

    with KafkaProducer(options) as producer:
        producer.publish(KafkaMessages(["any"], [b"x"], [None]), refusing)
        with pytest.raises(ConnectionLostError, match=r"no server of 127.0.0.1:\d+"):
            producer.flush()
    with KafkaProducer(options, "none") as producer, pytest.raises(ConnectionLostError, match=r"127.0.0.1:\d+"):
        producer.begin()
