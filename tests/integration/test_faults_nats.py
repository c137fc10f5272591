"""Kills, restarts, pauses and cut connections while a query passes messages on; afterwards they are counted.

`test_chaos` does it to a route, for long and at random.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests import settings
from tests.integration.copy_stream import copy_stream
from tests.integration.routes import wait_for
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info


class Pipeline:
    """A driver in a process of its own, which copies the stream IN to OUT and can be killed and started again."""

    def __init__(self, work: Path, server: NatsServer, per_trigger: int, url: str = "") -> None:
        self.work, self.server, self.per_trigger = work, server, per_trigger
        self.url = url or server.url
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, partitions: int = 2) -> None:
        arguments = [self.url, str(self.work / "checkpoint"), str(self.per_trigger), str(partitions)]
        command = [sys.executable, "-m", "tests.integration.copy_stream", *arguments]
        root = Path(__file__).parents[2]
        with (self.work / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=root)

    def kill(self) -> None:
        """kill -9 of the driver, its JVM and its Python workers."""
        assert self.process is not None
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        for workload in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                workload.send_signal(signal.SIGKILL)
        psutil.wait_procs(family, 10)
        self.process.wait(10)

    def finish(self, timeout: float) -> int:
        assert self.process is not None
        return self.process.wait(timeout)

    def last_words(self) -> str:
        return (self.work / "driver.log").read_text(errors="replace")[-3000:]


def stored(server: NatsServer) -> int:
    with Connection.open(server.url) as connection:
        return int(stream_info(connection, "OUT")["state"]["messages"])


def has_stored_more(server: NatsServer, than: int) -> bool:
    return stored(server) > than


def wait_until(reached: Callable[[], bool], seconds: float, pipeline: Pipeline) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, pipeline.last_words()
        time.sleep(0.05)


def check(server: NatsServer, count: int) -> None:
    """Every message of IN is in OUT exactly once: each has a subject of its own."""
    with Connection.open(server.url) as connection:
        state = stream_info(connection, "OUT")["state"]
    assert (state["messages"], state["num_subjects"]) == (count, count)


@pytest.fixture
def low_latency(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the low-latency checkpoint."""
    with settings.low_latency(spark):
        yield spark


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as started:
        with Connection.open(started.url) as connection:
            for name in ("IN", "OUT"):
                config = {"name": name, "subjects": [f"{name.lower()}.>"], "duplicate_window": 30 * 60 * 10**9}
                create_stream(connection, config)
        yield started


def fill(server: NatsServer, count: int) -> None:
    with Connection.open(server.url) as connection:
        publisher = Publisher(connection)
        for n in range(count):
            publisher.publish("in.x", b"%d" % n, message_id=f"in-{n}")
        publisher.flush()


@pytest.mark.heavy
def test_the_driver_is_killed_and_the_layout_changes(tmp_path: Path, server: NatsServer) -> None:
    """kill -9 at a random point, another number of partitions after it: nothing lost, nothing twice.

    The checkpoint is the one of the low-latency settings.
    """
    count = 24_000
    fill(server, count)
    pipeline = Pipeline(tmp_path, server, per_trigger=3000)
    pipeline.start(2)
    wait_until(lambda: stored(server) > 2000, 90, pipeline)
    time.sleep(random.uniform(0, 0.5))
    pipeline.kill()
    between = stored(server)
    pipeline.start(3)

    assert pipeline.finish(120) == 0, pipeline.last_words()
    assert between < count
    check(server, count)


def test_the_server_restarts_pauses_and_cuts(tmp_path: Path, server: NatsServer, low_latency: SparkSession) -> None:
    """One query sees all of it and ends well."""
    count = 30_000
    fill(server, count)
    with CuttingProxy(server.port) as proxy:
        query = copy_stream(low_latency, proxy.url, tmp_path / "checkpoint", per_trigger=3000)
        try:
            for disturb in (proxy.cut, lambda: server.restart(kill=True), proxy.cut, lambda: pause(server, 1.5)):
                enough = stored(server) + 1500
                wait_for(partial(has_stored_more, server, enough))
                disturb()

            assert query.awaitTermination(120)
        finally:
            query.stop()
    check(server, count)


def pause(server: NatsServer, seconds: float) -> None:
    server.pause()
    time.sleep(seconds)
    server.resume()


@pytest.mark.heavy
def test_a_disk_that_is_full(server: NatsServer, low_latency: SparkSession, small_disk: Callable[[str], Path]) -> None:
    """Without room for its progress the query fails; with room again it goes on, and nothing is lost or twice."""
    count = 20_000
    fill(server, count)
    checkpoint = small_disk("size=96k") / "checkpoint"
    with pytest.raises(StreamingQueryException, match="No space left on device"):
        copy_stream(low_latency, server.url, checkpoint, per_trigger=1000).awaitTermination(120)
    before = stored(server)
    small_disk("size=8m")

    # What had no room for its offsets is planned anew; the rest needs no more than one micro-batch.
    assert copy_stream(low_latency, server.url, checkpoint, per_trigger=count).awaitTermination(120)
    assert 0 < before < count
    check(server, count)


def test_a_checkpoint_that_cannot_be_written(
    server: NatsServer, low_latency: SparkSession, small_disk: Callable[[str], Path]
) -> None:
    """On a read-only disk the query fails before it has written anything it would have to write again."""
    fill(server, 100)

    with pytest.raises(Exception, match="Mkdirs failed"):
        copy_stream(low_latency, server.url, small_disk("ro,size=8m") / "checkpoint", 50).awaitTermination(120)
    assert stored(server) == 0
