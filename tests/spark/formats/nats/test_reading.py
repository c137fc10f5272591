"""Reading only what subscriptions can want: which filters a micro-batch has, and the count of what stays unread."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from turnout.conditions import parse
from turnout.embedded import NatsServer
from turnout.engine.subject_filters import SubjectFilters
from turnout.errors import ConfigError, StreamError
from turnout.nats.wire import Connection, Publisher, purge_stream
from turnout.nats.wire.direct import ONE_CONSUMER, WHOLE_STREAM, ReadStrategy
from turnout.nats.wire.records import SCHEMA
from turnout.nats.wire.streams import count_exactly
from turnout.routes import Route
from turnout.runtime.driver import IndexServer
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.offsets import REVISION, readers_of
from turnout.runtime.revisions import Revisions
from turnout.spark.formats.nats.reading import ArrowColumns, Split
from turnout.spark.formats.nats.stream import NatsStreamReader
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.store import Store

pytestmark = pytest.mark.jetstream

ROUTE = """
name: r
source: {{format: nats, servers: "nats://127.0.0.1", stream: S}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///{store}", metadata: {{n: value.n}}}}
sink: {{format: nats, servers: "nats://127.0.0.1"}}
mappings: {mappings}
"""
PER_FILTER = [ReadStrategy("per_filter", (), 10_000, 3031), ReadStrategy("per_filter", (), 400)]
WAYS = [None, ONE_CONSUMER, WHOLE_STREAM, *PER_FILTER]
Make = Callable[..., NatsStreamReader]
Publish = Callable[..., None]


@pytest.fixture
def publish(nats_server: NatsServer, stream: str) -> Publish:
    """Publishes so many messages to a, b and c in turns, under x."""

    def some(count: int) -> None:
        with Connection.open(nats_server.url) as connection, Publisher(connection) as publisher:
            for n in range(count):
                publisher.publish(f"{stream}.x.{'abc'[n % 3]}", b"{}")

    return some


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/s.db")
    yield opened
    opened.close()


@pytest.fixture
def make(nats_server: NatsServer, stream: str, store: Store, tmp_path: Path) -> Iterator[Make]:
    """A streaming reader as a run makes one, over the store's revisions; called again, that of the next run."""
    opened: list[Any] = []

    def close() -> None:
        while opened:
            opened.pop()()

    def build(mappings: str = "{}", own: tuple[str, ...] = (), **options: str) -> NatsStreamReader:
        close()
        route = Route.parse(ROUTE.format(store=tmp_path / "s.db", mappings=mappings), {})
        filters = SubjectFilters(route, own)
        revisions = Revisions(f"sqlite:///{tmp_path}/s.db", tmp_path / "index", lasting=True, filters=filters)
        opened.append(revisions.close)
        server = IndexServer(revisions)
        server.__enter__()
        opened.append(lambda: server.__exit__(None, None, None))
        asked = {"servers": nats_server.url, "stream": stream, "splits": "true", "pushDown": "true"}
        asked |= {"revisionsUrl": server.url, **({"filterSubjects": ",".join(own)} if own else {}), **options}
        reader = NatsStreamReader(SourceOptions.from_mapping(asked, streaming=True), StructType())
        opened.append(reader.stop)
        return reader

    yield build
    close()


def want(store: Store, condition: str, id_: str = "") -> None:
    store.create(Subscription(["out"], parse(condition), id=id_))


def in_way(part: InputPartition, way: ReadStrategy | None) -> Split:
    """The split, to be read in this way, or in the one that was chosen for it."""
    assert isinstance(part, Split)
    return replace(part, way=way or part.way)


def read(reader: NatsStreamReader, start: Any, end: Any, way: ReadStrategy | None = None) -> tuple[list[str], int]:
    """The last tokens of what a micro-batch reads, in the way that it chooses or another, and how many are not read."""
    parts = [in_way(part, way) for part in reader.partitions(start, end)]
    copy = pickle.loads(pickle.dumps(reader))
    readers = [reader for part in parts for row in copy.read(part) for reader in readers_of(row)]
    batches = [batch for reader in readers for batch in reader.batches()]  # type: ignore[attr-defined]
    topics = [topic[-1] for batch in batches for topic in batch.column("topic").to_pylist()]
    return topics, sum(reader.not_read for reader in readers)


def batches_of(reader: NatsStreamReader, part: InputPartition) -> list[Any]:
    """Return the batches that the stage after the source reads of a part."""
    return [batch for row in reader.read(part) for split in readers_of(row) for batch in split.batches()]  # type: ignore[attr-defined]


def test_what_nobody_can_want_is_counted_and_not_read(make: Make, stream: str, publish: Publish, store: Store) -> None:
    """Read and not read are all messages of the range; a hole is neither, and the offsets go on behind the range."""
    publish(30)
    want(store, f"topic:{stream}.x.a")
    reader = make()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with Connection.open(reader._options.connection) as other:
        for sequence in (4, 5, 20):
            other.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    topics, not_read = read(reader, start, end)

    assert (topics, not_read) == (["a"] * 9, 18)
    assert end[stream] == 31
    publish(2)
    want(store, f"topic:{stream}.x.b AND n:1")
    further = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, end, further) == (["a", "b"], 0)
    assert read(reader, start, end) == (["a"] * 9, 18)


