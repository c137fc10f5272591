"""The readers of the format nats as Spark calls them, without Spark: places, partitions and acknowledgements."""

from __future__ import annotations

import pickle
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType
from tests.streams import sequences_in

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, StreamError
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, purge_stream, stream_info
from turnout.runtime.driver import OpenSplitServer
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.open_splits import OpenProgress, OpenSplits
from turnout.spark.formats.nats.reading import OpenSplit, Split
from turnout.spark.formats.nats.source import NatsReader
from turnout.spark.formats.nats.stream import NatsStreamReader

pytestmark = pytest.mark.jetstream

SCHEMA = StructType().add("offset", LongType()).add("topic", StringType())
_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
Fill = Callable[..., str]
Make = Callable[..., NatsStreamReader]


@pytest.fixture
def fill(connection: Connection, nats_server: NatsServer) -> Iterator[Fill]:
    streams: list[str] = []

    def make(count: int, name: str = "", payload: bytes = b"", **config: Any) -> str:
        if not name:
            name = f"RDR{secrets.token_hex(4)}"
            create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config})
            streams.append(name)
        with Connection.open(nats_server.url) as opened, Publisher(opened) as publisher:
            for n in range(count):
                publisher.publish(f"{name}.x.{n % 3}", payload or b"%d" % n)
        return name

    yield make
    for name in streams:
        delete_stream(connection, name)


@pytest.fixture
def make(nats_server: NatsServer) -> Iterator[Make]:
    readers: list[NatsStreamReader] = []

    def build(stream: str, **options: str) -> NatsStreamReader:
        given = {"servers": nats_server.url, "stream": stream, **options}
        readers.append(NatsStreamReader(SourceOptions.from_mapping(given, streaming=True), SCHEMA))
        return readers[-1]

    yield build
    for reader in readers:
        reader.stop()


def read(reader: NatsStreamReader | NatsReader, parts: Any) -> list[list[tuple[int, str]]]:
    copy = pickle.loads(pickle.dumps(reader))
    return [[(row["offset"], row["topic"]) for batch in copy.read(part) for row in batch.to_pylist()] for part in parts]


def open_split(part: Any) -> tuple[str, int, int]:
    assert isinstance(part, OpenSplit)
    return part.stream, part.start, part.number


def test_each_subject_partition_is_one_task(fill: Fill, make: Make) -> None:
    """Its number is the record's partition, which keeps the order of a key."""
    stream = fill(30)
    reader = make(stream, partitionSubject=f"{stream}.*.{{partition}}", subjectPartitions="3")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    assert read(reader, parts) == [
        [(n + 1, f"{stream}.x.{number}") for n in range(30) if n % 3 == number] for number in range(3)
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"partitionSubject": "a.{partition}"},
        {"partitionSubject": "a.b", "subjectPartitions": "2"},
        {"partitionSubject": "a.{partition}", "subjectPartitions": "2", "filterSubject": "a.>"},
        {"partitionSubject": "a.{partition}", "subjectPartitions": "2", "ackConsumer": "x"},
        {"ackConsumer": "a.b"},
        {"ackConsumer": "x", "start": "5"},
        {"ackConsumer": "x", "filterSubjects": "a,b"},
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str]) -> None:
    """Each combination is one mistake, reported before anything is read."""
    with pytest.raises(ConfigError) as wrong:
        SourceOptions.from_mapping({"servers": "a", "stream": "A", **options}, streaming=True)

    assert len(wrong.value.mistakes) == 1


def test_limits_and_the_end_of_an_available_now_run(fill: Fill, make: Make) -> None:
    """Messages after the start of the run are not part of it; the last offset is unchanged."""
    stream = fill(25)
    reader = make(stream, maxRecordsPerTrigger="10")
    offset = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(5, stream)
    seen = []
    for _ in range(5):
        offset = reader.latestOffset(offset, ReadMaxRows(10))
        seen.append(offset[stream])

    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert seen == [11, 21, 26, 26, 26]
    assert reader.reportLatestOffset() == {stream: 31}


