"""Dead letters in a Kafka topic that is kept in memory: read, redriven, and noted in their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import pyarrow as pa
import pytest

from turnout.engine import Messages, Program
from turnout.engine.sample_records import SampleRecord
from turnout.errors import ConfigError
from turnout.history import dead_letters
from turnout.history.redrive import redrive
from turnout.kafka.producer import KafkaMessages
from turnout.kafka.reader import SCHEMA
from turnout.records.published import Published
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.endpoints import StreamEnd
from turnout.runtime.kafka import history as kafka_letters
from turnout.runtime.kafka.adapter import KafkaAdapter
from turnout.runtime.kafka.history import KafkaFeedRecords, kafka_originals
from turnout.runtime.offsets import Offsets

TEXT = """
name: r
source: {format: kafka, servers: "k:9092", topics: in}
value: {format: json}
transforms: [{name: number, type: Cast$Value, spec: "n:int32"}]
mappings: {"in": out}
sink: {format: kafka, servers: "k:9092"}
deadLetter: {topic: dead}
errors: {tolerance: all}
"""


class Cluster:
    """Records of partitions, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"in:0": [], "dead:0": [], "dead:1": [], "out:0": []}

    def add(self, stream: str, key: bytes | None, value: bytes | None, headers: Any = None) -> None:
        topic, _, number = stream.rpartition(":")
        place = {"topic": topic, "partition": int(number), "offset": len(self.rows[stream])}
        row = {**dict.fromkeys(SCHEMA.names), **place, "key": key, "value": value, "headers": headers}
        self.rows[stream].append(row)

    def batch(self, stream: str, start: int = 0, end: int | None = None) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(self.rows[stream][start:end], schema=SCHEMA)


