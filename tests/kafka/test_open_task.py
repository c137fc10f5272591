"""Task of open splits of Kafka's partitions, over a broker: positions, transactions, and what ends a split."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kafka_broker import KafkaBroker

from turnout.engine.counts import Counts
from turnout.errors import ConnectionLostError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.group import GroupProgress
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import LastRecord, PartitionRange, RangeReader, committed_progress
from turnout.routes import Route
from turnout.runtime import open_task
from turnout.runtime.driver import OpenSplitServer
from turnout.runtime.kafka.publisher import CONFIG, Slot
from turnout.runtime.kafka.source import KafkaOffsets, KafkaSourceOptions, by_topic
from turnout.runtime.open_splits import OpenProgress, OpenSplits, ProgressFolder
from turnout.runtime.open_task import OpenTask
from turnout.runtime.publishing import Publishers, TaskTally
from turnout.spark.formats.kafka.source import KafkaOpenSplit
from turnout.spark.stage import SparkStage

pytestmark = pytest.mark.kafka

_numbers = count()

ROUTE = """
name: open
source: {{format: kafka, servers: "{servers}", topics: {topic}}}
value: {{format: raw}}
mappings: {{"{topic}": "{topic}.out"}}
sink: {{format: kafka, servers: "{servers}", exactlyOnce: {once}}}
deadLetter: {{topic: "{topic}.dead"}}
errors: {{tolerance: all}}
"""


@dataclass
class Scene:
    """Topics of one test, and the driver's side of an open split of them."""

    options: KafkaOptions
    topic: str
    splits: OpenSplits
    address: str
    folder: Path
    once: bool
    tasks: list[threading.Thread] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def create(self, suffix: str = "", partitions: int = 2, **config: str) -> None:
        with KafkaAdmin(self.options) as admin:
            admin.create_topic(
                self.topic + suffix, partitions, {name.replace("_", "."): v for name, v in config.items()}
            )

    def publish(self, *numbers: int, transaction: str | None = None, commit: bool = True, suffix: str = "") -> None:
        texts = [b"%d" % number for number in numbers]
        with KafkaProducer(self.options, transaction) as producer:
            if transaction is not None:
                producer.begin()
            messages = KafkaMessages([self.topic + suffix] * len(texts), texts, texts)
            producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
            producer.flush()
            if transaction is not None:
                producer.commit() if commit else producer.abort()

    def stored(self, suffix: str = ".out") -> Counter[int]:
        found: Counter[int] = Counter()
        with KafkaAdmin(self.options) as admin:
            topics = admin.existing([self.topic + suffix])
            ends = admin.ends([(name, number) for name, info in topics.items() for number in info.partitions])
        for (name, number), end in ends.items():
            for batch in RangeReader(self.options, PartitionRange(name, number, end.first, end.next)).batches():
                found.update(int(value) for value in batch.column("value").to_pylist())
        return found

    def start(self) -> KafkaOffsets:
        with KafkaAdmin(self.options) as admin:
            info = admin.describe([self.topic])[self.topic]
        begin = by_topic({(self.topic, number): 0 for number in info.partitions})
        assert info.id is not None
        return KafkaOffsets(begin, {self.topic: info.id}, identified=frozenset(begin))

    def task(self, start: KafkaOffsets, batch: int = 0) -> threading.Thread:
        """Start a task on a thread; the route is the one of its Spark stage."""
        route = Route.parse(
            ROUTE.format(servers=self.options.servers[0], topic=self.topic, once=str(self.once).lower()), {}
        )
        stage = SparkStage.of(route, splits=True)
        own = replace(KafkaSourceOptions.of(route.source), open_splits=self.address)  # type: ignore[arg-type]
        topics = {name: len(numbers) for name, numbers in start.next.items()}
        split = KafkaOpenSplit(start.to_json(), 1, 1, topics)

        def run() -> None:
            try:
                with Publishers(stage.sinks, Slot(self.topic, batch, 0)) as publishers:
                    publishers.make_open()
                    OpenTask(self.address, split, split.opens(own), stage, publishers, TaskTally()).run()
            except Exception as failure:  # noqa: BLE001 - the test looks at it
                self.failures.append(failure)

        thread = threading.Thread(target=run)
        thread.start()
        self.tasks.append(thread)
        return thread

    def recorded(self) -> OpenProgress:
        progress = ProgressFolder(self.folder).read(1)
        assert progress is not None
        return progress

    def position(self) -> dict[Any, int]:
        return KafkaOffsets.of_json(self.recorded().next).next_offsets()  # type: ignore[arg-type]

    def end(self) -> OpenProgress:
        self.splits.close()
        for task in self.tasks:
            task.join(60)
            assert not task.is_alive()
        return self.recorded()


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def scene(request: pytest.FixtureRequest, options: KafkaOptions, tmp_path: Path) -> Iterator[Scene]:
    splits = OpenSplits(tmp_path)
    splits.seconds = 60.0
    with OpenSplitServer(splits) as server:
        scene = Scene(options, f"open-{next(_numbers)}", splits, server.address, tmp_path, request.param)
        scene.create()
        scene.create(".out", 3)
        scene.create(".dead", 1)
        with KafkaAdmin(options) as admin:
            admin.create_topic("turnout.control", 8, CONFIG)
        yield scene
        splits.end()
        for task in scene.tasks:
            task.join(60)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not happen within 120 s"
        time.sleep(0.02)


