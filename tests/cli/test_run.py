"""Handling of ``turnout run``'s options before Spark is started."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from turnout.cli.run import RunLog, lag_watch, log_beside, run_display, working
from turnout.engine.counts import Counts
from turnout.routes import Route
from turnout.runtime.offsets import Progress, StartupStep
from turnout.runtime.preflight import Lag

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


STREAM_ROUTE = """name: a
source: {format: nats, servers: "nats://127.0.0.1:1", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:1"}
"""


def progress(batch: int, read: int, seconds: float) -> Progress:
    return Progress(batch, Counts(read=read, delivered=read), seconds, 1.0, None)


def shown(*, terminal: bool, lag: Lag | None = None) -> str:
    """Return the output for two steps and three micro-batches."""
    out = io.StringIO()
    screen = Console(file=out, force_terminal=terminal, width=100, highlight=False)
    with run_display(screen, "flights", lambda: lag) as display:
        display.waits_for(StartupStep.SESSION)
        display.waits_for(StartupStep.FIRST_BATCH)
        for batch, (read, seconds) in enumerate([(1000, 1.0), (2000, 2.0), (50_000, 40.0)]):
            display(progress(batch, read, seconds))
    return out.getvalue()


def test_plain_lines() -> None:
    """A line for each step of the startup, and for micro-batches one every few seconds, with rate and lag."""
    lines = shown(terminal=False, lag=Lag({"S": 1200, "T": 34}, 5.0)).splitlines()

    assert lines[:2] == [f"route flights: {step}" for step in (StartupStep.SESSION, StartupStep.FIRST_BATCH)]
    assert len(lines) == 3
    assert lines[2].startswith("batch 0: read 1,000")
    assert lines[2].endswith("(1,000 records/s, lag 1,234 records, 5 s)")


def test_a_terminal() -> None:
    """The step is redrawn with its seconds, and replaced by the counts, the lag and the rate of the last seconds."""
    text = shown(terminal=True, lag=Lag({"S": 7}))

    assert "starting Spark: the JVM and its session (0 s)" in text
    assert "7 records" in text
    # 48,000 records in 38 seconds, since the window has only two of the micro-batches.
    assert "1,263" in text


def test_an_unknown_lag_is_not_shown() -> None:
    """For example of a source that does not report its end."""
    assert "lag" not in shown(terminal=False)


@pytest.mark.parametrize("local", [True, False])
def test_a_server_that_is_away_has_no_lag(local, tmp_path, monkeypatch) -> None:
    """The watch goes on, ends with its block, and disturbs nothing."""
    monkeypatch.setattr("turnout.cli.run._EVERY_SECONDS", 0.01)

    with lag_watch(Route.parse(STREAM_ROUTE, {}), tmp_path if local else None) as lag:
        assert lag() is None


def test_work_goes_on_with_details_on_a_terminal(monkeypatch) -> None:
    """With its seconds; nothing is written off a terminal, and nothing remains on one."""
    shown = {}
    for terminal in (True, False):
        out = io.StringIO()
        screen = Console(file=out, force_terminal=terminal, width=100, highlight=False)
        monkeypatch.setattr("turnout.cli.run.console", lambda screen=screen, **_: screen)
        with working("comparing") as details:
            details(lambda: "12 of 34 tasks")
        shown[terminal] = out.getvalue()

    assert "comparing: 12 of 34 tasks (0 s)" in shown[True]
    assert shown[False] == ""


def test_a_run_says_that_it_stops() -> None:
    """At once, before the micro-batch under way has ended."""
    out = io.StringIO()
    screen = Console(file=out, force_terminal=False, width=100, highlight=False)
    with run_display(screen, "flights") as display:
        display.says_stopping()

    assert out.getvalue() == "route flights: stopping after the micro-batch under way\n"


def test_a_run_is_logged(caplog) -> None:
    """Its phases, and its micro-batches with their counts, at most one every few seconds."""
    caplog.set_level("INFO")
    log = RunLog("flights")
    log.waits_for(StartupStep.SESSION)
    for batch in range(3):
        log(progress(batch, 1000, batch))
    log.says_stopping()

    assert [record.getMessage() for record in caplog.records] == [
        f"route flights: {StartupStep.SESSION}",
        "route flights: batch 0",
        "route flights: stopping after the micro-batch under way",
    ]
    assert vars(caplog.records[1])["counts"]["read"] == 1000
    assert {vars(record)["route"] for record in caplog.records} == {"flights"}
