"""Replays into Kafka in transactions: repeated, interrupted, killed, and with a state that is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.kafka_broker import KafkaBroker
from tests.integration.routes import write_route

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, RunError
from turnout.history.replay import ReplayPlan, plan_replay
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.nats.wire import Connection, Publisher, create_stream
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.history.replay import carry_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

COUNT = 25_000
ROUTE = """
name: {name}
source: {source}
value: {{format: json}}
mappings: {{"in.{name}": "out.{name}"}}
sink: {{format: kafka, servers: "{servers}", exactlyOnce: true}}
checkpoint: "{work}/checkpoint"
"""


class Scene:
    """A route between two topics of its own."""

    def __init__(self, broker: KafkaBroker, work: Path, name: str, source: str | None = None) -> None:
        self.options = KafkaOptions.of(broker.servers)
        self.name = name
        topics = f'{{format: kafka, servers: "{broker.servers}", topics: in.{name}, partitions: 2}}'
        text = ROUTE.format(name=name, source=source or topics, servers=broker.servers, work=work)
        self.file = write_route(work, text)
        with KafkaAdmin(self.options) as admin:
            admin.create_topic(f"in.{name}", 1, {})
            admin.create_topic(f"out.{name}", 3, {})

    def publish(self, numbers: range) -> None:
        texts = [json.dumps({"n": n}).encode() for n in numbers]
        with KafkaProducer(self.options) as producer:
            for begin in range(0, len(texts), 10_000):
                some = texts[begin : begin + 10_000]
                messages = KafkaMessages([f"in.{self.name}"] * len(some), some, list(some))
                producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
            producer.flush()

    def plan(self, **options: str) -> ReplayPlan:
        return plan_replay(Route.load(self.file), **options)  # type: ignore[arg-type]

    def offsets(self) -> int:
        """Return the number of offsets in the sink's topic: records, and the ends of transactions."""
        with KafkaAdmin(self.options) as admin:
            ends = admin.ends([(f"out.{self.name}", number) for number in range(3)])
        return sum(end.next - end.first for end in ends.values())

    def delivered(self) -> Counter[int]:
        """The numbers that a consumer with read_committed finds."""
        found: Counter[int] = Counter()
        topic = f"out.{self.name}"
        with KafkaAdmin(self.options) as admin:
            ends = admin.ends([(topic, number) for number in range(3)])
        for (_, number), end in ends.items():
            for batch in RangeReader(self.options, PartitionRange(topic, number, end.first, end.next)).batches():
                found.update(json.loads(value)["n"] for value in batch.column("value").to_pylist())
        return found


def once(*numbers: range) -> Counter[int]:
    return Counter(n for some in numbers for n in some)


def die(_: Progress) -> None:
    raise KeyboardInterrupt


def test_repeated(broker: KafkaBroker, spark: SparkSession, tmp_path: Path) -> None:
    """A finished replay that is asked for again delivers what has come since; with another id, all of it again."""
    scene = Scene(broker, tmp_path, "repeated")
    scene.publish(range(300))

    first, second = (carry_out(scene.plan(), spark) for _ in range(2))
    scene.publish(range(300, 400))
    third = carry_out(scene.plan(), spark)

    assert scene.delivered() == once(range(400))
    assert [result.counts.delivered for result in (first, second, third)] == [300, 300, 400]
    assert [(result.resumed, result.skipped) for result in (first, second, third)] == [
        (False, 0),
        (True, 300),
        (True, 300),
    ]
    with pytest.raises(ConfigError, match="is finished and was requested with another start: give this one another id"):
        carry_out(scene.plan(start="latest", id=first.plan.replay.id), spark)
    carry_out(scene.plan(id="more"), spark)
    assert scene.delivered() == once(range(400), range(400))


@pytest.mark.heavy
def test_interrupted(broker: KafkaBroker, spark: SparkSession, tmp_path: Path) -> None:
    """A part that was committed and not noted is recognised, by its splits as they were, whatever is asked for now."""
    scene = Scene(broker, tmp_path, "interrupted")
    scene.publish(range(COUNT))
    with pytest.raises(KeyboardInterrupt):
        carry_out(scene.plan(), spark, at_once=2_000, on_progress=die)
    state = scene.plan().folder / "state.json"
    noted = state.read_text()
    with pytest.raises(KeyboardInterrupt):
        carry_out(scene.plan(), spark, at_once=2_000, on_progress=die)
    assert scene.delivered() == once(range(4_000))
    state.write_text(noted)

    result = carry_out(scene.plan(), spark, at_once=20_000)

    assert scene.delivered() == once(range(COUNT))
    assert (result.counts.read, result.counts.delivered, result.skipped) == (COUNT, COUNT, 2_000)
    assert result.counts.conserved


def test_lost_state(broker: KafkaBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Without its folder a replay is told from a new one: nothing is delivered again, and the error says what to do."""
    scene = Scene(broker, tmp_path, "lost")
    scene.publish(range(500))
    carry_out(scene.plan(), spark, at_once=200)
    shutil.rmtree(scene.plan().folder)

    with pytest.raises(RunError, match="its state is lost or older, so give the replay another id"):
        carry_out(scene.plan(), spark, at_once=200)

    assert scene.delivered() == once(range(500))


def test_from_nats(broker: KafkaBroker, nats_server: NatsServer, spark: SparkSession, tmp_path: Path) -> None:
    """A stream goes into Kafka in parts of several transactions, each once, the interrupted part too."""
    with Connection.open(nats_server.url) as connection, Publisher(connection) as publisher:
        create_stream(connection, {"name": "EXACT", "subjects": ["in.nats"], "storage": "memory"})
        for n in range(COUNT):
            publisher.publish("in.nats", json.dumps({"n": n}).encode())
        publisher.flush()
    source = f'{{format: nats, servers: "{nats_server.url}", stream: EXACT, partitions: 2}}'
    scene = Scene(broker, tmp_path, "nats", source)
    with pytest.raises(KeyboardInterrupt):
        carry_out(scene.plan(), spark, on_progress=die)
    state = scene.plan().folder / "state.json"
    written = json.loads(state.read_text())
    assert written["exact"] == {"at_once": 500_000, "tasks": 2}
    state.write_text(json.dumps({**written, "next": {"EXACT": 1}, "parts": 0}))

    carry_out(scene.plan(), spark)

    assert scene.delivered() == once(range(COUNT))


@pytest.mark.heavy
def test_killed(broker: KafkaBroker, tmp_path: Path) -> None:
    """Driver, JVM and workers are killed at several moments: 0 lost, 0 twice."""
    count, kills = 120_000, 4
    scene = Scene(broker, tmp_path, "killed")
    scene.publish(range(count))
    command = [sys.executable, "-m", "turnout", "replay", str(scene.file), "--from", "earliest", "--part", "5000"]
    # A part ends in less time than its records are read in, so progress is seen by offsets.
    reached = [0]
    while len(reached) <= kills and reached[-1] < count:
        process = _started(command)
        offsets = scene.offsets()
        while process.poll() is None and scene.offsets() == offsets:
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()[1][-3000:]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        reached.append(sum(scene.delivered().values()))
    process = _started(command)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    result = json.loads(out)

    books = scene.delivered()
    twice = [n for n, times in books.items() if times > 1]
    assert [part for part in reached if 0 < part < count], reached
    assert (sum(books.values()), len(books), len(twice)) == (count, count, 0)
    assert (result["counts"]["read"], result["counts"]["delivered"], result["conserved"]) == (count, count, True)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*command, "--json", "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
