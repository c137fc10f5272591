"""Streams that are deleted and created again, or restored to older data, between and during reads."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StringType, StructType
from tests.streams import sequences_in

from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.nats.protocol.errors import StreamNotFoundError, StreamReplacedError
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stream_info
from turnout.records.batch import as_batch
from turnout.runtime.nats.source import SourceOptions, opened
from turnout.runtime.offsets import identity_in
from turnout.spark.formats.nats.source import NatsReader
from turnout.spark.formats.nats.stream import NatsStreamReader

pytestmark = pytest.mark.jetstream

SCHEMA = StructType().add("offset", LongType()).add("value", BinaryType()).add("stream_id", StringType())
ALL = ReadAllAvailable()


@dataclass
class Scene:
    """A server with one stream, R, and readers of it."""

    server: NatsServer
    folder: Path
    readers: list[NatsStreamReader] = field(default_factory=list)

    def make(self, *values: str, **config: Any) -> str:
        """Create the stream with some messages, and return its creation time."""
        with Connection.open(self.server.url) as connection:
            create_stream(connection, {"name": "R", "subjects": ["r.>"], "storage": "file", **config})
        self.publish(*values)
        return self.created

    def make_anew(self, *values: str, **config: Any) -> str:
        with Connection.open(self.server.url) as connection:
            delete_stream(connection, "R")
        return self.make(*values, **config)

    @property
    def created(self) -> str:
        with Connection.open(self.server.url) as connection:
            return str(stream_info(connection, "R")["created"])

    def publish(self, *values: str) -> None:
        with Connection.open(self.server.url) as connection, Publisher(connection) as publisher:
            for value in values:
                publisher.publish("r.x", value.encode())

    def back_up(self) -> None:
        """Copy the server's store."""
        self.server.stop()
        shutil.copytree(self.server.work, self.folder / "backup")
        self.server.restart()

    def restore(self) -> None:
        """Replace the server's store by the copy."""
        self.server.stop()
        for path in (self.folder / "backup").iterdir():
            if path.is_dir():
                shutil.rmtree(self.server.work / path.name)
                shutil.copytree(path, self.server.work / path.name)
        self.server.restart()

    def options(self, **options: str) -> SourceOptions:
        given = {"servers": self.server.url, "stream": "R", "includeStream": "true", "partitions": "1", **options}
        return SourceOptions.from_mapping(given, streaming=True)

    def reader(self, **options: str) -> NatsStreamReader:
        self.readers.append(NatsStreamReader(self.options(**options), SCHEMA))
        return self.readers[-1]

    def first(self, **options: str) -> dict[str, Any]:
        """The offset behind what is there, as the checkpoint has it."""
        reader = self.reader(**options)
        offset = reader.latestOffset(reader.initialOffset(), ALL)
        read(reader, reader.initialOffset(), offset)
        return dict(json.loads(json.dumps(offset)))


