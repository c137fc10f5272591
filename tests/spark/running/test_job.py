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
    from turnout.spark.session.connect import connect

    with pytest.raises(RunError) as raised:
        connect("sc://127.0.0.1:9/;token=secret", {})

    assert str(raised.value).startswith("the Spark Connect server at sc://127.0.0.1:9/ does not answer: ")
    assert "secret" not in str(raised.value)