def test_a_stretch_that_nobody_wants_is_passed(make: Make, stream: str, publish: Publish, store: Store) -> None:
    """Without any subscription, or one of other subjects, no message is read, and the next micro-batch is behind."""
    publish(9)
    reader = make()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, start, end) == ([], 9)

    want(store, "topic:elsewhere.*")
    publish(3)
    further = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, end, further) == ([], 3)
    assert reader.latestOffset(further, ReadAllAvailable()) == further


def test_a_micro_batch_done_again_by_another_run(make: Make, stream: str, publish: Publish, store: Store) -> None:
    """It is read by the filters of its own revision; by another route's rules it is read whole."""
    publish(30)
    want(store, f"topic:{stream}.x.a", "first")
    reader = make()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    store.delete("first")
    want(store, f"topic:{stream}.x.b")

    again = make()
    assert read(again, start, end) == (["a"] * 10, 20)
    newest = {**end, REVISION: again.latestOffset(start, ReadAllAvailable())[REVISION]}
    assert newest != end
    assert read(again, start, newest) == (["b"] * 10, 20)

    mapped = make(mappings=f'{{"{stream}.x.*": "{stream}.y.$1"}}')
    assert read(mapped, start, end) == (["a", "b", "c"] * 10, 0)


def test_values_alone_say_nothing_of_subjects(make: Make, stream: str, publish: Publish, store: Store) -> None:
    """While one subscription may match any subject, all are read; when it is deleted, filters apply again."""
    publish(6)
    want(store, f"topic:{stream}.x.a")
    want(store, "n:1", "any")
    reader = make()
    start = reader.initialOffset()

    assert read(reader, start, reader.latestOffset(start, ReadAllAvailable())) == (["a", "b", "c"] * 2, 0)
    store.delete("any")
    assert read(reader, start, reader.latestOffset(start, ReadAllAvailable())) == (["a"] * 2, 4)


