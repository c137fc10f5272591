"""Task of an open split: what it reads, with which revision, and what it reports to the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.runtime.fakes import FakeRevisions, read
from tests.streams import own_stream

from turnout.base.histogram import Histogram
from turnout.embedded import NatsServer
from turnout.engine import Counts
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.wire import Connection, purge_stream
from turnout.records.batch import as_batch
from turnout.runtime import open_task
from turnout.runtime.driver import OpenSplitServer
from turnout.runtime.nats.source import SourceOptions, opened, report_loss
from turnout.runtime.open_splits import OpenProgress, OpenSplits, ProgressFolder
from turnout.runtime.open_task import OpenRecords, OpenTask
from turnout.runtime.publishing import TaskTally
from turnout.spark.formats.nats.reading import OpenSplit

pytestmark = pytest.mark.jetstream


@dataclass
class Sink:
    """Publishers that keep what they get: sequences with the revision that they were matched with."""

    published: list[tuple[int, int | None]] = field(default_factory=list)
    flushed: int = 0
    collected: list[int] = field(default_factory=list)
    delivery: Histogram = field(default_factory=Histogram)
    duplicates: int = 0
    fails_at: int | None = None
    transaction_seconds: float | None = None
    gather_seconds: float = 0.0
    is_outdated: bool = False

    prepared: list[int | None] = field(default_factory=list)
    is_open: bool = False

    def prepare(self, revision: int | None) -> None:
        self.prepared.append(revision)

    def open(self) -> None:
        self.is_open = True

    def outcomes(self, batch: Any, revision: int | None) -> Iterable[Any]:
        sequences = as_batch(batch).column("offset").to_pylist()
        if self.fails_at in sequences:
            raise RuntimeError("the worker dies here")
        return [SimpleNamespace(counts=read(len(sequences)), failures=[], rows=[(n, revision) for n in sequences])]

    def publish(self, result: Any) -> list[Any]:
        self.published += result.rows
        return []

    marks: bool | None = None

    def mark(self) -> Callable[[], bool] | None:
        return None if self.marks is None else lambda: bool(self.marks)

    def collect(self) -> list[Any]:
        self.collected.append(self.flushed)
        return []

    def flush(self) -> list[Any]:
        self.flushed = len(self.published)
        return []

    def resume(self, split: str) -> None:
        raise AssertionError(split)

    def commit(self, split: str, counts: Any, *, follows: bool = False) -> bool:
        raise AssertionError(split, counts, follows)


@dataclass
class Scene:
    """A stream, and the driver's side of an open split of it."""

    connection: Connection
    stream: str
    splits: OpenSplits
    revisions: FakeRevisions
    options: SourceOptions
    folder: Path

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.connection.request(f"{self.stream}.x", b"x")

    def task(self, sink: Sink, tally: TaskTally, *, start: int = 1, revision: int | None = 3) -> OpenTask:
        split = OpenSplit(self.stream, start, 1, revision)
        address = self.options.open_splits or ""
        return OpenTask(address, split, partial(opened, self.options, self.stream), sink, sink, tally)

    def recorded(self) -> OpenProgress:
        progress = ProgressFolder(self.folder).read(1)
        assert progress is not None
        return progress


