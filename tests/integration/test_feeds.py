"""Feeds of a route's subscriptions: what a run stores of its matches, and the messages that are read by them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.routes import Streams, wait_for, write_route
from tests.integration.test_open_splits import under_way

from turnout.conditions import all_of, exists, kiwi, not_
from turnout.embedded import NatsServer
from turnout.errors import ConfigError, SubscriptionNotFoundError
from turnout.history.feed import FeedMessage, FeedReader
from turnout.routes import Route
from turnout.runtime.cursors import FeedCursor
from turnout.runtime.matches import MatchFolder, hash_of
from turnout.runtime.offsets import committed
from turnout.spark.running import job
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: feeds
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
transforms:
  - {{name: mask, type: MaskField$Value, fields: phone}}
mappings: {{"in-{name}.>": "mapped.>"}}
subscriptions: {{store: "sqlite:///{store}", metadata: {{city: value.city}}, feeds: true}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
errors: {{tolerance: all}}
{more}
"""
CITIES = ("Oulu", "Turku", "Pori")
Publish = Callable[[int, int], None]


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[Streams]:
    """Streams of one test."""
    made = Streams(nats_server.url)
    made.create()
    yield made
    made.delete()


@pytest.fixture
def publish(streams: Streams) -> Publish:
    """Publish orders by number, of three cities in turn; each seventh is no JSON."""

    def send(first: int, last: int) -> None:
        streams.publish(
            [
                (
                    f"orders.{n}",
                    json.dumps({"city": CITIES[n % 3], "n": n, "phone": "5"}).encode() if n % 7 else b"{",
                    [("Nats-Msg-Id", f"order-{n}"), ("Kind", "test")],
                )
                for n in range(first, last)
            ]
        )

    return send


def make_route(streams: Streams, folder: Path, more: str = "trigger: {availableNow: true}") -> Route:
    """Return a route with three subscriptions: one for each of two cities, and one without a destination."""
    store = open_store(f"sqlite:///{folder}/subscriptions.db")
    for name, destinations, city in (
        ("oulu", [streams.out("oulu"), streams.out("all")], "Oulu"),
        ("turku", [streams.out("turku")], "Turku"),
        ("pori", ["feed:"], "Pori"),
    ):
        condition = all_of(kiwi("city", city), not_(exists("Old")))
        store.create(Subscription(destinations, condition, id=name))
    store.close()
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return Route.load(write_route(folder, ROUTE.format(**names, store=f"{folder}/subscriptions.db", more=more)))


def delivered(streams: Streams, *rests: str) -> list[tuple[Any, ...]]:
    """Return the deliveries to the destinations: topic, id, value, headers."""
    return sorted(
        (row["topic"], row["key"].decode(), row["value"], _headers(row["headers"].items()))
        for row in streams.delivered()
        if row["rest"] in rests
    )


def _headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers without those that a publisher sets."""
    return tuple(sorted(header for header in headers if not header[0].startswith("Nats-")))


def read(messages: list[FeedMessage]) -> list[tuple[Any, ...]]:
    """The same of a feed."""
    return sorted(
        (
            message.topic,
            message.id,
            message.value,
            _headers((name, (value or b"").decode()) for name, value in message.headers),
        )
        for message in messages
    )


def whole(reader: FeedReader, subscription: str, limit: int = 7) -> list[FeedMessage]:
    """A feed from its beginning, in pages."""
    messages: list[FeedMessage] = []
    after: FeedCursor = 0
    is_last = False
    while not is_last:
        page = reader.page(subscription, after, limit)
        messages += page.messages
        after, is_last = page.cursor, page.is_last
    return messages


def test_a_feed_has_the_messages_that_destinations_got(
    spark: SparkSession, streams: Streams, publish: Publish, tmp_path: Path
) -> None:
    """Topic, id, bytes and headers are equal, in the order of the stream; a subscription without a destination has a
    feed alone, and its records count as delivered."""
    route = make_route(streams, tmp_path)
    publish(0, 100)
    first = job.run(route, spark, checkpoint=tmp_path / "checkpoint")
    publish(100, 130)
    second = job.run(route, spark, checkpoint=tmp_path / "checkpoint")

    with FeedReader(route, tmp_path / "checkpoint") as reader:
        oulu, pori = whole(reader, "oulu"), whole(reader, "pori")
        assert read(oulu) == delivered(streams, "oulu", "all")
        assert read(whole(reader, "turku", limit=1000)) == delivered(streams, "turku")

    expected = [n for n in range(130) if n % 3 == 2 and n % 7]
    assert [json.loads(message.value or b"")["n"] for message in pori] == expected
    assert {message.topic for message in pori} == {f"mapped.orders.{n}" for n in expected}
    # Of a record with two messages the first has the cursor 3.1, and the last 3.
    records = [int(str(message.cursor).partition(".")[0]) for message in oulu]
    assert records == sorted(records)
    assert first.counts.conserved
    assert second.counts.delivered == sum(1 for n in range(100, 130) if n % 7)
    assert second.counts.messages == sum((2, 1, 0)[n % 3] for n in range(100, 130) if n % 7)


def test_open_splits_store_matches_second_by_second(
    spark: SparkSession, streams: Streams, publish: Publish, tmp_path: Path
) -> None:
    """A feed can be followed while a split is open, and ends when its subscription is deleted."""
    route = make_route(streams, tmp_path, "trigger: {latency: low}")
    turku = [n for n in range(60) if n % 3 == 1 and n % 7]
    stop = threading.Event()
    timer = threading.Timer(90, stop.set)
    timer.start()
    with under_way(route, spark, tmp_path / "checkpoint") as run, FeedReader(route, tmp_path / "checkpoint") as reader:
        publish(0, 30)
        wait_for(lambda: run.read == 30)
        publish(30, 60)
        seen: list[FeedMessage] = []
        pages = reader.follow("turku", 0, stop, limit=5)
        while len(seen) < len(turku):
            seen += next(pages).messages
        with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
            store.delete("turku")
        with pytest.raises(SubscriptionNotFoundError):
            seen += [message for page in pages for message in page.messages]
        timer.cancel()
        assert run.ended().counts.conserved

    assert [json.loads(message.value or b"")["n"] for message in seen] == turku
    assert read(seen) == delivered(streams, "turku")


@pytest.mark.heavy
def test_matches_that_were_merged_give_the_same_pages(
    spark: SparkSession, streams: Streams, publish: Publish, tmp_path: Path
) -> None:
    """Merging changes the files and no page."""
    route = make_route(streams, tmp_path)
    for begin in range(0, 90, 10):
        publish(begin, begin + 10)
        job.run(route, spark, checkpoint=tmp_path / "checkpoint")
    matches = MatchFolder.beside(tmp_path / "checkpoint")
    label = committed(tmp_path / "checkpoint").label(streams.source)
    before = matches.pages(hash_of("oulu"), {label: (0, 1000)}, 1000)[label].tolist()

    while matches.merge(label, 1000):
        pass

    assert before
    assert matches.pages(hash_of("oulu"), {label: (0, 1000)}, 1000)[label].tolist() == before
    assert [part.level for part in matches.parts(label)] == [1, 0]


def test_a_route_without_feeds_says_how_to_have_them(streams: Streams, tmp_path: Path) -> None:
    """Nothing is read."""
    text = ROUTE.replace(", feeds: true", "")
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    route = Route.load(write_route(tmp_path, text.format(**names, store=f"{tmp_path}/s.db", more="")))

    with pytest.raises(ConfigError, match="feeds: true"):
        FeedReader(route)
