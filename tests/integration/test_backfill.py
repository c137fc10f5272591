"""Earlier records for new subscriptions, and records of kept pauses: each once, whatever happens meanwhile.

The feed of each subscription has them too, in order.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.routes import Streams, wait_for

from turnout.conditions import kiwi
from turnout.errors import SubscriptionNotFoundError
from turnout.history.feed import FeedPage, FeedReader
from turnout.nats.wire import Connection, create_stream, delete_stream
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger
from turnout.runtime.offsets import RunResult
from turnout.spark.running import job
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.model import Start
from turnout.subscriptions.store import edit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: late
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{city: value.city}}, feeds: true}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
errors: {{tolerance: all}}
deadLetter: {{topic: "out-{name}.dead"}}
checkpoint: {folder}/checkpoint
{more}
"""


@dataclass
class Scene:
    """A route over numbered records, with its store."""

    streams: Streams
    spark: SparkSession
    folder: Path
    store: Store
    published: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def route(self, more: str = "") -> Route:
        names = {"url": self.streams.url, "source": self.streams.source, "sink": self.streams.sink}
        return Route.parse(ROUTE.format(**names, name=self.streams.name, folder=self.folder, more=more), {})

    def publish(self, count: int) -> None:
        numbers = range(self.published + 1, self.published + count + 1)
        self.streams.publish([("all", json.dumps({"n": n, "city": "Oulu"}).encode(), []) for n in numbers])
        self.published += count

    def create(self, id_: str, start: object = None) -> None:
        destinations, begin = [self.streams.out(id_)], Start.from_plain(start)
        self.store.create(Subscription(destinations, kiwi("city", "Oulu"), id=id_, start=begin))

    def change(self, id_: str, **settings: bool) -> None:
        edit(self.store, id_, lambda found: replace(found, **settings))  # type: ignore[arg-type]

    def run(self, more: str = "") -> RunResult:
        return job.run(self.route(more), self.spark, once=True)

    @contextmanager
    def running(self, more: str) -> Iterator[Future[RunResult]]:
        """The route on a thread; stopped at the end of the block."""
        self.stop.clear()
        with ThreadPoolExecutor(1) as threads:
            yield threads.submit(job.run, self.route(more), self.spark, stop=self.stop)
            self.stop.set()

    def got(self, id_: str) -> Counter[int]:
        """Return how often each record was delivered to a subscription."""
        return Counter(json.loads(row["value"])["n"] for row in self.streams.delivered() if row["rest"] == id_)

    def fed(self, id_: str) -> list[int]:
        """Return the records of a subscription's feed, read from the beginning in small pages."""
        numbers: list[int] = []
        with FeedReader(self.route()) as reader:
            page = reader.page(id_, 0, 50)
            while not page.is_last:
                numbers += numbers_of(page)
                page = reader.page(id_, page.cursor, 50)
        return numbers + numbers_of(page)

    def late(self, id_: str) -> int:
        """Return how many messages say that they came late."""
        rows = [row for row in self.streams.delivered() if row["rest"] == id_]
        return sum(row["headers"].get("Turnout-Replay") == "backfill" for row in rows)


def numbers_of(page: FeedPage) -> list[int]:
    return [json.loads(message.value or b"")["n"] for message in page.messages]


def once(first: int, last: int) -> Counter[int]:
    return Counter(range(first, last + 1))


@pytest.fixture
def scene(spark: SparkSession, streams: Streams, tmp_path: Path) -> Iterator[Scene]:
    """Its stream of messages drops no duplicates that come later than a tenth of a second."""
    with Connection.open(streams.url) as connection:
        delete_stream(connection, streams.sink)
        subjects = [f"out-{streams.name}.>"]
        create_stream(connection, {"name": streams.sink, "subjects": subjects, "duplicate_window": 10**8})
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
        yield Scene(streams, spark, tmp_path, store)


def test_each_starting_point(scene: Scene) -> None:
    """Runs that do all there is deliver what was before a subscription, once, and what comes later as ever."""
    scene.create("old")
    scene.publish(40)
    scene.run()
    scene.create("all", "earliest")
    scene.create("some", 31)
    scene.create("none", "latest")
    scene.publish(20)
    result = scene.run()
    scene.change("all", keep=True)
    scene.publish(10)
    scene.run()

    assert scene.got("old") == scene.got("all") == once(1, 70)
    assert scene.got("some") == once(31, 70)
    assert scene.got("none") == once(41, 70)
    assert (scene.late("all"), scene.late("some"), scene.late("old")) == (40, 10, 0)
    assert (result.counts.read, result.counts.conserved) == (20, True)
    assert BackfillLedger(scene.folder / "checkpoint").rows == []
    for name in ("old", "all", "some", "none"):
        assert scene.fed(name) == sorted(scene.got(name)), name


