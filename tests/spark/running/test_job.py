"""Runs of a route: what they need of the session."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.integration.routes import wait_for

from turnout.base.background import statuses
from turnout.engine.counts import Counts
from turnout.errors import RunError, StreamError
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.running import job
from turnout.spark.running.job import Application, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytest.importorskip("grpc_status", reason='Spark Connect needs "pyspark[connect]"')

ROUTE = """
name: copy
source: {format: nats, servers: "nats://127.0.0.1:9", stream: IN}
subscriptions: {store: "sqlite:///none.db"}
sink: SINK
"""
NATS = '{format: nats, servers: "nats://127.0.0.1:9", stream: null}'
FILES = "{format: json, path: out}"


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
@pytest.mark.parametrize(
    ("sink", "checkpoint", "reason"),
    [
        (FILES, "checkpoint", ": only between NATS and Kafka does Spark run a route, .*driver; .*classic session"),
        (NATS, None, " without a checkpoint: .* a folder or a URL there"),
    ],
)
def test_what_spark_connect_cannot_run_is_refused(
    sink: str, checkpoint: str | None, reason: str, tmp_path: Path
) -> None:
    """In one sentence, before a server, a store or a checkpoint is looked at."""
    from pyspark.sql.connect.session import SparkSession

    file = tmp_path / "copy.yaml"
    file.write_text(ROUTE.replace("SINK", sink), encoding="utf-8")
    session = object.__new__(SparkSession)

    with pytest.raises(RunError, match=f"^the route 'copy' cannot run in a session of Spark Connect{reason}") as raised:
        run(Route.load(file), session, checkpoint=checkpoint)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.yaml"]


def test_a_spark_connect_server_that_is_not_there() -> None:
    """Said at once, and without the token that the address may hold."""
    from turnout.spark.session.jvm import connect

    with pytest.raises(RunError) as raised:
        connect("sc://127.0.0.1:9/;token=secret", {})

    assert str(raised.value).startswith("the Spark Connect server at sc://127.0.0.1:9/ does not answer: ")
    assert "secret" not in str(raised.value)


SERVED_ROUTE = """
name: r
source: {{format: json, path: "{path}"}}
sink: {{format: json, path: "{path}.out"}}
spark: {{{spark}}}
"""


@pytest.fixture
def application(spark: SparkSession) -> Application:
    """Over the session that the tests share, which is not closed."""
    return Application()


def test_what_only_a_new_jvm_can_have_is_a_mistake(application: Application) -> None:
    """Properties of a session are a route's own; memory and jars are the server's. Kafka needs none."""
    sessions = Route.parse(SERVED_ROUTE.format(path="x", spark="spark.sql.shuffle.partitions: 7"))
    jvms = Route.parse(SERVED_ROUTE.format(path="x", spark="spark.driver.cores: 7"))
    kafka = Route.parse("name: k\nsource: {format: kafka, servers: 'a:9092', topics: t}\nsink: {format: json, path: x}")

    assert application.mistakes(sessions) == []
    assert [mistake.path for mistake in application.mistakes(jvms)] == ["spark.driver.cores"]
    assert application.mistakes(kafka) == []


def test_each_route_has_its_properties_to_itself(application: Application, spark: SparkSession, tmp_path: Path) -> None:
    """Properties of one route do not apply to the others or the application; both routes run."""
    (tmp_path / "in.json").write_text('{"topic": "a", "value": "x"}\n' * 3)
    text = SERVED_ROUTE.format(path=tmp_path / "in.json", spark="spark.sql.shuffle.partitions: 7")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    reports: list[Progress] = []

    result = application.run(Route.parse(text), stop=threading.Event(), on_progress=reports.append)

    assert result.counts == Counts(read=3, delivered=3, messages=3)
    assert [report.counts for report in reports] == [result.counts]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before != "7"
    assert application.alive()


def test_a_standby_that_ends_while_it_warms_up(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it was about to do fails with the session, which is no error."""
    begun, stopped, name = threading.Event(), threading.Event(), "warm-up of the standby"

    def warm_up(_: SparkSession) -> None:
        begun.set()
        stopped.wait(30)
        raise RuntimeError("Cannot call methods on a stopped SparkContext.")

    def stop() -> None:
        stopped.set()
        # It is stopped before the session, or fails.
        wait_for(lambda: not any(work.name == name and not work.failures for work in statuses()), 30)

    monkeypatch.setattr(job, "warm_up_query", warm_up)
    monkeypatch.setattr(application, "_session", SimpleNamespace(stop=stop, newSession=lambda: None))
    monkeypatch.setattr(job, "driver_address", lambda _: "127.0.0.1")
    monkeypatch.setattr(job, "guard_process", lambda _: None)
    application.guard(lambda: (0.0, 1))
    assert begun.wait(30)

    application.close()

    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_error_of_a_micro_batch_ends_the_run_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not its own cause: the walk through the causes had no end, and the run hung."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"topic": "a", "value": "b"}\n')
    file = tmp_path / "r.yaml"
    file.write_text(SERVED_ROUTE.format(path=tmp_path / "in", spark="").replace("path:", "stream: true, path:", 1))

    def refuse(*_: object) -> None:
        raise StreamError("the table refuses the rows", code=409)

    monkeypatch.setattr(job, "write_all", refuse)
    with pytest.raises(StreamError, match="the table refuses the rows") as raised:
        run(Route.load(file), spark, checkpoint=tmp_path / "checkpoint")
    assert raised.value.__cause__ is not raised.value
