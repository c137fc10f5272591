"""The demo with a console: the run, and the pages that show it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.console.scene import ORDERS, orders_text
from tests.server.conftest import wait_for
from tests.server.fakes import FakeRunner
from turnout.demo.console import showing, with_values
from turnout.demo.year import route_file
from turnout.embedded import free_port
from turnout.errors import RunError
from turnout.routes import Route
from turnout.runtime.offsets import Progress

FLIGHTS = 2000


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())


def test_the_route_says_its_addresses() -> None:
    """The console shows the route with its current addresses; variables without a value stay."""
    text = with_values(
        route_file().read_text("utf-8"), {"NATS_URL": "nats://127.0.0.1:7", "SUBSCRIPTIONS": "memory://"}
    )

    assert Route.parse(text, {}).source.options()["servers"] == "nats://127.0.0.1:7"
    assert "${NATS_URL" not in text
    assert "${CLUSTER:-east}" in text


def test_a_run_is_shown_while_it_runs_and_after_it(tmp_path: Path) -> None:
    """Its result is that of the runner, its counts are on the page, and it is served until the event."""
    runner, progress, stop = FakeRunner(), list[Progress](), threading.Event()
    text = orders_text(f"nats://127.0.0.1:{free_port()}", f"sqlite:///{tmp_path}/subscriptions.db")
    with showing(
        text,
        f"sqlite:///{tmp_path}/subscriptions.db",
        tmp_path,
        master="local[1]",
        on_progress=progress.append,
        runner_of=lambda *_: runner,
    ) as shown:
        wait_for(lambda: runner.runs["orders"])
        runner.runs["orders"][0].deliver(ORDERS)
        runner.runs["orders"][0].finish()
        result = shown.result(stop)
        wait_for(lambda: "done" in page(f"{shown.url}/routes/orders"))
        serving = threading.Thread(target=shown.serve, args=(stop,))
        serving.start()
        stop.set()
        serving.join(30)

        assert not serving.is_alive()
        assert (result.counts.read, [one.counts.read for one in progress]) == (ORDERS, [ORDERS])
    assert runner.closed


def test_a_run_that_fails_ends_the_demo(tmp_path: Path) -> None:
    """With its reason; nothing is served then."""
    runner = FakeRunner()
    runner.broken["orders"] = RunError("route orders failed: no luck")
    store = f"sqlite:///{tmp_path}/subscriptions.db"
    text = orders_text(f"nats://127.0.0.1:{free_port()}", store)
    with (
        showing(text, store, tmp_path, master="local[1]", on_progress=print, runner_of=lambda *_: runner) as shown,
        pytest.raises(RunError, match="no luck"),
    ):
        shown.result(threading.Event())


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.jetstream
def test_the_demo_ends_with_a_console_that_shows_its_run(tmp_path: Path) -> None:
    """The address comes last; routes, flow, subscriptions and dead letters are those of the run; Ctrl-C ends all."""
    command = [sys.executable, "-m", "turnout", "demo", "--console", "--limit", str(FLIGHTS), "--subscriptions", "50"]
    with subprocess.Popen(
        [*command, "--master", "local[2]"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert address is not None, line or process.communicate(timeout=120)[1]
            url = address[0]
            route, letters, subscriptions = (
                page(f"{url}/{name}") for name in ("routes/flights", "dead-letters/flights", "subscriptions")
            )
            listed = page(url)
        finally:
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=120)[1]

    assert process.returncode == 0, errors
    assert f"{FLIGHTS:,} read" in route
    assert f"{FLIGHTS:,} read" in errors
    assert 'id="route-flights"' in listed
    assert "Subscriptions <small>" in subscriptions
    assert "Dead letters of" in letters
    with pytest.raises(OSError):
        page(url)
