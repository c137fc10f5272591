"""Feeds of a route from Kafka, on a real broker: what is read by partition and offset, and what a topic was sent."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.kafka_broker import KafkaBroker
from tests.integration.test_kafka_history import Scene
from tests.server.conftest import Bench, client_of

from turnout.base.clocks import EPOCH
from turnout.conditions import parse
from turnout.history.feed import FeedMessage, FeedReader
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.routes import Route
from turnout.runtime.cursors import FeedCursor
from turnout.runtime.matches import FeedMerging, MatchFolder
from turnout.spark.running import job
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
CITIES = ("Oulu", "Turku", "Pori")


class FedTopic(Scene):
    """A route with feeds, and orders of three cities in turn in two partitions; each seventh is no JSON."""

    def __init__(self, broker: KafkaBroker, work: Path, name: str) -> None:
        super().__init__(broker, work, name)
        self.text = self.text.replace("city: value.city}", "city: value.city}, feeds: true")
        self.route = Route.load(self.write(self.text))
        self.checkpoint = work / f"{name}.checkpoint"
        with open_store(f"sqlite:///{work}/{name}.db") as store:
            store.create(Subscription(["feed:"], parse("city:Pori"), id="pori"))

    def publish_orders(self, first: int, last: int) -> None:
        numbers = range(first, last)
        batch = KafkaMessages(
            [self.name] * len(numbers),
            [json.dumps({"city": CITIES[n % 3], "n": n}).encode() if n % 7 else b"{" for n in numbers],
            [f"order-{n}".encode() for n in numbers],
            [[("Nats-Msg-Id", f"{n}".encode()), ("Kind", b"\xff")] for n in numbers],
            [1_700_000_000_000 + n for n in numbers],
            [n % 2 for n in numbers],
        )
        with KafkaProducer(self.options) as producer:
            producer.publish(batch, _refusing)
            producer.flush()

    def feed(self, subscription: str, limit: int) -> tuple[list[FeedMessage], int]:
        """A feed from its beginning, in pages, and how many of its records are no longer held."""
        messages: list[FeedMessage] = []
        removed, is_last = 0, False
        after: FeedCursor = 0
        with FeedReader(self.route, self.checkpoint) as reader:
            while not is_last:
                page = reader.page(subscription, after, limit)
                messages += page.messages
                removed += page.removed
                after, is_last = page.cursor, page.is_last
        return messages, removed


def _contents(row: dict[str, Any]) -> tuple[object, ...]:
    """Key, value, headers and time of a record."""
    return row["key"], row["value"], tuple((pair["key"], pair["value"]) for pair in row["headers"]), row["timestamp"]


def _refusing(index: int, reason: Exception) -> None:
    raise AssertionError(f"{index}: {reason}")


@pytest.fixture(scope="module")
def fed_topic(
    broker: KafkaBroker,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> FedTopic:
    """A route that has run twice over one checkpoint."""
    fed = FedTopic(broker, tmp_path_factory.mktemp("feeds"), "fed.orders")
    for first, last in ((0, 90), (90, 130)):
        fed.publish_orders(first, last)
        job.run(fed.route, spark, checkpoint=fed.checkpoint)
    return fed


def test_a_feed_has_the_bytes_of_its_destination(fed_topic: FedTopic) -> None:
    """Topic, key, value, headers and time are those in the destination's topic, whatever the size of a page."""
    delivered = [(row["topic"], *_contents(row)) for row in fed_topic.rows("fed.orders.oulu")]
    pages = {limit: fed_topic.feed("oulu", limit)[0] for limit in (1, 7, 1000)}
    read = [(m.topic, m.key, m.value, m.headers, EPOCH + timedelta(microseconds=m.timestamp or 0)) for m in pages[1000]]

    assert len(delivered) == sum(1 for n in range(130) if n % 3 == 0 and n % 7)
    assert sorted(read) == sorted(delivered)
    assert pages[1] == pages[7] == pages[1000]