def test_bytes_a_trigger(fill: Fill, make: Make, connection: Connection) -> None:
    """The mean size of the stream's messages decides how many are admitted."""
    stream = fill(100)
    mean = stream_info(connection, stream)["state"]["bytes"] / 100
    reader = make(stream, maxBytesPerTrigger=str(int(mean * 20.5)))

    assert sequences_in(reader.latestOffset({stream: 1}, reader.getDefaultReadLimit())) == {stream: 21}


def test_a_stream_that_joins_a_query_later(fill: Fill, make: Make) -> None:
    """It begins at the configured start; the other stream's position in the checkpoint is unchanged."""
    one, two = fill(5), fill(7)
    reader = make(f"{one},{two}", includeStream="true")

    end = reader.latestOffset({one: 6}, ReadAllAvailable())
    parts = reader.partitions({one: 6}, end)

    assert sequences_in(end) == {one: 6, two: 8}
    assert [len(rows) for rows in read(reader, parts)] == [7]


def test_nothing_to_read_is_one_empty_partition(fill: Fill, make: Make, nats_server: NatsServer) -> None:
    """Spark would make up a partition of its own from an empty list."""
    stream = fill(0)
    reader = make(stream)
    batch = NatsReader(
        SourceOptions.from_mapping({"servers": nats_server.url, "stream": stream}, streaming=False), SCHEMA
    )

    assert read(reader, reader.partitions({stream: 1}, {stream: 1})) == [[]]
    assert read(batch, batch.partitions()) == [[]]
    assert read(batch, [InputPartition(None)]) == [[]]


def comes_to(connection: Connection, stream: str, count: int) -> None:
    """Wait until a stream keeps *count* messages: a work queue is emptied after the acknowledgement is confirmed."""
    end = time.monotonic() + 30
    while (left := stream_info(connection, stream)["state"]["messages"]) != count:
        assert time.monotonic() < end, f"{left} messages are left, and not {count}"
        time.sleep(0.01)


def test_acknowledged_is_what_is_committed(fill: Fill, make: Make, connection: Connection) -> None:
    """Messages are acknowledged when Spark requests later ones, not when they are planned or read."""
    stream = fill(30, retention="workqueue", allow_direct=True)
    reader = make(stream, ackConsumer="spark")
    offset = reader.initialOffset()
    for left in (30, 20, 20):
        end = reader.latestOffset(offset, ReadMaxRows(10)) if left > offset[stream] else offset
        end = {stream: min(end[stream], offset[stream] + 10)}
        read(reader, reader.partitions(offset, end))
        comes_to(connection, stream, left)
        offset = end
    reader.commit(offset)

    comes_to(connection, stream, 10)
    assert sequences_in(make(stream, ackConsumer="spark").initialOffset()) == {stream: 21}


def test_what_is_gone_while_it_is_read(fill: Fill, make: Make, connection: Connection) -> None:
    """Between the plan and the read, the beginning of the range is removed: the task tells."""
    stream = fill(30)
    strict, lax = make(stream), make(stream, failOnDataLoss="false")
    parts = strict.partitions({stream: 1}, {stream: 31})
    purge_stream(connection, stream, seq=11)

    assert [row[0] for row in read(lax, parts)[0]] == list(range(11, 31))
    with pytest.raises(StreamError, match="no longer has the sequences 1 to 10"):
        read(strict, parts)


def test_what_goes_while_the_task_is_at_it(fill: Fill, make: Make, connection: Connection) -> None:
    """A purge overtakes a task that has begun: what it had not asked for yet is missing, and is told."""
    stream = fill(30_000, payload=b"x" * 1000)
    strict, lax = make(stream, partitions="1"), make(stream, failOnDataLoss="false")
    part = strict.partitions({stream: 1}, {stream: 30_001})[0]
    reading, going_on = strict.read(part), lax.read(part)
    begun = [next(reading).num_rows, next(going_on)["offset"].to_pylist()]
    purge_stream(connection, stream, seq=29_001)

    assert begun[0] < 15_000
    with pytest.raises(StreamError, match=r"no longer has the sequences [\d,]+ to 29,000"):
        list(reading)
    offsets = begun[1] + [offset for batch in going_on for offset in batch["offset"].to_pylist()]
    assert offsets[-1000:] == list(range(29_001, 30_001))
    assert offsets == sorted(set(offsets))
    assert len(offsets) < 30_000