def test_a_starting_point_before_any_record_comes(scene: Scene) -> None:
    """Of a quiet stream the earlier records come without a new one; then nothing of them comes again."""
    scene.create("old")
    scene.publish(30)
    scene.run()
    scene.create("all", "earliest")
    scene.run()
    quiet = scene.got("all")
    scene.publish(5)
    scene.run()

    assert quiet == once(1, 30)
    assert scene.fed("all") == list(range(1, 36))
    assert scene.got("all") == once(1, 35)


def test_a_feed_waits_for_records_that_come_late(scene: Scene) -> None:
    """A reader gets nothing before a run has seen the starting point, and then begins with the first record."""
    scene.create("old")
    scene.publish(30)
    scene.run()
    scene.create("all", "earliest")
    with FeedReader(scene.route()) as reader:
        before = reader.page("all", 0)
        old = reader.page("old", 0)
        scene.run()
        after = reader.page("all", before.cursor)

    assert (before.messages, before.cursor, before.is_last) == ((), 0, True)
    assert numbers_of(after) == numbers_of(old) == list(range(1, 31))


@pytest.mark.heavy
def test_a_kept_pause(scene: Scene) -> None:
    """Records published meanwhile are delivered when the pause ends, unless it does not keep them."""
    for name in ("kept", "given up", "lost"):
        scene.create(name.replace(" ", "-"))
    scene.publish(10)
    scene.run()
    scene.change("kept", enabled=False, keep=True)
    scene.change("given-up", enabled=False, keep=True)
    scene.change("lost", enabled=False)
    for _ in range(2):
        scene.publish(10)
        scene.run()
    paused = scene.got("kept")
    scene.change("given-up", keep=False)
    scene.run()
    for name in ("kept", "given-up", "lost"):
        scene.change(name, enabled=True)
    scene.publish(10)
    scene.run()

    assert paused == once(1, 10)
    assert scene.got("kept") == once(1, 40)
    assert scene.got("given-up") == scene.got("lost") == once(1, 10) + once(31, 40)
    assert scene.late("kept") == 20
    for name in ("kept", "given-up", "lost"):
        assert scene.fed(name) == sorted(scene.got(name)), name


@pytest.mark.parametrize("more", [pytest.param("", marks=pytest.mark.heavy), "trigger: {latency: low}"])
def test_records_that_are_published_during_the_switch(scene: Scene, more: str) -> None:
    """Subscriptions come, pause and go on while records stream in: each record once, in micro-batches of both kinds."""
    scene.create("old")
    scene.publish(200)
    feeding, reading = threading.Event(), threading.Event()

    def feed() -> None:
        while not feeding.wait(0.02):
            scene.publish(10)

    read: dict[str, list[int]] = {"late0": [], "late1": []}

    def follow(id_: str) -> None:
        """Read a feed from its beginning while the rest happens."""
        with FeedReader(scene.route()) as reader:
            wait_for(lambda: is_stored(id_))
            for page in reader.follow(id_, 0, reading):
                read[id_] += numbers_of(page)

    def is_stored(id_: str) -> bool:
        try:
            return bool(scene.store.read(id_).id)
        except SubscriptionNotFoundError:
            return False

    with scene.running(more) as result, ThreadPoolExecutor(3) as threads, ExitStack() as ends:
        ends.callback(reading.set)
        wait_for(lambda: sum(scene.got("old").values()) >= 200)
        feeder = threads.submit(feed)
        followers = [threads.submit(follow, name) for name in read]
        try:
            time.sleep(1)
            for number in range(3):
                scene.create(f"late{number}", "earliest")
                time.sleep(0.7)
            scene.change("late0", enabled=False, keep=True)
            time.sleep(2)
            scene.change("late0", enabled=True)
            time.sleep(2)
        finally:
            feeding.set()
            feeder.result()
        names = ("old", "late0", "late1", "late2")
        wait_for(lambda: all(sum(scene.got(name).values()) >= scene.published for name in names))
        scene.stop.set()
        counts = result.result(60).counts
        wait_for(lambda: all(len(numbers) >= scene.published for numbers in read.values()))
        reading.set()
        for follower in followers:
            follower.result(60)

    whole = list(range(1, scene.published + 1))
    assert {name: scene.fed(name) for name in read} == read == dict.fromkeys(read, whole)
    for name in names:
        assert scene.got(name) == once(1, scene.published), name
    assert counts.conserved
    assert counts.read == scene.published
    assert scene.late("late0") > scene.late("late1") / 2 > 0