def test_records_are_delivered_as_they_arrive(scene: Scene) -> None:
    """Stored and later ones, each once; the position has topic, partition, id and the last record."""
    scene.publish(*range(50))
    scene.task(scene.start())
    wait_for(lambda: scene.stored().total() == 50)
    scene.publish(*range(50, 60))
    wait_for(lambda: scene.stored().total() == 60)

    progress = scene.end()

    assert scene.stored() == Counter(range(60))
    assert (progress.counts.read, progress.counts.delivered, progress.counts.conserved) == (60, 60, True)
    offsets = KafkaOffsets.of_json(progress.next)  # type: ignore[arg-type]
    assert sum(offsets.next_offsets().values()) == 60
    assert {at.offset + 1 for at in offsets.last.values()} == set(offsets.next_offsets().values())
    assert offsets.ids == scene.start().ids
    assert not scene.failures


def test_gaps_of_transactions_and_compaction(scene: Scene) -> None:
    """Aborted records are not read, control records and compacted ones are no loss, and the position is at the end."""
    scene.publish(*range(10), transaction=f"{scene.topic}.a")
    scene.publish(*range(10, 20), transaction=f"{scene.topic}.a", commit=False)
    scene.publish(*range(20, 30), transaction=f"{scene.topic}.a")
    scene.task(scene.start())
    wait_for(lambda: scene.stored().total() == 20)
    with KafkaAdmin(scene.options) as admin:
        ends = {name: end.next for name, end in admin.ends([(scene.topic, 0), (scene.topic, 1)]).items()}

    scene.end()

    assert scene.stored() == Counter([*range(10), *range(20, 30)])
    assert scene.position() == ends
    assert not scene.failures


def test_another_attempt_continues(scene: Scene) -> None:
    """It takes the split over; what was committed after the driver's last record is not done again in transactions."""
    scene.publish(*range(20))
    start = scene.start()
    first = scene.task(start)
    wait_for(lambda: scene.stored().total() == 20)
    # The driver is as far as before the first record.
    scene.splits.begin(1, start.to_json(), None)
    first.join(60)
    ProgressFolder(scene.folder).write(1, OpenProgress(start.to_json()))
    scene.publish(*range(20, 30))
    scene.task(start)
    wait_for(lambda: set(scene.stored()) == set(range(30)))

    progress = scene.end()

    assert len(scene.failures) == 1, scene.failures
    assert isinstance(scene.failures[0], ConnectionLostError)
    assert progress.counts.read == progress.counts.delivered == 30
    if scene.once:
        assert scene.stored() == Counter(range(30))


def test_a_fenced_transaction_is_made_again(scene: Scene) -> None:
    """Another producer with the id ends it; what it had is delivered in the next, once."""
    if not scene.once:
        pytest.skip("there are no transactions")
    scene.publish(*range(20))
    scene.task(scene.start())
    wait_for(lambda: scene.stored().total() == 20)
    with KafkaProducer(scene.options, Slot(scene.topic, 0, 0).key) as thief:
        thief.begin()
    scene.publish(*range(20, 40))
    wait_for(lambda: scene.stored().total() >= 40)

    progress = scene.end()

    assert scene.stored() == Counter(range(40))
    assert progress.counts.delivered == 40
    assert not scene.failures