def read(reader: NatsStreamReader | NatsReader, start: Any, end: Any) -> list[tuple[str, str]]:
    """Values, and the streams with their identities, between two offsets."""
    assert isinstance(reader, NatsStreamReader)
    rows = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    return [(row["value"].decode(), row["stream_id"]) for row in rows]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with NatsServer(tmp_path / "server") as server:
        scene = Scene(server, tmp_path)
        yield scene
        for reader in scene.readers:
            reader.stop()


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_stream_that_was_made_anew(scene: Scene, count: int) -> None:
    """An error names the stream, both creation times, the position and the cure, however many messages it has."""
    before = scene.make("old1", "old2", "old3")
    offset = scene.first()
    after = scene.make_anew(*(f"new{n}" for n in range(count)))

    with pytest.raises(StreamReplacedError) as raised:
        scene.reader().latestOffset(offset, ALL)

    text = str(raised.value)
    assert all(part in text for part in ("'R'", before, after, "from 4 on", "failOnDataLoss=false"))


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_without_fail_on_data_loss_the_new_stream_is_read_whole(
    scene: Scene, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """From its first message, after one warning, under ids of its own; the next run goes on in it."""
    before = scene.make("old1", "old2", "old3")
    offset = scene.first()
    after = scene.make_anew(*(f"new{n}" for n in range(count)))
    reader = scene.reader(failOnDataLoss="false")

    end = reader.latestOffset(offset, ALL)
    again = scene.reader(failOnDataLoss="false")

    label = StreamIdentity.of(after).label("R")
    assert read(reader, offset, end) == [(f"new{n}", label) for n in range(count)]
    assert read(again, offset, end) == [(f"new{n}", label) for n in range(count)]
    assert sequences_in(end) == {"R": count + 1, "R.from": 1}
    assert reader.latestOffset(end, ALL) == end
    assert [before in record.message and after in record.message for record in caplog.records] == [True]
    assert (reader.reportLatestOffset() or {})["R.warning"] == caplog.records[0].message
    scene.publish("more")
    assert read(again, end, scene.reader().latestOffset(end, ALL)) == [("more", label)]


def test_a_planned_micro_batch_is_not_read_of_another_stream(scene: Scene) -> None:
    """It ends with the error; without failOnDataLoss it has nothing, and the next one has the new stream."""
    scene.make("old1", "old2", "old3")
    reader = scene.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    scene.make_anew("new1", "new2", "new3", "new4")
    lenient = scene.reader(failOnDataLoss="false")

    with pytest.raises(StreamReplacedError):
        reader.partitions(start, end)
    with pytest.raises(StreamReplacedError):
        [list(reader.read(part)) for part in parts]
    assert read(lenient, start, end) == []
    assert [list(lenient.read(part)) for part in parts] == [[]]
    following = lenient.latestOffset(end, ALL)
    assert [value for value, _ in read(lenient, end, following)] == ["new1", "new2", "new3", "new4"]


def test_a_run_that_does_all_there_is_reads_the_whole_new_stream(scene: Scene) -> None:
    """The end that was fixed before is one of the former stream."""
    scene.make("old1", "old2")
    reader = scene.reader(failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.prepareForTriggerAvailableNow()
    scene.make_anew("new1", "new2", "new3", "new4")

    assert [value for value, _ in read(reader, end, reader.latestOffset(end, ALL))] == ["new1", "new2", "new3", "new4"]


@pytest.mark.parametrize("lenient", [False, True])
def test_a_stream_that_is_away(scene: Scene, lenient: bool) -> None:
    """Between its deletion and its creation: an error; without failOnDataLoss the new one is waited for."""
    scene.make("1")
    reader = scene.reader(failOnDataLoss=str(not lenient).lower())
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    with Connection.open(scene.server.url) as connection:
        delete_stream(connection, "R")
    if not lenient:
        with pytest.raises(StreamNotFoundError, match="no stream 'R'"):
            reader.latestOffset(offset, ALL)
        return

    thread = threading.Timer(0.3, scene.make, ("2", "3"))
    thread.start()
    first = reader.latestOffset(offset, ALL)
    rows = read(reader, offset, first)
    thread.join()
    following = reader.latestOffset(first, ALL)
    rows += read(reader, first, following) if following != first else []

    assert [value for value, _ in rows] == ["2", "3"]


@pytest.mark.parametrize("refilled", [0, 2, 4])
def test_a_server_with_older_data(scene: Scene, caplog: pytest.LogCaptureFixture, refilled: int) -> None:
    """The creation time is the same; the end of the stream, or the message before the position, tells."""
    scene.make("1", "2")
    scene.back_up()
    scene.publish("3", "4")
    offset = scene.first()
    scene.restore()
    scene.publish(*(f"again{n}" for n in range(refilled)))

    with pytest.raises(StreamReplacedError, match="older data") as raised:
        scene.reader().latestOffset(offset, ALL)

    assert scene.created in str(raised.value)
    reader = scene.reader(failOnDataLoss="false")
    end = reader.latestOffset(offset, ALL)
    rows = read(reader, offset, end)
    assert [value for value, _ in rows] == ["1", "2", *(f"again{n}" for n in range(refilled))]
    assert {label for _, label in rows} == {StreamIdentity.of(scene.created).label("R")}
    assert "older data" in caplog.text


def test_a_limited_micro_batch_knows_its_last_message_too(scene: Scene) -> None:
    """Its end is in the middle of the stream."""
    scene.make("1", "2")
    scene.back_up()
    scene.publish("3", "4", "5")
    reader = scene.reader(maxRecordsPerTrigger="3")
    offset = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    scene.restore()
    scene.publish("again3", "again4", "again5")

    with pytest.raises(StreamReplacedError, match="another message 3"):
        scene.reader().latestOffset(offset, ALL)


def test_a_message_that_was_deleted_tells_nothing(scene: Scene) -> None:
    """Reading goes on behind it, as before."""
    scene.make("1", "2", "3")
    offset = scene.first()
    with Connection.open(scene.server.url) as connection:
        connection.api("STREAM.MSG.DELETE.R", {"seq": 3})
    scene.server.restart()
    scene.publish("4")

    assert [value for value, _ in read(scene.reader(), offset, scene.reader().latestOffset(offset, ALL))] == ["4"]


def test_a_checkpoint_of_an_earlier_release_adopts_the_stream(scene: Scene) -> None:
    """It goes on under ids without identity, for this stream alone."""
    scene.make("1", "2", "3")
    reader = scene.reader()

    planned = read(reader, {"R": 1}, {"R": 3})
    end = reader.latestOffset({"R": 3}, ALL)
    scene.publish("4")
    following = scene.reader().latestOffset(end, ALL)

    assert planned == [("1", "R"), ("2", "R")]
    assert read(reader, {"R": 3}, end) == [("3", "R")]
    assert read(reader, end, following) == [("4", "R")]
    assert identity_in(following, "R") == StreamIdentity.adopted(scene.created)
    after = scene.make_anew("5")
    lenient = scene.reader(failOnDataLoss="false")
    assert read(lenient, following, lenient.latestOffset(following, ALL)) == [
        ("5", StreamIdentity.of(after).label("R"))
    ]


def test_messages_of_a_new_stream_are_not_acknowledged_unread(scene: Scene) -> None:
    """A work queue loses what is acknowledged: the position is one of the former stream."""
    queue = {"retention": "workqueue", "allow_direct": True}
    scene.make("old1", "old2", "old3", **queue)
    offset = scene.first(ackConsumer="spark")
    scene.make_anew("new1", "new2", "new3", **queue)
    reader = scene.reader(ackConsumer="spark", failOnDataLoss="false")

    end = reader.latestOffset(offset, ALL)

    assert [value for value, _ in read(reader, offset, end)] == ["new1", "new2", "new3"]
    assert reader.latestOffset(end, ALL) == end
    with Connection.open(scene.server.url) as connection:
        assert stream_info(connection, "R")["state"]["messages"] == 0


def test_a_batch_read_names_the_stream_that_is_there(scene: Scene) -> None:
    """Message ids of a plain Spark program contain it."""
    created = scene.make("1")
    options = {"servers": scene.server.url, "stream": "R", "includeStream": "true"}
    reader = NatsReader(SourceOptions.from_mapping(options, streaming=False), SCHEMA)

    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    assert [row["stream_id"] for row in rows] == [StreamIdentity.of(created).label("R")]


# Open splits


def follow(
    scene: Scene, count: int, between: Callable[[], object], **options: str
) -> tuple[list[str], list[Exception]]:
    """What an open split reads until it has *count* messages, or ends; *between* is called behind the first three."""
    values: list[str] = []
    failures: list[Exception] = []
    changed = threading.Event()
    identity = StreamIdentity.of(scene.created)
    ours, theirs = socket.socketpair()

    def task() -> None:
        try:
            with opened(scene.options(**options), "R", 1, theirs, 0.1, identity=identity) as records:
                for batch in records.batches():
                    values.extend(value.decode() for value in as_batch(batch).column("value").to_pylist())
                    if len(values) == 3:
                        changed.set()
                    if len(values) >= count:
                        return
        except StreamError as failure:
            failures.append(failure)

    with ours, theirs:
        thread = threading.Thread(target=task)
        thread.start()
        assert changed.wait(30)
        between()
        thread.join(60)
        assert not thread.is_alive()
    return values, failures


@pytest.mark.parametrize("lenient", [False, True])
def test_an_open_split_of_a_stream_that_is_made_anew(scene: Scene, lenient: bool) -> None:
    """It ends before it reads a message of the new stream: with the reason, or for the next split, after a warning."""
    scene.make("1", "2", "3")

    values, failures = follow(
        scene, 99, lambda: scene.make_anew("4", "5", "6", "7"), failOnDataLoss=str(not lenient).lower()
    )

    assert values == ["1", "2", "3"]
    assert [isinstance(failure, StreamError) for failure in failures] == ([] if lenient else [True])


@pytest.mark.parametrize("refilled", [0, 3])
def test_an_open_split_of_a_server_with_older_data(scene: Scene, refilled: int) -> None:
    """It ends with the reason, also if the messages of its sequences are others by then."""
    scene.make("1")
    scene.back_up()
    scene.publish("2", "3")

    def restore() -> None:
        scene.restore()
        scene.publish(*(f"again{n}" for n in range(refilled)))

    values, failures = follow(scene, 99, restore)

    assert values[:3] == ["1", "2", "3"]
    assert [type(failure) for failure in failures] == [StreamReplacedError]
