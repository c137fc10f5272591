"""One application for many routes: what a route may ask of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnout.engine.counts import Counts
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.running.application import Application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
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
    sessions = Route.parse(ROUTE.format(path="x", spark="spark.sql.shuffle.partitions: 7"))
    jvms = Route.parse(ROUTE.format(path="x", spark="spark.driver.cores: 7"))
    kafka = Route.parse("name: k\nsource: {format: kafka, servers: 'a:9092', topics: t}\nsink: {format: json, path: x}")

    assert application.mistakes(sessions) == []
    assert [mistake.path for mistake in application.mistakes(jvms)] == ["spark.driver.cores"]
    assert application.mistakes(kafka) == []


def test_each_route_has_its_properties_to_itself(application: Application, spark: SparkSession, tmp_path: Path) -> None:
    """Properties of one route do not apply to the others or the application; both routes run."""
    (tmp_path / "in.json").write_text('{"topic": "a", "value": "x"}\n' * 3)
    text = ROUTE.format(path=tmp_path / "in.json", spark="spark.sql.shuffle.partitions: 7")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    reports: list[Progress] = []

    result = application.run(Route.parse(text), stop=threading.Event(), on_progress=reports.append)

    assert result.counts == Counts(read=3, delivered=3, messages=3)
    assert [report.counts for report in reports] == [result.counts]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before != "7"
    assert application.alive()