def test_a_refused_record_is_a_dead_letter(scene: Scene) -> None:
    """The broker refuses it for its key; the others of its transaction are delivered once."""
    with KafkaAdmin(scene.options) as admin:
        client: Any = admin._client
        client.delete_topics([f"{scene.topic}.out"])[f"{scene.topic}.out"].result(20)
        while admin.existing([f"{scene.topic}.out"]):
            time.sleep(0.05)
    scene.create(".out", 3, cleanup_policy="compact")
    texts = [b"%d" % number for number in range(10)]
    keys = [None if number == 4 else texts[number] for number in range(10)]
    with KafkaProducer(scene.options) as producer:
        messages = KafkaMessages([scene.topic] * 10, texts, keys)
        producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
        producer.flush()
    scene.task(scene.start())
    wait_for(lambda: scene.stored(".dead").total() == 1 and len(scene.stored()) == 9)

    progress = scene.end()

    assert set(scene.stored()) == set(range(10)) - {4}
    assert scene.stored(".dead") == Counter([4])
    assert progress.counts.delivered == 9
    assert progress.counts.dead_lettered == 1
    assert progress.counts.conserved
    assert not scene.failures


@pytest.mark.parametrize("change", ["partition", "topic"])
def test_a_changed_topic_ends_the_split(scene: Scene, change: str) -> None:
    """The driver plans the next split: with the new partition, or from the first record of the new topic."""
    scene.publish(*range(20))
    start = scene.start()
    task = scene.task(start)
    wait_for(lambda: scene.stored().total() == 20)
    with KafkaAdmin(scene.options) as admin:
        client: Any = admin._client
        if change == "partition":
            from confluent_kafka.admin import NewPartitions

            client.create_partitions([NewPartitions(scene.topic, 3)])[scene.topic].result(20)
        else:
            client.delete_topics([scene.topic])[scene.topic].result(20)
            while admin.existing([scene.topic]):
                time.sleep(0.05)
            scene.create()
            scene.publish(*range(100, 160))

    task.join(60)

    assert not task.is_alive()
    assert KafkaOffsets.of_json(scene.recorded().next).ids == start.ids  # type: ignore[arg-type]
    assert sum(scene.position().values()) >= 20
    if scene.once:
        assert scene.stored() == Counter(range(20))


@pytest.mark.parametrize("found", ["another record", "an earlier end"])
def test_an_attempt_that_begins_at_other_data_ends(scene: Scene, found: str) -> None:
    """It delivers nothing behind its position, which the driver compares and reports when it plans the next split."""
    scene.publish(*range(20))
    start = scene.start()
    with KafkaAdmin(scene.options) as admin:
        ends = {name: end.next for name, end in admin.ends(start.next_offsets()).items()}
    if found == "another record":
        last = {name: LastRecord(end - 1, 1, 0) for name, end in ends.items()}
        begin = replace(start, next=by_topic(ends), last=last)
        scene.publish(*range(20, 40))
    else:
        begin = replace(start, next=by_topic({name: end + 5 for name, end in ends.items()}))
    task = scene.task(begin)

    task.join(60)

    assert not task.is_alive()
    assert scene.position() == begin.next_offsets()
    assert not scene.stored()
    assert not scene.failures


def test_a_broker_is_killed(scene: Scene, broker: KafkaBroker) -> None:
    """The task goes on when it is back: nothing is lost, and in transactions nothing is there twice."""
    scene.publish(*range(20))
    scene.task(scene.start())
    wait_for(lambda: scene.stored().total() == 20)
    broker.kill()
    broker.start()
    scene.publish(*range(20, 40))
    wait_for(lambda: set(scene.stored()) == set(range(40)))

    progress = scene.end()

    assert progress.counts.delivered == 40
    if scene.once:
        assert scene.stored() == Counter(range(40))
    assert not scene.failures


def test_a_transaction_is_committed_early_when_it_is_large(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are held, so that their number is limited."""
    monkeypatch.setattr(open_task, "_HELD_RECORDS", 10)
    scene.publish(*range(100))
    scene.task(scene.start())
    wait_for(lambda: scene.stored().total() == 100)

    assert scene.end().counts == replace(Counts(), read=100, delivered=100, messages=100)
    assert scene.stored() == Counter(range(100))


def test_progress_in_a_consumer_group(options: KafkaOptions) -> None:
    """Tools read it there; the group has no members."""
    topic = f"open-{next(_numbers)}"
    with KafkaAdmin(options) as admin:
        admin.create_topic(topic, 2, {})
    with closing(GroupProgress(options, f"{topic}.group")) as group:
        group.commit({f"{topic}:0": 17, f"{topic}:1": 4})
        group.commit({f"{topic}:0": 18, f"{topic}:1": 4})

    found = committed_progress(options, topic, f"{topic}.group", [0, 1])

    assert {number: progress.next for number, progress in found.items()} == {0: 18, 1: 4}