@pytest.fixture
def scene(connection: Connection, nats_server: NatsServer, tmp_path: Path) -> Iterator[Scene]:
    revisions = FakeRevisions(3)
    splits = OpenSplits(tmp_path, revisions)
    splits.seconds = 60.0
    with own_stream(connection) as stream, OpenSplitServer(splits) as server:
        given = {"servers": nats_server.url, "stream": stream, "splits": "true", "openSplits": server.address}
        options = SourceOptions.from_mapping(given, streaming=True)
        yield Scene(connection, stream, splits, revisions, options, tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not happen within 120 s"
        time.sleep(0.01)


def test_a_task_reads_until_it_is_told_to_stop(scene: Scene) -> None:
    """Stored and later messages are read once each; then position and counts are recorded."""
    scene.publish(5)
    sink, tally = Sink(), TaskTally()
    thread = threading.Thread(target=scene.task(sink, tally, start=3).run)
    thread.start()
    wait_for(lambda: sink.flushed == 3)
    scene.publish(2)
    wait_for(lambda: sink.flushed == 5)

    scene.splits.close()
    thread.join(30)

    assert sink.published == [(n, 3) for n in (3, 4, 5, 6, 7)]
    assert scene.recorded().next == 8
    assert tally.counts == scene.recorded().counts == read(5)
    assert scene.splits.counts() == {1: read(5)}


def test_a_task_is_ready_before_the_first_record(scene: Scene) -> None:
    """With the engine prepared for the revision and the sinks connected; the driver hears of it."""
    sink = Sink()
    thread = threading.Thread(target=scene.task(sink, TaskTally()).run)
    assert not scene.splits.ready
    thread.start()
    wait_for(lambda: scene.splits.ready)
    scene.splits.close()
    thread.join(30)

    assert (sink.prepared, sink.is_open, sink.published) == ([3], True, [])


def test_acknowledgements_are_waited_for_when_no_message_comes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then only arrived acknowledgements are collected: a wait would delay new messages."""
    monkeypatch.setattr(open_task, "_COLLECT_SECONDS", 0.0)
    scene.publish(3)
    sink = Sink()
    thread = threading.Thread(target=scene.task(sink, TaskTally()).run)
    thread.start()
    wait_for(lambda: sink.flushed == 3)
    scene.splits.close()
    thread.join(30)

    assert sink.collected[0] == 0


class Batches:
    """Records of a source: some batches, and when the task has come back for the next one."""

    next, time, repeats, pending = 1, None, False, 0

    def __init__(self, sizes: Sequence[int], end: Callable[[], None]) -> None:
        self.sizes, self.end = sizes, end
        self.seconds: list[float] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        for size in self.sizes:
            begun = time.monotonic()
            yield pa.RecordBatch.from_pydict({"offset": list(range(size))})
            self.seconds.append(time.monotonic() - begun)
        self.end()
        yield pa.RecordBatch.from_pydict({"offset": []})

    def wait_at_most(self, seconds: float) -> None:
        """Wait for nothing."""


def test_records_are_gathered_behind_many(scene: Scene) -> None:
    """Behind eight records and more the task pauses for as long as the sink says; behind fewer it does not."""
    task = scene.task(sink := Sink(gather_seconds=0.5), TaskTally())
    records = Batches([7, 8, 1], scene.splits.close)
    task._opens = lambda *_: nullcontext(cast("OpenRecords", records))
    task.run()

    assert len(sink.published) == 16
    assert [seconds >= 0.5 for seconds in records.seconds] == [False, True, False]


def test_a_position_is_recorded_when_its_messages_are_stored(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task reads on until the sink says that they are, and waits for nothing."""
    monkeypatch.setattr(open_task, "RECORD_SECONDS", 0.01)
    monkeypatch.setattr(open_task, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(open_task, "_COLLECT_SECONDS", 0.0)
    sink = Sink(marks=False)
    thread = threading.Thread(target=scene.task(sink, TaskTally()).run)
    thread.start()
    wait_for(lambda: scene.splits.ready)
    for number in range(1, 31):
        scene.publish(1)
        wait_for(lambda: len(sink.published) >= number)  # noqa: B023 - called at once
    before, flushed = scene.splits.counts()[1], sink.flushed
    sink.marks = True
    wait_for(lambda: scene.splits.counts()[1] == read(30))
    progress = scene.recorded()
    scene.splits.close()
    thread.join(30)

    assert (before, flushed) == (Counts(), 0)
    assert progress.next == 31
    assert scene.recorded().counts == read(30)


def test_the_next_attempt_goes_on_at_the_record(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its counts: what the first did behind its last record is done and counted again."""
    monkeypatch.setattr(open_task, "RECORD_SECONDS", 0.01)
    scene.publish(2)
    first, thread = Sink(fails_at=4), None
    failed: list[BaseException] = []

    def attempt() -> None:
        try:
            scene.task(first, TaskTally()).run()
        except RuntimeError as failure:
            failed.append(failure)

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_for(lambda: 1 in scene.splits.counts() and scene.splits.counts()[1] == read(2))
    scene.publish(3)
    thread.join(30)
    assert failed
    assert scene.recorded().next in (3, 4)

    second, tally = Sink(), TaskTally()
    thread = threading.Thread(target=scene.task(second, tally).run)
    thread.start()
    wait_for(lambda: second.published[-1:] == [(5, 3)] and second.flushed == len(second.published))
    scene.splits.close()
    thread.join(30)

    # The driver may take the first attempt's last report until the second one begins.
    reached = second.published[0][0]
    assert 3 <= reached <= 4
    assert [sequence for sequence, _ in second.published] == list(range(reached, 6))
    assert tally.counts == read(5)
    assert scene.recorded() == OpenProgress(6, read(5), 3, scene.recorded().process)


def test_a_revision_is_recorded_before_it_is_used(scene: Scene) -> None:
    """It is applied between two batches, also while no message arrives."""
    sink = Sink()
    thread = threading.Thread(target=scene.task(sink, TaskTally()).run)
    thread.start()
    scene.publish(2)
    wait_for(lambda: sink.flushed == 2)
    scene.revisions.now = 4
    wait_for(lambda: scene.splits.revision == 4)
    assert (scene.recorded().next, scene.recorded().revision) == (3, 4)
    scene.publish(1)
    wait_for(lambda: sink.flushed == 3)
    scene.splits.close()
    thread.join(30)

    assert sink.published == [(1, 3), (2, 3), (3, 4)]


def test_what_is_done_again_has_its_revision(scene: Scene) -> None:
    """Messages stored when an attempt begins may have been delivered by the previous attempt."""
    scene.publish(4)
    before = scene.splits.begin(1, 1, 3)
    assert scene.splits.record(before, OpenProgress(3, read(2), 3), final=False)
    scene.revisions.now = 5
    sink = Sink()
    thread = threading.Thread(target=scene.task(sink, TaskTally()).run)
    thread.start()
    wait_for(lambda: scene.splits.revision == 5)
    scene.publish(1)
    wait_for(lambda: sink.flushed == 3)
    scene.splits.close()
    thread.join(30)

    assert sink.published == [(3, 3), (4, 3), (5, 5)]


def test_a_split_that_may_not_stay_open_is_closed_where_it_is(scene: Scene) -> None:
    """A run that stops, or one with another trigger, finds it in its checkpoint."""
    scene.publish(3)
    scene.splits.record(scene.splits.begin(1, 1, 3), OpenProgress(2, read(1), 3), final=False)
    scene.splits.close()
    sink, tally = Sink(), TaskTally()

    scene.task(sink, tally).run()

    assert (sink.published, tally.counts, scene.recorded().next) == ([], read(1), 2)


def test_a_task_ends_for_renewed_certificates_of_its_sinks(scene: Scene) -> None:
    """What it has read is delivered and recorded: the next one begins behind it."""
    scene.publish(3)
    sink, tally = Sink(), TaskTally()
    thread = threading.Thread(target=scene.task(sink, tally).run)
    thread.start()
    wait_for(lambda: sink.flushed == 3)

    sink.is_outdated = True
    thread.join(30)

    assert not thread.is_alive()
    assert (len(sink.published), scene.recorded().next) == (3, 4)


def test_a_task_ends_with_its_driver(scene: Scene) -> None:
    """It ends even if no message arrives, because another task may have the split by then."""
    failed: list[BaseException] = []

    def attempt() -> None:
        try:
            scene.task(Sink(), TaskTally()).run()
        except ConnectionLostError as failure:
            failed.append(failure)

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_for(lambda: bool(scene.splits.counts()))
    scene.splits.end()
    thread.join(30)

    assert "the driver has ended this attempt" in str(failed[0])


def test_messages_that_are_gone_are_a_loss(scene: Scene) -> None:
    """The stream's beginning has passed the place where the split begins: nothing of it is counted."""
    scene.publish(5)
    purge_stream(scene.connection, scene.stream, seq=4)
    sink, tally = Sink(), TaskTally()

    with pytest.raises(StreamError, match="no longer has the sequences 2 to 3"):
        scene.task(sink, tally, start=2).run()

    assert sink.published == []
    assert tally.counts == Counts()


def test_a_loss_that_is_stepped_over_is_told_to_the_driver(scene: Scene) -> None:
    """Without ``failOnDataLoss`` the task goes on, and the run says what was lost: nobody reads a worker's log."""
    scene.publish(5)
    purge_stream(scene.connection, scene.stream, seq=4)
    scene.options = replace(scene.options, fail_on_data_loss=False)
    sink = Sink()
    scene.splits.seconds = 30.0
    thread = threading.Thread(target=scene.task(sink, TaskTally(), start=2).run)
    thread.start()
    wait_for(lambda: bool(scene.splits.losses()))
    wait_for(lambda: len(sink.published) == 2)
    scene.splits.close()
    thread.join(30)

    [loss] = scene.splits.losses()
    assert "no longer has the sequences 2 to 3" in loss
    assert [sequence for sequence, _ in sink.published] == [4, 5]


def test_a_loss_is_told_where_the_driver_is_away(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The loss is in the task's log, and so is that the run does not know of it."""
    options = replace(scene.options, fail_on_data_loss=False, open_splits="127.0.0.1 1 token")

    report_loss(options, StreamError("3 are gone", code=404))

    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "3 are gone",
        "the run could not be told of the loss",
    ]
