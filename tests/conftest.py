"""Markers from folders, hypothesis profiles, and the real parts that tests share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.feeds import FedRoute
    from turnout.embedded import NatsServer
    from turnout.nats.wire import Connection

HERE = Path(__file__).parent

# What a shell starts in the background ignores Ctrl-C, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For all JVMs of Spark. Each test is the first to do what it does: compiling it for the long run took 44 % of the
# processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# In a fresh clone each JVM would write an archive of 200 MB at its end, in 15 s of processor time, too late for others.
os.environ.setdefault("TURNOUT_SPARK_ARCHIVE", "read")
# For the many interpreters, which use no BLAS: its threads spin for 0.1 s of processor time when NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# `pytest` itself, `make fast`, `make test` and `make check`: the last two fail for the sources alone, not by chance.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("fast", max_examples=10, deadline=None)
for name, examples in (("test", 25), ("check", 100)):
    settings.register_profile(
        name, max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("TURNOUT_HYPOTHESIS", "dev"))

# A test carries the marks of its folder, and of the shared parts it asks for.
FOLDER_MARKS = {
    "spark": ("spark",),
    "nats/jetstream": ("jetstream",),
    "nats/wire": ("jetstream",),
    "integration": ("integration", "spark", "jetstream"),
    "rpc": ("subscriptions",),
}
LONGEST_FIRST = ("minutes", "integration", "session", "spark")
FIXTURE_MARKS = {"spark": ("spark", "session"), "nats_server": ("jetstream",)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in _marks_of(item.path):
            item.add_marker(mark)
        for fixture, marks in FIXTURE_MARKS.items():
            if fixture in getattr(item, "fixturenames", ()):
                for mark in marks:
                    item.add_marker(mark)
    # The processes of `tools.run_tests` take modules in this order: the others would wait for a long one at the end.
    items.sort(key=_rank)


@cache
def _marks_of(file: Path) -> tuple[str, ...]:
    """Return the marks of the folders that a module lies in."""
    return tuple(mark for folder, marks in FOLDER_MARKS.items() if file.is_relative_to(HERE / folder) for mark in marks)


def _rank(item: pytest.Item) -> int:
    """Return the position of an item's module in the order of execution, the longest first."""
    marks = {mark.name for mark in item.iter_markers()}
    return next((rank for rank, mark in enumerate(LONGEST_FIRST) if mark in marks), len(LONGEST_FIRST))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this test process."""
    from turnout.spark.session.build import build_session

    session = build_session(
        "turnout-tests",
        master="local[2]",
        conf={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "3g"},
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A real nats-server with JetStream, shared by the tests of this process: use names of your own on it."""
    from turnout.embedded import NatsServer

    with NatsServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_streams_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete the streams that a test made on the shared server: the next one may use the same subjects."""
    if "nats_server" not in request.fixturenames:
        yield
        return
    from turnout.nats.wire import Connection, delete_stream, streams_of

    url = request.getfixturevalue("nats_server").url
    with Connection.open(url) as opened:
        before = set(streams_of(opened, ">"))
    yield
    with Connection.open(url) as opened:
        for name in set(streams_of(opened, ">")) - before:
            delete_stream(opened, name)


@pytest.fixture
def far_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def connection(nats_server: NatsServer) -> Iterator[Connection]:
    """A blocking connection to the nats-server of this test process."""
    from turnout.nats.wire import Connection

    with Connection.open(nats_server.url) as opened:
        yield opened


@pytest.fixture
def stream(connection: Connection) -> Iterator[str]:
    """An empty stream of that server for one test, with all subjects below its name."""
    from tests.streams import own_stream

    with own_stream(connection) as name:
        yield name


@pytest.fixture
def fed(nats_server: NatsServer, tmp_path: Path) -> Iterator[FedRoute]:
    """A route with feeds that has matched ten orders."""
    from tests.feeds import FedRoute
    from tests.integration.routes import Streams

    streams = Streams(nats_server.url)
    streams.create()
    fed = FedRoute(streams, tmp_path / "fed")
    fed.run(10)
    yield fed
    streams.delete()