class Memory:
    """History of some topics."""

    topic_ids: ClassVar[dict[str, str | None]] = {}

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self.streams: Sequence[str] = [stream for stream in cluster.rows if stream.startswith(f"{topic}:")]

    def bounds(self, stream: str) -> StreamEnd:
        return StreamEnd(0, len(self._cluster.rows[stream]))

    def resolve(self, stream: str, place: object) -> int:
        return 0 if place == "earliest" else self.bounds(stream).next

    def read(self, stream: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield self._cluster.batch(stream, start, end)


class Producer:
    """Publishes to the cluster in memory."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def publish(self, messages: KafkaMessages, _refuse: object) -> None:
        assert messages.headers is not None
        assert messages.partitions is not None
        headers = [{"key": name, "value": value} for name, value in messages.headers[0] or ()]
        stream = f"{messages.topics[0]}:{messages.partitions[0]}"
        self._cluster.add(stream, messages.keys[0], messages.values[0], headers)

    def flush(self) -> Published:
        return Published()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with two letters of the route, in two partitions, at the same offset."""
    made = Cluster()

    @contextmanager
    def history(of: Any) -> Iterator[Memory]:
        yield Memory(made, of.stream if isinstance(of, kafka_letters.KafkaLetters) else "in")

    def send(_adapter: object, messages: Messages, _refuse: object, _name: str) -> Published:
        columns = (messages.column(part).to_pylist() for part in ("key", "value"))
        for topic, key, value in zip(messages.topics.to_pylist(), *columns, strict=True):
            made.add(f"{topic}:0", key, value)
        return Published(stored=len(messages))

    monkeypatch.setattr(kafka_letters.KafkaLetters, "history", history)
    monkeypatch.setattr(kafka_letters, "KafkaProducer", lambda _options: Producer(made))
    monkeypatch.setattr(KafkaAdapter, "history", history)
    monkeypatch.setattr(KafkaAdapter, "send", send)
    monkeypatch.setattr(KafkaAdapter, "ping", lambda _: None)
    monkeypatch.setattr(KafkaAdapter, "source_streams", lambda _: None)
    made.add("in:0", b"a", b'{"n": "x"}')
    made.add("in:0", b"b", b"{")
    result = Program.of(Route.parse(TEXT, {})).run(made.batch("in:0"), None)
    letters = result.messages
    parts = (letters.column(part).to_pylist() for part in ("key", "value", "headers"))
    for number, row in enumerate(zip(*parts, strict=True)):
        made.add(f"dead:{number}", *row)
    return made


def test_redrive(cluster: Cluster) -> None:
    """Marks are of a partition's own letters; what is delivered has key and value of the record, once."""
    route = Route.parse(TEXT, {})
    letters = dead_letters.read(route)
    assert [(one.stream, one.sequence, one.record.offset, one.record.key) for one in letters] == [
        ("dead:0", 0, 0, b"a"),
        ("dead:1", 0, 1, b"b"),
    ]
    mended = Route.parse(TEXT.replace("n:int32", "n:string"), {})

    report = redrive(mended, letters)

    assert report.outcomes == {"delivered": 1, "failed": 1}
    assert [(row["key"], row["value"]) for row in cluster.rows["out:0"]] == [(b"a", b'{"n":"x"}')]
    assert [len(cluster.rows[stream]) for stream in ("dead:0", "dead:1")] == [2, 2]
    (left,) = dead_letters.read(mended)
    assert (left.stream, left.tries) == ("dead:1", 1)
    assert [one.done for one in dead_letters.read(mended, done=True)] == [True, False]


def test_letters_cannot_be_deleted(cluster: Cluster) -> None:
    """This is said before anything is delivered."""
    route = Route.parse(TEXT, {})

    with pytest.raises(ConfigError, match="Kafka deletes no single records"):
        redrive(route, dead_letters.read(route), delete=True)

    assert cluster.rows["out:0"] == []


SOURCE = KafkaSource.model_validate({"format": "kafka", "servers": "localhost:9092", "topics": ["a", "b"]})


class Partitions:
    """Partitions with the offsets 10 to 59,999, whose records have their offset as value."""

    streams = ("a:0", "a:1")
    topic_ids: ClassVar[dict[str, str | None]] = {"a": "second"}

    def __init__(self) -> None:
        self.reads: list[tuple[str, int, int]] = []

    def bounds(self, _stream: str) -> StreamEnd:
        return StreamEnd(10, 60_000)

    def read(self, stream: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        self.reads.append((stream, start, end))
        topic, _, number = stream.partition(":")
        rows = [
            {"topic": topic, "partition": int(number), "offset": offset, "value": b"%d" % offset, "timestamp": 5}
            for offset in range(start, end)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def originals(partitions: Partitions, *positions: tuple[str, int, int]) -> list[bytes | None]:
    @contextmanager
    def opens() -> Iterator[Any]:
        yield partitions

    records = [SampleRecord(topic, b"old", None, (), number, offset, None) for topic, number, offset in positions]
    return [record.value for record in kafka_originals(SOURCE, opens, records)]


def test_positions() -> None:
    """Records that were deleted, or are in another topic or partition, stay as they are."""
    found = originals(Partitions(), ("a", 0, 12), ("a", 1, 12), ("a", 0, 9), ("a", 7, 12), ("c", 0, 12), ("a", 0, 15))

    assert found == [b"12", b"12", b"old", b"old", b"old", b"15"]


def test_records_of_an_earlier_topic() -> None:
    """A topic that was made anew gives its offsets to other records: those of the earlier one stay as they are."""

    @contextmanager
    def opens() -> Iterator[Any]:
        yield Partitions()

    records = [SampleRecord("a", b"old", None, (), 0, 12, None, None, id_) for id_ in ("first", "second", "")]
    found = kafka_originals(SOURCE, opens, records)

    assert [(record.value, record.identity) for record in found] == [(b"old", "first"), (b"12", "second"), (b"12", "")]


def test_records_that_are_far_apart() -> None:
    """What is near is read at once; large gaps are not read."""
    partitions = Partitions()

    assert originals(partitions, ("a", 0, 20), ("a", 0, 50_000), ("a", 0, 5_000)) == [b"20", b"50000", b"5000"]
    assert partitions.reads == [("a:0", 20, 5_001), ("a:0", 50_000, 50_001)]


def test_no_position_of_the_source() -> None:
    """Nothing is opened."""
    partitions = Partitions()

    assert originals(partitions, ("c", 0, 12)) == [b"old"]
    assert partitions.reads == []


@pytest.mark.parametrize(("now", "found"), [("old", [3]), (None, [3]), ("new", [])])
def test_a_feed_of_a_topic_that_was_made_anew(
    monkeypatch: pytest.MonkeyPatch, now: str | None, found: list[int]
) -> None:
    """Matches of the former topic are not read among the records of the one that has its name now."""

    class Reader:
        def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Any]:
            return {offset: FakeMessage(partition, offset) for offset in offsets}

    @contextmanager
    def history() -> Iterator[Any]:
        memory = Memory(Cluster(), "in")
        memory.topic_ids = {"in": now}  # type: ignore[misc]
        yield memory

    source = Route.parse(TEXT, {}).source
    assert isinstance(source, KafkaSource)
    records = KafkaFeedRecords(history, source)
    monkeypatch.setattr(records, "_reader", lambda _: Reader())

    keys, batch = records.read([("in:0", 3)], Offsets(1, {"in": {"0": 9}}, topic_ids={"in": "old"}))

    assert keys == [("in:0", offset) for offset in found]
    assert batch.num_rows == len(found)


class FakeMessage:
    """A message of Kafka's client."""

    def __init__(self, partition: int, offset: int) -> None:
        self._place = partition, offset

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0
