from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from turnout.embedded import free_port
from turnout.engine.messages import record_ids
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import ErrorWatch, producer_of
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import SCHEMA, PartitionRange, RangeReader, listed_records, record_batch
from turnout.records.batch import TOPIC_ID

pytestmark = pytest.mark.kafka


def topic(options: KafkaOptions, name: str, partitions: int = 1, **config: str) -> None:
    with KafkaAdmin(options) as admin:
        assert admin.create_topic(name, partitions, {key.replace("_", "."): text for key, text in config.items()})


def remove_records(options: KafkaOptions, name: str, offset: int) -> None:
    """Remove the records of a topic's first partition before *offset*."""
    # It has no `close`; in a test that keeps an `ExceptionInfo` it would ask for its broker until it is freed.
    admin = AdminClient({"bootstrap.servers": options.servers[0]})
    [done] = admin.delete_records([TopicPartition(name, 0, offset)]).values()
    done.result(10)


def rows(options: KafkaOptions, span: PartitionRange, **more: bool) -> list[dict[str, object]]:
    return [row for batch in RangeReader(options, span, **more).batches() for row in batch.to_pylist()]


def test_columns(options: KafkaOptions) -> None:
    """Records come in the engine's columns; a timestamp in nanoseconds is none, and nothing else is disturbed."""
    topic(options, "columns")
    producer = producer_of(options, ErrorWatch())
    producer.produce("columns", b"v", b"k", headers=[("a", b"1"), ("a", None)], timestamp=1_700_000_000_123)
    producer.produce("columns", None, b"", timestamp=1_790_000_000_000_000_000)
    producer.produce("columns", b"last", None, headers=[("b", b"")], timestamp=-1000)
    producer.flush(10)

    [batch] = RangeReader(options, PartitionRange("columns", 0, 0, 3)).batches()

    assert batch.schema.equals(SCHEMA)
    first, second, third = batch.to_pylist()
    moment = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert first == {
        "topic": "columns", "partition": 0, "offset": 0, "key": b"k", "value": b"v", "timestamp": moment,
        "timestampType": 0, "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }  # fmt: skip
    assert (second["key"], second["value"], second["headers"], second["timestamp"]) == (b"", None, None, None)
    assert (third["key"], third["headers"]) == (None, [{"key": "b", "value": b""}])


def test_ranges_join(options: KafkaOptions) -> None:
    """Two ranges of a partition have all its records, each once, in batches of bounded bytes."""
    topic(options, "joined")
    producer = producer_of(options, ErrorWatch())
    for number in range(3000):
        producer.produce("joined", b"%01000d" % number)
    producer.flush(30)

    readers = [
        RangeReader(options, PartitionRange("joined", 0, start, end), most_bytes=100_000)
        for start, end in ((0, 1700), (1700, 3000))
    ]
    batches = [batch for reader in readers for batch in reader.batches()]

    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(3000))
    assert max(batch.num_rows for batch in batches[1:]) <= 500


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [b"yes", b"plain"]), ("read_uncommitted", [b"yes", b"no", b"plain", b"open"])],
)
def test_transactions(options: KafkaOptions, isolation: str, expected: list[bytes]) -> None:
    """Aborted records, and those of an open transaction, are read under read_uncommitted alone."""
    name = f"tx.{isolation}"
    topic(options, name)
    producer = producer_of(options, ErrorWatch(), name)
    producer.init_transactions(30)
    for text in (b"yes", b"no"):
        producer.begin_transaction()
        producer.produce(name, text)
        producer.flush(10)
        producer.commit_transaction() if text == b"yes" else producer.abort_transaction()
    plain = producer_of(options, ErrorWatch())
    plain.produce(name, b"plain")
    plain.flush(10)
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush(10)

    chosen = KafkaOptions.of(options.servers, client={"isolation.level": isolation})
    with KafkaAdmin(chosen) as admin:
        ends = admin.ends([(name, 0)])[name, 0]
    values = [row["value"] for row in rows(chosen, PartitionRange(name, 0, ends.first, ends.next))]
    producer.abort_transaction()

    assert values == expected