def test_other_subjects_of_the_stream_are_not_counted(
    make: Make, stream: str, publish: Publish, store: Store, connection: Connection
) -> None:
    """Not-read counts unmatched messages within the source's own filters, not those outside; holes as before."""
    publish(30)
    want(store, f"topic:{stream}.x.a")
    for sequence in (1, 2, 3):
        connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    reader = make(own=(f"{stream}.*.a", f"{stream}.*.b"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())

    assert read(reader, start, end) == (["a"] * 9, 9)


def test_counts_while_messages_arrive(
    stream: str, publish: Publish, connection: Connection, nats_server: NatsServer
) -> None:
    """Messages that arrive while a range is counted are not counted, also with chosen subjects."""
    publish(300)
    ended = threading.Event()

    def more() -> None:
        with Connection.open(nats_server.url) as other, Publisher(other) as publisher:
            while not ended.is_set():
                publisher.publish(f"{stream}.x.a", b"")
                publisher.flush()

    busy = threading.Thread(target=more)
    busy.start()
    try:
        counts = [count_exactly(connection, stream, 31, 301, [f"{stream}.x.a"]) for _ in range(20)]
    finally:
        ended.set()
        busy.join()

    assert set(counts) <= {90, None}
    assert count_exactly(connection, stream, 31, 301, [f"{stream}.x.a"]) == 90
    assert count_exactly(connection, stream, 31, 301) == 270


@pytest.mark.parametrize("way", WAYS)
def test_several_filters_in_order(
    make: Make, stream: str, publish: Publish, store: Store, way: ReadStrategy | None
) -> None:
    """However they are read: in the order of the stream, what is not read counted, and deleted messages in neither."""
    publish(3000)
    want(store, f"topic:{stream}.x.a")
    want(store, f"topic:{stream}.x.c")
    want(store, f"topic:{stream}.y.d")
    reader = make()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with Connection.open(reader._options.connection) as other:
        for sequence in (2, 3, 1000, 1500, 2999, 3000):
            other.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    publish(30)

    topics, not_read = read(reader, start, end, way)

    gone = {2, 3, 1000, 1500, 2999, 3000}
    expected = ["abc"[(n - 1) % 3] for n in range(1, 3001) if n not in gone]
    assert topics == [one for one in expected if one != "b"]
    assert not_read == expected.count("b")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_lost_is_told(
    make: Make, stream: str, publish: Publish, store: Store, way: ReadStrategy | None
) -> None:
    """Messages removed from the stream's beginning after planning stop the read, in every strategy."""
    publish(3000)
    want(store, f"topic:{stream}.x.a")
    want(store, f"topic:{stream}.x.c")
    reader = make()
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    with Connection.open(reader._options.connection) as other:
        purge_stream(other, stream, seq=1001)

    (part,) = (in_way(part, way) for part in parts)
    with pytest.raises(StreamError, match="no longer has the sequences 1 to 1,000"):
        batches_of(reader, part)


def test_few_questions_while_reading(
    make: Make, stream: str, store: Store, connection: Connection, nats_server: NatsServer
) -> None:
    """A filter makes holes everywhere; the stream's state is asked for once for all that is read within a second."""
    with Publisher(connection) as publisher:
        for n in range(3000):
            publisher.publish(f"{stream}.x.{'abc'[n % 3]}", b"." * 10_000)
    want(store, f"topic:{stream}.x.a")
    reader = make()
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    with Connection.open(nats_server.url) as other:
        other.subscribe(f"$JS.API.STREAM.INFO.{stream}")
        other.subscribe(f"end.{stream}")
        assert other.ping()
        begun = time.monotonic()
        batches = len(batches_of(reader, part))
        seconds = time.monotonic() - begun
        other.publish(f"end.{stream}")
        subjects = iter(message.subject for message in other.messages(time.monotonic() + 30))
        questions = sum(1 for _ in iter(subjects.__next__, f"end.{stream}"))

    assert batches > 3
    # One when the task begins: is the stream still the one of the split?
    assert 2 <= questions <= 2 + seconds


@pytest.mark.parametrize(
    "options", [{"ackConsumer": "c"}, {"partitionSubject": "a.{partition}", "subjectPartitions": "2"}]
)
def test_what_does_not_go_together(make: Make, options: dict[str, str]) -> None:
    """Each is said with the option's name."""
    with pytest.raises(ConfigError, match="pushDown"):
        make(**options)


def test_payloads_that_are_no_utf_8() -> None:
    """As strings they keep their bytes, as in Spark's own cast; a number that does not fit is an error by name."""
    rows = {"topic": ["a.b", "a.c"], "offset": [7, 2**40], "value": ["é".encode(), b"x\xff"]}
    arrays = [pa.array(rows.get(field.name, [None, None]), field.type) for field in SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    texts = ArrowColumns(StructType().add("value", "string").add("Topic", "string")).of(batch, Split("S", 1, 9))

    assert texts.column("value").cast(pa.binary()).to_pylist() == rows["value"]
    assert texts.column("Topic").to_pylist() == ["a.b", "a.c"]
    with pytest.raises(StreamError, match=r"column offset of message S:1099511627776 on 'a\.c' cannot be int32"):
        ArrowColumns(StructType().add("offset", "integer")).of(batch, Split("S", 1, 9))
