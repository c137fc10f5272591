"""Routes whose stream is made anew, or whose server is restored to older data, while they run or are stopped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests.integration.routes import wait_for

from turnout.embedded import NatsServer
from turnout.errors import RunError, TurnoutError
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, delete_stream, stream_info
from turnout.routes import Route
from turnout.runtime.offsets import RunResult
from turnout.runtime.open_splits import ProgressFolder
from turnout.spark import register
from turnout.spark.running import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: again
source: {{format: nats, servers: "{url}", stream: R{lenient}}}
value: {{format: raw}}
mappings: {{"r.>": "t.>"}}
sink: {{format: nats, servers: "{url}", stream: T}}
{more}
"""


@dataclass
class Scene:
    """A server with a source stream R and a sink stream T, and a route between them."""

    server: NatsServer
    spark: SparkSession
    folder: Path

    def create(self, stream: str) -> None:
        with Connection.open(self.server.url) as connection:
            config = {"name": stream, "subjects": [f"{stream.lower()}.>"], "storage": "file"}
            create_stream(connection, {**config, "duplicate_window": 3600 * 10**9})

    def make_anew(self) -> None:
        with Connection.open(self.server.url) as connection:
            delete_stream(connection, "R")
        self.create("R")

    def publish(self, *values: str) -> None:
        with Connection.open(self.server.url) as connection, Publisher(connection) as publisher:
            for value in values:
                publisher.publish("r.x", value.encode())

    def back_up(self) -> None:
        self.server.stop()
        shutil.copytree(self.server.work / "store", self.folder / "backup")
        self.server.restart()

    def restore(self) -> None:
        """Replace the store of the source's account; the sink's stream is kept."""
        self.server.stop()
        (old,) = (self.folder / "backup").rglob("R")
        (present,) = (self.server.work / "store").rglob("R")
        shutil.rmtree(present)
        shutil.copytree(old, present)
        self.server.restart()

    def stored(self) -> list[str]:
        """The values in the sink's stream, in order."""
        with Connection.open(self.server.url) as connection:
            last = stream_info(connection, "T")["state"]["last_seq"]
            batches = PullReader(connection, Range("T", 1, last + 1)).batches() if last else ()
            return [row["value"].decode() for batch in batches for row in batch.to_pylist()]

    def route(self, *, lenient: bool = False, more: str = "") -> Route:
        text = ROUTE.format(url=self.server.url, lenient=", failOnDataLoss: false" if lenient else "", more=more)
        return Route.parse(text, {})

    def run(self, *, lenient: bool = False, checkpoint: str = "checkpoint") -> RunResult:
        return job.run(self.route(lenient=lenient), self.spark, once=True, checkpoint=self.folder / checkpoint)

    @contextmanager
    def running(self, *, lenient: bool) -> Iterator[Future[RunResult]]:
        """A run of open splits in the background."""
        stop, more = threading.Event(), "trigger: {latency: low}"
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(
                job.run,
                self.route(lenient=lenient, more=more),
                self.spark,
                stop=stop,
                checkpoint=self.folder / "checkpoint",
            )
            try:
                wait_for(lambda: future.done() or 2 in ProgressFolder(self.folder / "checkpoint").numbers())
                yield future
            finally:
                stop.set()


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Iterator[Scene]:
    with NatsServer(tmp_path / "server") as server:
        scene = Scene(server, spark, tmp_path)
        scene.create("R")
        scene.create("T")
        yield scene


def test_a_stream_that_is_made_anew_between_two_runs(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The run fails and names the cure; with it, all of the new stream is delivered, after a warning."""
    scene.publish("old1", "old2", "old3")
    scene.run()
    scene.make_anew()
    scene.publish(*(f"new{n}" for n in range(5)))

    with pytest.raises(RunError, match="failOnDataLoss=false") as raised:
        scene.run()

    assert "Kafka" not in str(raised.value)
    assert scene.run(lenient=True).counts.delivered == 5
    assert scene.stored() == ["old1", "old2", "old3", "new0", "new1", "new2", "new3", "new4"]
    assert "an earlier stream of this name" in caplog.text


def test_a_new_checkpoint_within_the_duplicate_window(scene: Scene) -> None:
    """The messages of the new stream are others than those of the former one; those of the same are counted."""
    scene.publish("old1", "old2", "old3")
    scene.run()
    scene.make_anew()
    scene.publish("new1", "new2", "new3")

    fresh = scene.run(checkpoint="second")
    repeated = scene.run(checkpoint="third")

    assert scene.stored() == ["old1", "old2", "old3", "new1", "new2", "new3"]
    assert (fresh.counts.delivered, fresh.counts.duplicates) == (3, 0)
    assert (repeated.counts.delivered, repeated.counts.duplicates) == (3, 3)


def test_a_plain_program(scene: Scene) -> None:
    """Its streaming read fails with both creation times; what it copies of the new stream are no duplicates."""
    register(scene.spark)
    source = {"servers": scene.server.url, "stream": "R", "includeStream": "true"}

    def copy() -> None:
        rows = scene.spark.read.format("nats").options(**source).load()
        chosen = rows.select(F.lit("t.x").alias("topic"), "value", "stream", "stream_id", "offset")
        chosen.write.format("nats").option("servers", scene.server.url).mode("append").save()

    def follow() -> None:
        rows = scene.spark.readStream.format("nats").options(**source).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(scene.folder / "plain"))
        writer.trigger(availableNow=True).start().awaitTermination()

    scene.publish("old1", "old2")
    copy()
    follow()
    scene.make_anew()
    scene.publish("new1", "new2")
    copy()
    copy()

    assert sorted(scene.stored()) == ["new1", "new2", "old1", "old2"]
    with pytest.raises(PySparkException, match="an earlier stream of this name"):
        follow()


CHANGES: dict[str, Callable[[Scene], None]] = {"made anew": Scene.make_anew, "restored": Scene.restore}


@pytest.mark.parametrize("change", ["made anew", pytest.param("restored", marks=pytest.mark.heavy)])
def test_an_open_split_whose_stream_changes(scene: Scene, change: str) -> None:
    """The run ends with the reason, or every later message is delivered."""
    scene.publish(*(f"a{n}" for n in range(300)))
    scene.back_up()
    with scene.running(lenient=False) as future:
        scene.publish(*(f"b{n}" for n in range(300)))
        wait_for(lambda: len(scene.stored()) == 600)
        CHANGES[change](scene)
        scene.publish(*(f"c{n}" for n in range(500)))
        wait_for(lambda: future.done() or {f"c{n}" for n in range(500)} <= set(scene.stored()))
    if future.exception() is not None:
        with pytest.raises(TurnoutError, match="R"):
            future.result()

    with scene.running(lenient=True) as future:
        wait_for(lambda: future.done() or {f"c{n}" for n in range(500)} <= set(scene.stored()))
        assert not future.done(), future.result()


@pytest.mark.parametrize("change", [pytest.param("made anew", marks=pytest.mark.heavy), "restored"])
def test_an_open_split_goes_on_without_fail_on_data_loss(scene: Scene, change: str) -> None:
    """In the same run, with all messages of the present stream."""
    scene.publish(*(f"a{n}" for n in range(300)))
    scene.back_up()
    with scene.running(lenient=True) as future:
        scene.publish(*(f"b{n}" for n in range(300)))
        wait_for(lambda: len(scene.stored()) == 600)
        CHANGES[change](scene)
        scene.publish(*(f"c{n}" for n in range(500)))
        wait_for(lambda: future.done() or {f"c{n}" for n in range(500)} <= set(scene.stored()))
        assert not future.done(), future.result()
