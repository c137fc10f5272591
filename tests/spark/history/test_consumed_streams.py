"""History of streams whose messages go when a consumer acknowledges them: read beside the run, which misses nothing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.integration.routes import wait_for

from turnout import spark as ts
from turnout.conditions import parse
from turnout.embedded import NatsServer
from turnout.nats.wire import (
    Acknowledger,
    Connection,
    Publisher,
    PullReader,
    Range,
    create_stream,
    delete_stream,
    stream_info,
)
from turnout.routes import Route
from turnout.runtime.nats.source import SourceOptions
from turnout.spark.formats.nats.source import NatsReader
from turnout.spark.history.traffic import traffic_in_tasks
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.analysis import AnchorTraffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: queued
source: {{format: nats, servers: "{url}", stream: "{name}", ackConsumer: run}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{n: value.n}}}}
sink: {{format: nats, servers: "{url}", stream: "{name}-out"}}
"""


@dataclass(frozen=True)
class Queue:
    """A stream with seven messages, of which the run has acknowledged two; it waits for the other five."""

    url: str
    name: str
    text: str
    middle: datetime

    @property
    def route(self) -> Route:
        return Route.parse(self.text, {})

    def state(self) -> tuple[int, ...]:
        """Messages, consumers, and what the run's consumer still has to get."""
        with Connection.open(self.url) as connection:
            state = stream_info(connection, self.name)["state"]
            consumer = connection.api(f"CONSUMER.INFO.{self.name}.run")
        waiting = consumer["num_pending"] + consumer["num_ack_pending"]
        return state["messages"], state["consumer_count"], waiting, consumer["ack_floor"]["stream_seq"]

    def delivered(self) -> list[int]:
        with Connection.open(self.url) as connection:
            last = stream_info(connection, f"{self.name}-out")["state"]["last_seq"]
            batches = PullReader(connection, Range(f"{self.name}-out", 1, last + 1)).batches()
            return [json.loads(row["value"])["n"] for batch in batches for row in batch.to_pylist()]


@pytest.fixture(params=["workqueue", "interest"])
def queue(request: pytest.FixtureRequest, nats_server: NatsServer, tmp_path: Path) -> Iterator[Queue]:
    name, url = f"Q{uuid.uuid4().hex[:8]}", nats_server.url
    with Connection.open(url) as connection:
        config = {"subjects": [f"{name}.>"], "retention": request.param, "allow_direct": True, "storage": "memory"}
        create_stream(connection, {"name": name, **config})
        create_stream(connection, {"name": f"{name}-out", "subjects": [f"{name}-out.>"], "storage": "memory"})
        run = Acknowledger(connection, name, "run")
        middle = datetime.now(UTC)
        for n in range(1, 8):
            if n == 5:
                middle = datetime.now(UTC)
            with Publisher(connection) as publisher:
                publisher.publish(f"{name}.{n % 3}", json.dumps({"n": n}).encode())
        run.acknowledge(3)
        # The server confirms an acknowledgement before it has taken the messages off.
        wait_for(lambda: stream_info(connection, name)["state"]["messages"] == 5)
        with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
            store.create(Subscription([f"{name}-out.all"], parse("n:*"), id="all"))
            store.create(Subscription([f"{name}-out.six"], parse("n:6"), id="six"))
        yield Queue(url, name, ROUTE.format(url=url, name=name, folder=tmp_path), middle)
        delete_stream(connection, name)
        delete_stream(connection, f"{name}-out")


LEFT = (5, 1, 5, 2)


def test_diff(spark: SparkSession, queue: Queue) -> None:
    """Both versions read every stored message, and the run can still read all of them."""
    other = queue.text.replace("metadata: {n: value.n}", "metadata: {n: value.m}")

    result = ts.diff(queue.route, Route.parse(other, {}), spark)

    assert result.differences.records == 5
    assert result.differences.lost == 6
    assert queue.state() == LEFT


def test_a_range_by_time_and_several_filters(spark: SparkSession, queue: Queue) -> None:
    """A time is found without a consumer; of several filters no message of another subject comes."""
    text = queue.text.replace("ackConsumer: run", f'filterSubject: ["{queue.name}.0", "{queue.name}.2"]')
    filtered = Route.parse(text, {})
    of_all = ts.diff(queue.route, queue.route, spark, start=queue.middle)

    of_some = ts.diff(filtered, filtered, spark)

    assert of_all.differences.records == 3
    assert of_some.differences.records == 3
    assert queue.state() == LEFT


def test_replay(spark: SparkSession, queue: Queue, tmp_path: Path) -> None:
    """A replay reads and delivers what is there; the run gets it all the same."""
    options: dict[str, Any] = {"folder": tmp_path / "replays"}

    rehearsed = ts.replay(queue.route, spark, dry_run=True, **options)
    done = ts.replay(queue.route, spark, subscriptions=["six"], **options)

    assert rehearsed.by_subscription == {"all": 5, "six": 1}
    assert (done.plan.records, done.counts.messages, done.counts.conserved) == (5, 1, True)
    assert queue.delivered() == [6]
    assert queue.state() == LEFT


def test_what_subscriptions_did(spark: SparkSession, queue: Queue) -> None:
    """The traffic of subscriptions is counted in tasks as it is in one process."""
    with open_store(queue.route.subscriptions.store) as store:  # type: ignore[union-attr]
        traffic = traffic_in_tasks(queue.route, spark, store.snapshot(), AnchorTraffic({}))

    assert traffic.records == 5
    assert queue.state() == LEFT


def test_what_the_run_does_in_the_meantime(queue: Queue) -> None:
    """Messages that go between the plan and the reading are the run's, and no loss: the rest is read."""
    options = SourceOptions.from_mapping({"servers": queue.url, "stream": queue.name}, streaming=False)
    reader = NatsReader(options, StructType([StructField("offset", LongType())]))
    (part,) = reader.partitions()
    with Connection.open(queue.url) as connection:
        run = Acknowledger(connection, queue.name, "run")
        run.acknowledge(6)
        wait_for(lambda: stream_info(connection, queue.name)["state"]["messages"] == 2)

    batches = list(reader.read(part))

    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == [6, 7]
