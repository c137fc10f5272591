"""The watch over a cluster's executors, with Spark's answers made here."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from turnout.routes import Route
from turnout.spark.running import executors
from turnout.spark.running.executors import ExecutorWatch, keep_ready, plan_read, warm_up_query


class Cluster:
    """Answers of a SparkContext: numbers of executors and jobs, which a test changes."""

    def __init__(self, master: str = "spark://m:7077", conf: dict[str, Any] | None = None) -> None:
        self.master = master
        self.executors = 0
        self.jobs: list[int] = [1]
        self.cancelled: list[str] = []
        self.groups: list[str] = []
        self._conf = conf or {}

    def spark(self) -> Any:
        context = Answers(
            master=self.master,
            _jsc=Answers(sc=self._scala),
            setJobGroup=lambda group, _: self.groups.append(group),
        )
        return Answers(sparkContext=context, _jsparkSession=True)

    def _scala(self) -> Any:
        return Answers(
            getExecutorMemoryStatus=lambda: Answers(size=lambda: self.executors + 1),
            statusTracker=lambda: Answers(getActiveJobIds=lambda: self.jobs),
            getConf=lambda: Answers(getBoolean=self._conf.get, get=self._conf.get),
            master=lambda: self.master,
            cancelJobGroup=self.cancelled.append,
        )


class Answers:
    """Object with these attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(executors, "_PATIENCE_SECONDS", 0.03)


def until(true: Any) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("master", "cure"), [("spark://m:7077", "The cluster's own page"), ("k8s://m", "kubectl")])
def test_a_cluster_that_grants_none(caplog: pytest.LogCaptureFixture, master: str, cure: str) -> None:
    """The warning has the master and the settings, once; the end of the wait is said too."""
    cluster, stop = Cluster(master, {"spark.executor.memory": "9g"}), threading.Event()
    with ExecutorWatch("r", cluster.spark(), stop) as watch:
        assert not watch.granted
        until(lambda: "has granted Spark no executor" in caplog.text)
        assert watch.waits
        cluster.executors = 1
        until(lambda: watch.granted)
        until(lambda: "the run continues" in caplog.text)

    assert master in caplog.text
    assert "spark.executor.memory 9g" in caplog.text
    assert cure in caplog.text
    assert caplog.text.count("has granted") == 1


def test_a_stop_without_executors() -> None:
    """Jobs of the run's own thread are cancelled, as they would never end; with executors they are left to end."""
    cluster, stop = Cluster(), threading.Event()
    with ExecutorWatch("r", cluster.spark(), stop) as watch:
        watch.own_jobs()
        until(lambda: watch.waits)
        stop.set()
        until(lambda: cluster.cancelled)
    assert set(cluster.cancelled) == set(cluster.groups) == {"turnout-r"}

    cluster, stop = Cluster(), threading.Event()
    cluster.executors = 1
    with ExecutorWatch("r", cluster.spark(), stop) as watch:
        until(lambda: watch.granted)
        stop.set()
    assert not cluster.cancelled


def test_an_idle_application_with_dynamic_allocation(caplog: pytest.LogCaptureFixture) -> None:
    """It has no executors while it has no work, and gets some when it has."""
    cluster, stop = Cluster(conf={"spark.dynamicAllocation.enabled": True}), threading.Event()
    cluster.jobs = []
    with ExecutorWatch("r", cluster.spark(), stop) as watch:
        until(lambda: watch.granted)
        cluster.jobs = [1]
        until(lambda: watch.waits)
        until(lambda: "has granted Spark no executor" in caplog.text)


def test_a_connect_server_that_goes_away(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark repeats requests in silence: the run says which server is gone and what to do, once, and its return."""
    monkeypatch.setattr(executors, "_KNOCK_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        session: Any = Answers(_jsparkSession=None, client=Answers(_builder=Answers(endpoint=f"127.0.0.1:{port}")))
        with ExecutorWatch("r", session, threading.Event()) as watch:
            assert watch.granted
            server.close()
            until(lambda: "Start the server, and then this command again" in caplog.text)
            with socket.create_server(("127.0.0.1", port)):
                until(lambda: "answers again" in caplog.text)

    assert f"the Spark Connect server at sc://127.0.0.1:{port} does not answer" in caplog.text
    assert caplog.text.count("waits: ") == 1


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_a_local_session_is_not_watched(master: str) -> None:
    """Its tasks run in the driver."""
    with ExecutorWatch("r", Cluster(master).spark(), threading.Event()) as watch:
        assert watch.granted


def test_a_read_is_planned_and_gives_nothing(spark: SparkSession) -> None:
    """Spark has made the source and planned its read in Python by then; a second time changes nothing."""
    plan_read(spark)
    plan_read(spark)

    rows = spark.read.format("turnout-nothing").load()

    assert rows.schema.simpleString() == "struct<nothing:int>"
    assert rows.collect() == []


def test_a_standby_is_warmed_up_by_a_query_of_its_own(spark: SparkSession) -> None:
    """It has read its one row, and has ended; the folder of its progress is gone."""
    warm_up_query(spark.newSession())
    warm_up_query(spark.newSession())

    assert not spark.streams.active


def test_a_standby_keeps_its_processes(spark: SparkSession) -> None:
    """They make the programs of routes and load their sources; servers, which may not be there, are not asked."""
    endpoint = '{format: nats, servers: "nats://127.0.0.1:1"'
    text = f"name: a\nsource: {endpoint}, stream: IN}}\nsink: {endpoint}}}\n"

    keep_ready(spark.newSession(), [Route.parse(text)])