def test_records_that_are_gone(options: KafkaOptions, caplog: pytest.LogCaptureFixture) -> None:
    """Removed records end the read, or are stepped over with a warning; so do offsets behind the end."""
    topic(options, "gone")
    texts = [b"%d" % number for number in range(10)]
    with KafkaProducer(options) as producer:
        producer.publish(KafkaMessages(["gone"] * 10, texts, [None] * 10), lambda *refused: pytest.fail(str(refused)))
        producer.flush()
    remove_records(options, "gone", 4)

    with pytest.raises(StreamError, match="no longer has the offsets 1 to 3") as lost:
        rows(options, PartitionRange("gone", 0, 1, 8))
    with caplog.at_level(logging.WARNING):
        found = rows(options, PartitionRange("gone", 0, 1, 8), fail_on_data_loss=False)

    assert lost.value.code == 404
    assert [row["offset"] for row in found] == [4, 5, 6, 7]
    assert "no longer has the offsets 1 to 3" in caplog.text
    with pytest.raises(StreamError, match="no longer has the offsets 20 to 29"):
        rows(options, PartitionRange("gone", 0, 20, 30))
    assert rows(options, PartitionRange("gone", 0, 20, 30), fail_on_data_loss=False) == []


def test_compacted_offsets(options: KafkaOptions) -> None:
    """Offsets that compaction has left empty, also at the end of a range, are stepped over."""
    topic(options, "compacted.often", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001",
          max_compaction_lag_ms="100", min_compaction_lag_ms="0")  # fmt: skip
    producer = producer_of(options, ErrorWatch())
    for number in range(50):
        producer.produce("compacted.often", b"%d" % number, b"same")
    producer.flush(10)
    deadline = time.monotonic() + 60
    kept = 50
    while kept > 10 and time.monotonic() < deadline:
        time.sleep(1)
        # A new record closes the segment before it.
        producer.produce("compacted.often", b"later", b"other")
        producer.flush(10)
        kept = len(rows(options, PartitionRange("compacted.often", 0, 0, 50)))

    assert 1 <= kept <= 10
    assert rows(options, PartitionRange("compacted.often", 0, 0, 20)) == []


def test_no_broker() -> None:
    """Without a broker the read ends after its patience, with the reason."""
    options = KafkaOptions.of(f"127.0.0.1:{free_port()}", patience=1.0, timeout=1.0)

    with pytest.raises(ConnectionLostError, match=r"no server of 127.0.0.1:\d+ answers"):
        rows(options, PartitionRange("any", 0, 0, 1))


class Received:
    """Record as the client has it."""

    def __init__(self, topic: str, partition: int, offset: int, time: tuple[int, int], **parts: Any) -> None:
        self._parts = {"topic": topic, "partition": partition, "offset": offset, "timestamp": time, **parts}

    def __getattr__(self, name: str) -> Any:
        return lambda: self._parts.get(name)


_bytes = st.one_of(st.none(), st.binary(max_size=3))
_received = st.builds(
    Received,
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 3),
    st.integers(0, 9),
    st.tuples(st.integers(0, 2), st.one_of(st.integers(-5, 10**13), st.integers(-(2**62), 2**62))),
    key=_bytes,
    value=_bytes,
    headers=st.one_of(st.none(), st.lists(st.tuples(st.sampled_from(["h", "é", ""]), _bytes), max_size=2)),
)


@given(st.lists(_received, min_size=1, max_size=4))
def test_a_few_records_as_lists(records: list[Any]) -> None:
    """They are those of the record batch, and messages have the same ids."""
    ids = {"a": "x", "b": None}
    batch = record_batch(None, 0, records)
    batch = batch.append_column(TOPIC_ID, pa.array([ids.get(record.topic()) for record in records], pa.string()))

    listed = listed_records(records, ids.get, lambda: batch)

    assert listed.ids == record_ids(batch).to_pylist()
    assert listed.topics == batch.column("topic").to_pylist()
    assert listed.partitions == batch.column("partition").to_pylist()
    assert listed.offsets == batch.column("offset").to_pylist()
    assert listed.times == batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert (listed.keys, listed.values) == (batch.column("key").to_pylist(), batch.column("value").to_pylist())
    headers = [[(pair["key"], pair["value"]) for pair in own or ()] for own in batch.column("headers").to_pylist()]
    assert [list(own) for own in listed.headers] == headers
    assert listed.batch is batch
