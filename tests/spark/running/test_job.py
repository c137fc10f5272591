"""Runs of a route: what they need of the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import RunError
from turnout.routes import Route
from turnout.spark.running.job import run

pytest.importorskip("grpc_status", reason='Spark Connect needs "pyspark[connect]"')

ROUTE = """
name: copy
source: {format: nats, servers: "nats://127.0.0.1:9", stream: IN}
subscriptions: {store: "sqlite:///none.db"}
sink: {format: nats, servers: "nats://127.0.0.1:9", stream: null}
"""


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_session_of_spark_connect_is_refused(tmp_path: Path) -> None:
    """In one sentence, before a server, a store or a checkpoint is looked at."""
    from pyspark.sql.connect.session import SparkSession

    file = tmp_path / "copy.yaml"
    file.write_text(ROUTE, encoding="utf-8")
    session = object.__new__(SparkSession)

    with pytest.raises(RunError, match=r"^the route 'copy' cannot run in a session of Spark Connect: .*driver"):
        run(Route.load(file), session, checkpoint=tmp_path / "checkpoint")  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.yaml"]