@pytest.mark.parametrize("subject", ["", "*.x.1"])
def test_holes_are_counted_and_no_loss(
    fill: Fill, make: Make, connection: Connection, caplog: pytest.LogCaptureFixture, subject: str
) -> None:
    """Messages that were deleted one by one are stepped over, said in the log and counted in the progress."""
    stream = fill(100)
    for sequence in (3, 4, 50, 100):
        connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    reader = make(stream, **({"filterSubject": subject.replace("*", stream)} if subject else {}))
    quiet = reader.reportLatestOffset()
    end = reader.latestOffset({stream: 1}, ReadAllAvailable())
    first = read(reader, reader.partitions({stream: 1}, {stream: 50}))
    middle = reader.reportLatestOffset()
    read(reader, reader.partitions({stream: 50}, end))

    assert quiet is None
    assert len(first[0]) == (16 if subject else 47)
    assert middle == {stream: 101, f"{stream}.missing": 2}
    assert reader.reportLatestOffset() == {stream: 101, f"{stream}.missing": 4}
    assert f"2 of the sequences 1 to 49 of stream '{stream}' hold no message" in caplog.text


def test_more_holes_than_are_worth_a_list(
    fill: Fill, make: Make, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream with a limit per subject is mostly holes: it is read, and said once that they are not counted."""
    stream = fill(0, max_msgs_per_subject=2)
    connection.request(f"{stream}.kept")
    fill(10_100, stream)
    reader = make(stream, partitions="1")
    rows = [read(reader, reader.partitions({stream: start}, {stream: 10_102}))[0] for start in (1, 10_097)]

    assert [offset for offset, _ in rows[0]] == [1, *range(10_096, 10_102)]
    assert len(rows[1]) == 5
    assert caplog.text.count("has 10094 holes, too many to count") == 1


def test_no_reply_subject_is_stored(fill: Fill, make: Make, connection: Connection) -> None:
    """JetStream answers the reply subject of a message with its acknowledgement and does not keep it."""
    stream = fill(0)
    connection.publish(f"{stream}.x", b"x", "somebody.waits", [("A", "b")])
    while connection.api(f"STREAM.INFO.{stream}")["state"]["last_seq"] < 1:  # stored a moment after it was taken
        time.sleep(0.01)
    reader = NatsStreamReader(
        SourceOptions.from_mapping({"servers": str(connection.server), "stream": stream}, streaming=True),
        StructType().add("headers", _HEADERS),
    )
    rows = [row for batch in reader.read(reader.partitions({stream: 1}, {stream: 2})[0]) for row in batch.to_pylist()]
    reader.stop()
    stored = connection.api(f"STREAM.MSG.GET.{stream}", {"seq": 1})["message"]

    assert rows == [{"headers": [{"key": "A", "value": b"b"}]}]
    assert set(stored) == {"subject", "seq", "hdrs", "data", "time"}


def test_a_first_micro_batch_that_is_done_again(fill: Fill, make: Make) -> None:
    """The latest does not move while messages come in, nor by a restart before the first commit: nothing is skipped."""
    stream = fill(10)
    reader = make(stream, start="latest")
    begun = reader.initialOffset()
    fill(5, stream)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fill(5, stream)
    asked_again = reader.initialOffset()
    restarted = make(stream, start="latest")
    rows = read(restarted, restarted.partitions(restarted.initialOffset(), end))
    second = reader.latestOffset(end, ReadAllAvailable())

    assert begun == asked_again
    assert sequences_in(begun) == {stream: 11}
    assert [offset for offset, _ in rows[0]] == [11, 12, 13, 14, 15]
    assert sequences_in(second) == {stream: 21}
    assert [offset for offset, _ in read(reader, reader.partitions(end, second))[0]] == [16, 17, 18, 19, 20]


@pytest.fixture
def splits(tmp_path: Path) -> OpenSplits:
    return OpenSplits(tmp_path)


@pytest.fixture
def driver(splits: OpenSplits) -> Iterator[dict[str, str]]:
    """The options of a source that asks a driver's ledger of open splits."""
    with OpenSplitServer(splits) as server:
        yield {"splits": "true", "openSplits": server.address}


def ranges(parts: Sequence[InputPartition]) -> list[tuple[int, int]]:
    """The ranges that are not empty."""
    return [(part.start, part.end) for part in parts if isinstance(part, Split) and part.start < part.end]


def test_offsets_of_open_splits(
    fill: Fill, make: Make, splits: OpenSplits, driver: dict[str, str], tmp_path: Path
) -> None:
    """Each begins at the end of the previous one, also without new messages; a pause leaves an offset without one."""
    name = fill(6)
    pause = tmp_path / "pause"
    reader = make(name, **driver, staysOpen="true", start="3", pauseFile=str(pause))
    splits.seconds = 30.0
    start = reader.initialOffset()

    first = reader.latestOffset(start, ReadAllAvailable())
    assert sequences_in(first) == {name: 3, f"{name}.open": 1}
    assert [open_split(part) for part in reader.partitions(start, first)] == [(name, 3, 1)]
    attempt = splits.begin(1, 3, None)
    splits.record(attempt, OpenProgress(7), final=True)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert sequences_in(second) == {name: 7, f"{name}.open": 2}
    # Nothing is recorded of it: the next one begins where it began.
    assert sequences_in(reader.latestOffset(second, ReadAllAvailable())) == {name: 7, f"{name}.open": 3}
    splits.record(splits.begin(2, 7, None), OpenProgress(9), final=True)
    splits.close()
    pause.touch()
    last = reader.latestOffset(second, ReadAllAvailable())
    assert sequences_in(last) == {name: 9, f"{name}.from": 9}
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert ranges(reader.partitions(second, last)) == []


def test_an_open_split_is_gone_on_with_by_other_triggers(
    fill: Fill, make: Make, splits: OpenSplits, driver: dict[str, str]
) -> None:
    """Behind what is recorded; without a driver that knows it, from its beginning."""
    name = fill(9)
    splits.record(splits.begin(4, 2, None), OpenProgress(5), final=True)
    start = {name: 2, f"{name}.open": 4}

    bounded = make(name, **driver)
    end = bounded.latestOffset(start, ReadAllAvailable())
    assert sequences_in(end) == {name: 10, f"{name}.from": 5}
    assert ranges(bounded.partitions(start, end)) == [(5, 10)]
    assert [open_split(part) for part in bounded.partitions({name: 1}, start)] == [(name, 2, 4)]

    alone = make(name, splits="true")
    end = alone.latestOffset(start, ReadAllAvailable())
    assert ranges(alone.partitions(start, end)) == [(2, 10)]
    assert ranges(alone.partitions({name: 1}, start)) == []


def test_a_backlog_is_worked_off_first(
    fill: Fill, make: Make, splits: OpenSplits, driver: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In micro-batches with an end."""
    monkeypatch.setattr("turnout.runtime.offsets.LARGE_BACKLOG", 8)
    monkeypatch.setattr("turnout.runtime.offsets._SMALL_BACKLOG", 2)
    name = fill(9)
    reader = make(name, **driver, staysOpen="true")
    splits.seconds = 30.0
    start = reader.initialOffset()

    end = reader.latestOffset(start, ReadAllAvailable())

    assert sequences_in(end) == {name: 10, f"{name}.from": 1}
    assert sequences_in(reader.latestOffset(end, ReadAllAvailable())) == {name: 10, f"{name}.open": 1}


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"openSplits": "h 1 t"}, "openSplits: is for streaming reads with splits=true"),
        ({"staysOpen": "true", "splits": "true"}, "staysOpen: is for a route's own reads of one stream"),
        (
            {"staysOpen": "true", "splits": "true", "openSplits": "h 1 t", "stream": "A,B"},
            "staysOpen: is for a route's own reads of one stream",
        ),
    ],
)
def test_options_of_open_splits_belong_to_routes(options: dict[str, str], mistake: str) -> None:
    """A query outside of a route has none."""
    with pytest.raises(ConfigError, match=mistake):
        SourceOptions.from_mapping({"servers": "nats://127.0.0.1:1", "stream": "A", **options}, streaming=True)
