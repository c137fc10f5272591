"""Handling of ``turnout run``'s options before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.cli.run import log_beside
from turnout.routes import Route

ROUTE = """name: a
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
"""


@pytest.mark.parametrize(
    ("route", "option", "log"),
    [
        ("s3a://b/ck", None, None),
        ("s3a://b/ck", "/ck", "/spark.log"),
        ("/a/ck", None, "/a/spark.log"),
        ("/a/ck", "s3a://b/ck", None),
        ("file:///a/ck", None, "/a/spark.log"),
    ],
)
def test_sparks_log_lies_beside_the_checkpoint(route: str, option: str | None, log: str | None) -> None:
    """That of the option or else of the route; nowhere where the checkpoint is on no disk of this machine."""
    loaded = Route.parse(ROUTE + f"checkpoint: {route}\n", {})

    assert log_beside(loaded, option) == (None if log is None else Path(log))