def test_partitions_take_turns_in_the_order_of_their_offsets(fed_topic: FedTopic) -> None:
    """One match of each partition after the other; cursors continue behind any message, also in a shorter feed."""
    messages, removed = fed_topic.feed("pori", 1000)
    numbers = [json.loads(message.value or b"")["n"] for message in messages]
    expected = [[n for n in range(130) if n % 3 == 2 and n % 7 and n % 2 == partition] for partition in (0, 1)]
    with FeedReader(fed_topic.route, fed_topic.checkpoint) as reader:
        rest = reader.page("pori", messages[4].cursor, 1000)
        end = reader.page("pori", rest.cursor)
        latest = reader.page("pori", reader.start("latest"))
        timed = reader.page("pori", reader.start("2023-11-14T22:13:20.100Z"))

    shorter = min(map(len, expected))
    assert numbers[: 2 * shorter] == [n for pair in zip(*expected, strict=False) for n in pair]
    assert sorted(numbers) == sorted(expected[0] + expected[1])
    assert [[n for n in numbers if n % 2 == partition] for partition in (0, 1)] == expected
    assert {message.topic for message in messages} == {"fed.orders"}
    assert removed == 0
    assert rest.messages == tuple(messages[5:])
    assert (end.messages, latest.messages) == ((), ())
    assert sorted(json.loads(m.value or b"")["n"] for m in timed.messages) == sorted(n for n in numbers if n >= 100)


def test_the_server_serves_it_as_a_stream(fed_topic: FedTopic, tmp_path: Path) -> None:
    """Pages, readers and events over REST, with cursors that are texts."""
    bench = Bench(tmp_path / "routes")
    bench.write("orders", fed_topic.text)
    bench.routes.scan()
    client = client_of(bench)
    url = "/v1/feeds/pori"
    try:
        first = client.get(url, params={"limit": 3, "reader": "desk"}).json()
        acknowledged = client.post(url, json={"reader": "desk", "cursor": first["cursor"]}).json()
        second = client.get(url, params={"limit": 3, "reader": "desk"}).json()
        by_cursor = client.get(url, params={"limit": 3, "after": first["cursor"]}).json()
        older = client.post(url, json={"reader": "desk", "cursor": first["messages"][0]["cursor"]}).json()
        refused = [client.get(url, params={"after": after}) for after in ("17", "0:1,0:2", "x")]
        refused.append(client.post(url, json={"reader": "desk", "cursor": 17}))
    finally:
        bench.close()

    assert acknowledged == older == {"cursor": first["cursor"]}
    assert first["messages"][2]["cursor"] == first["cursor"]
    assert second == by_cursor
    assert first["messages"][-1] != second["messages"][0]
    assert [answer.status_code for answer in refused] == [422] * 4
    assert "expected the offsets of partitions, as in 0:17,2:4, found '17'" in refused[0].json()["detail"]


def test_records_that_the_topic_has_removed(fed_topic: FedTopic) -> None:
    """They are counted and left out, and files with their matches alone are removed."""
    before, _ = fed_topic.feed("pori", 1000)
    with KafkaAdmin(fed_topic.options) as admin:
        _delete_records(admin, fed_topic.name, {0: 30, 1: 65})
    messages, removed = fed_topic.feed("pori", 5)
    matches = MatchFolder.beside(fed_topic.checkpoint)
    streams = matches.streams()
    merging = FeedMerging(fed_topic.route, fed_topic.checkpoint)
    merging.maintain()

    kept = [m for m in before if (n := json.loads(m.value or b"")["n"]) % 2 == 0 and n // 2 >= 30]
    assert [message.value for message in messages] == [message.value for message in kept]
    assert removed == len(before) - len(kept)
    assert streams == ["fed.orders:0", "fed.orders:1"]
    assert matches.streams() == ["fed.orders:0"]
    assert [message.value for message in fed_topic.feed("pori", 5)[0]] == [message.value for message in kept]


def _delete_records(admin: KafkaAdmin, topic: str, firsts: dict[int, int]) -> None:
    from confluent_kafka import TopicPartition

    positions = [TopicPartition(topic, partition, first) for partition, first in firsts.items()]
    client: Any = admin._client
    for done in client.delete_records(positions).values():
        done.result()
