"""The NATS source with splits as rows, which the next stage reads, and a revision in its offsets."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tests.streams import sequences_in

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.wire import Connection, Publisher
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.offsets import REVISION, readers_of
from turnout.spark.formats.nats import stream as stream_module
from turnout.spark.formats.nats.reading import Split
from turnout.spark.formats.nats.source import NatsDataSource, NatsReader
from turnout.spark.formats.nats.stream import NatsStreamReader

pytestmark = pytest.mark.jetstream


class FakeRevisions:
    """Revisions that a test sets."""

    def __init__(self) -> None:
        self.now = 7
        self.kept = {7}

    def newest(self) -> int:
        self.kept.add(self.now)
        return self.now

    def usable(self, revision: int) -> int:
        return revision if revision in self.kept else self.newest()


@pytest.fixture
def publish(nats_server: NatsServer, stream: str) -> Callable[[int], None]:
    def some(count: int) -> None:
        with Connection.open(nats_server.url) as connection, Publisher(connection) as publisher:
            for n in range(count):
                publisher.publish(f"{stream}.{n % 3}", str(n).encode(), [("Kind", "x")])

    return some


@pytest.fixture
def reader(nats_server: NatsServer, stream: str, monkeypatch: Any) -> Callable[..., NatsStreamReader]:
    """A streaming reader as Spark's planner makes one, over revisions that a test sets."""

    def make(revisions: FakeRevisions | None = None, **options: str) -> NatsStreamReader:
        monkeypatch.setattr(stream_module, "AskedRevisions", lambda _: revisions)
        asked = {} if revisions is None else {"revisionsUrl": "http://127.0.0.1:1/token"}
        options_ = {"servers": nats_server.url, "stream": stream, "splits": "true", **asked, **options}
        return NatsStreamReader(SourceOptions.from_mapping(options_, streaming=True), StructType())

    return make


def records(read: Any) -> list[tuple[dict[str, Any], int | None]]:
    """Every record of the splits in some rows, with its split's revision."""
    return [
        (record, reader.revision)
        for row in read
        for reader in readers_of(row)
        for batch in reader.batches_with_stream()
        for record in batch.to_pylist()
    ]


def test_the_schema_of_a_source_of_splits(nats_server: NatsServer, stream: str) -> None:
    """One column, however many streams there are."""
    options = {"servers": nats_server.url, "stream": f"{stream},OTHER", "splits": "true"}

    assert NatsDataSource(options).schema() == "split binary"
    assert SourceOptions.from_mapping(options, streaming=False).splits


def test_a_batch_read_of_splits(nats_server: NatsServer, stream: str, publish: Callable[[int], None]) -> None:
    """Without subscriptions there is no revision."""
    publish(10)
    options = {"servers": nats_server.url, "stream": stream, "splits": "true"}
    read = NatsReader(SourceOptions.from_mapping(options, streaming=False), StructType())

    read_records = records(row for part in read.partitions() for row in read.read(part))

    assert [(record["offset"], record["stream"], revision) for record, revision in read_records] == [
        (n, stream, None) for n in range(1, 11)
    ]
    assert read_records[0][0]["headers"] == [{"key": "Kind", "value": b"x"}]


def test_a_revision_belongs_to_a_micro_batch(
    reader: Callable[..., NatsStreamReader], stream: str, publish: Callable[[int], None]
) -> None:
    """It is in the offset of the micro-batch, on its splits and in its rows; it moves with records alone."""
    revisions = FakeRevisions()
    read = reader(revisions)
    start = read.initialOffset()

    assert read.latestOffset(start, ReadAllAvailable()) == start
    publish(5)
    first = read.latestOffset(start, ReadAllAvailable())
    assert sequences_in(first) == {stream: 6, f"{stream}.from": 1, REVISION: 7}
    revisions.now = 8
    assert read.latestOffset(first, ReadAllAvailable()) == first
    publish(5)
    second = read.latestOffset(first, ReadAllAvailable())
    assert sequences_in(second) == {stream: 11, REVISION: 8}

    again = {
        number: {revision for part in read.partitions(*ends) for _, revision in records(read.read(part))}
        for number, ends in enumerate([(start, first), (first, second)])
    }
    assert again == {0: {7}, 1: {8}}
    read.stop()


def test_a_split_carries_the_revision_through_a_pickle(
    reader: Callable[..., NatsStreamReader], publish: Callable[[int], None]
) -> None:
    """A task gets a copy of its split, and of a reader."""
    read = reader(FakeRevisions())
    publish(3)
    end = read.latestOffset(read.initialOffset(), ReadAllAvailable())
    (part,) = pickle.loads(pickle.dumps(read.partitions(read.initialOffset(), end)))

    assert part.revision == 7
    read.stop()


def test_a_checkpoint_without_a_revision_goes_on(
    reader: Callable[..., NatsStreamReader], stream: str, publish: Callable[[int], None]
) -> None:
    """A micro-batch that was planned before there were revisions is matched with the newest."""
    publish(4)
    read = reader(FakeRevisions())

    (part,) = read.partitions({stream: 1}, {stream: 5})

    assert isinstance(part, Split)
    assert (part.start, part.end, part.revision) == (1, 5, 7)
    assert read.latestOffset({stream: 5}, ReadAllAvailable()) == {stream: 5}
    read.stop()


def test_a_checkpoint_with_a_revision_goes_on_without_subscriptions(
    reader: Callable[..., NatsStreamReader], stream: str, publish: Callable[[int], None]
) -> None:
    """A route that has lost its subscriptions block reads on."""
    publish(4)
    read = reader()
    start = {stream: 3, REVISION: 5}

    assert read.latestOffset({stream: 5, REVISION: 5}, ReadAllAvailable()) == {stream: 5, REVISION: 5}
    assert sequences_in(read.latestOffset(start, ReadAllAvailable())) == {stream: 5}
    assert [vars(part)["revision"] for part in read.partitions(start, {stream: 5, REVISION: 5})] == [None]
    read.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": "yes"}, "splits: is true or false"),
        ({"revisionsUrl": "http://127.0.0.1:1/token"}, "revisionsUrl: is for streaming reads with splits"),
    ],
)
def test_mistakes(options: dict[str, str], message: str) -> None:
    """Contradictory options are reported."""
    with pytest.raises(ConfigError, match=message):
        SourceOptions.from_mapping({"servers": "nats://127.0.0.1:1", "stream": "A", **options}, streaming=True)
