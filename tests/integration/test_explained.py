"""Explaining a record says what a run did with it: the demo's route on a real Spark, and its records one by one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.outcomes import outcomes_of

from turnout.demo.flights import CUT_OFF, FLIGHTS, messages
from turnout.demo.year import Demo
from turnout.engine import Program
from turnout.engine.explain import RecordExplanation, explain
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Publisher, PullReader, Range, stored_message, stream_info
from turnout.nats.wire.records import with_stream
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy

DRAWN = 1000
"""Number of random records of the year; truncated records are added."""


def publish_drawn(demo: Demo) -> None:
    """Fill the stream with some of the year's messages, in their order."""
    drawn = set(random.Random(13).sample(range(FLIGHTS + CUT_OFF), DRAWN))
    with Connection.open(demo.server.url) as connection, Publisher(connection) as publisher:
        for number, message in enumerate(messages()):
            if number in drawn or message.message_id.endswith("cut-off"):
                publisher.publish(message.subject, message.payload, message.headers, message.message_id)


def stored(connection: Connection, stream: str) -> Iterator[tuple[str, str, bytes]]:
    """Subject, id and value of each message of a stream."""
    everything = Range(stream, 1, stream_info(connection, stream)["state"]["last_seq"] + 1)
    for batch in PullReader(connection, everything).batches():
        for row in batch.to_pylist():
            yield row["topic"], row["key"].decode(), row["value"]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    with Demo(tmp_path / "demo", generated=2000) as demo:
        publish_drawn(demo)
        demo.subscribe()
        yield demo


def test_a_thousand_flights_are_explained_as_they_were_run(spark: SparkSession, demo: Demo) -> None:
    """The same outcomes, and byte for byte the same messages, dead letters among them."""
    from turnout.spark.running.job import run

    route = demo.route()
    counts = run(route, spark, once=True, checkpoint=demo.work / "checkpoint").counts
    with open_store(demo.variables["SUBSCRIPTIONS"]) as store:
        subscriptions = list(store.snapshot())
    program, index = Program.of(route), Index.of(subscriptions)
    by_id = {subscription.id: subscription for subscription in subscriptions}

    with Connection.open(demo.server.url) as connection:
        identity = StreamIdentity.of(stream_info(connection, "FLIGHTS")["created"])
        records = partial(with_stream, stream="FLIGHTS", identity=identity)
        explanations: list[RecordExplanation] = [
            explain(program, records(stored_message(connection, "FLIGHTS", sequence)), index, by_id)
            for sequence in range(1, counts.read + 1)
        ]
        sent = Counter(message for stream in ("DELIVERIES", "DEAD") for message in stored(connection, stream))

    outcomes = Counter(explanation.outcome for explanation in explanations)
    assert counts.read >= DRAWN
    assert outcomes == outcomes_of(counts)
    assert outcomes["dead_lettered"] == CUT_OFF
    assert min(outcomes[name] for name in ("delivered", "filtered", "unmatched", "lost_by_weight")) > 0
    assert sent == Counter(
        (message.topic, str(message.id), str(message.value).encode())
        for explanation in explanations
        for message in explanation.messages
    )
