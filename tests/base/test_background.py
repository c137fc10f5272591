"""Background work goes on after every failure, and is known while it fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from turnout.base import background
from turnout.base.background import Background, Tasks, keep_running, run_once, statuses
from turnout.errors import ConfigError, Mistake


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_FIRST_SECONDS", 0.01)


def status_of(name: str) -> background.BackgroundStatus | None:
    return next((status for status in statuses() if status.name == name), None)


def until(what: Callable[[], object]) -> None:
    waiting = threading.Event()
    for _ in range(12_000):
        if what():
            return
        waiting.wait(0.01)
    raise AssertionError("it has not happened")


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("x"),
        ConfigError([Mistake("a", "b")]),
        OSError(5, "io"),
        SystemExit(3),
        asyncio.CancelledError(),
        MemoryError(),
        RecursionError(),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_steps_go_on_after_a_failure(failure: BaseException) -> None:
    """Whatever ends a step, the next one follows; the state says so until a step has succeeded."""
    steps: list[int] = []
    go_on = threading.Event()

    def step() -> None:
        steps.append(1)
        if len(steps) <= 3:
            raise failure
        go_on.wait(20)

    with Background("a work", step, every=0.01):
        until(lambda: len(steps) > 3)
        status = status_of("a work")
        assert status is not None
        assert (status.is_alive, status.failures, status.problem[:8]) == (True, 3, "a work: ")
        go_on.set()
        until(lambda: not (status_of("a work") or status).problem)
    assert status_of("a work") is None


def test_lasting_work_that_returns() -> None:
    """Work that should last, and returns, is started again and counted as failed."""
    starts: list[int] = []
    work = Background("a server", lambda: starts.append(1))
    with work:
        until(lambda: len(starts) > 2)
        assert "has returned" in work.status().problem
    assert work.join(0)


def test_lasting_work_that_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some time without a failure its problem is over, although it has not ended."""
    monkeypatch.setattr(background, "_STEADY_SECONDS", 0.05)
    starts: list[int] = []

    def serve() -> None:
        starts.append(1)
        if len(starts) == 1:
            raise ValueError("once")
        work.stopped.wait()

    work = Background("a server", serve)
    with work:
        until(lambda: len(starts) == 2 and not work.status().problem)
        assert work.status().failures == 1


def test_pauses_grow(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is twice the one before, up to the longest; an unknown failure is logged with its traceback."""
    monkeypatch.setattr(background._random, "uniform", lambda _low, high: high)
    record = background._Record("x", lambda: True)

    assert [record.failed(ValueError("v"), 0.05) for _ in range(5)] == [0.01, 0.02, 0.04, 0.05, 0.05]
    record.succeeded()
    assert record.failed(OSError("o"), 0.05) == 0.01
    assert [(entry.levelno, entry.exc_info is None) for entry in caplog.records[-2:]] == [
        (logging.ERROR, False),
        (logging.WARNING, True),
    ]


def test_a_dead_thread_is_known() -> None:
    """A thread that has ended without being stopped is a problem of its own."""
    work = Background("a work", lambda: None, every=60)
    work._thread = threading.Thread(target=lambda: None)
    work.start()
    work._thread.join()
    try:
        assert work.status() == background.BackgroundStatus("a work", False, 0, "a work has ended")
    finally:
        work.stop()


def test_once(caplog: pytest.LogCaptureFixture) -> None:
    """A failure of work that is done once is logged."""
    run_once("a warm up", lambda: 1 / 0).join()

    assert "a warm up failed: division by zero" in caplog.text


def test_tasks_go_on() -> None:
    """A step of a task that fails is followed by the next; after the cancellation it is forgotten."""

    async def main() -> None:
        steps: list[int] = []

        async def step() -> None:
            steps.append(1)
            if len(steps) < 3:
                raise ValueError("x")

        task = asyncio.create_task(keep_running("a task", step, every=0.01))
        while len(steps) < 2:
            await asyncio.sleep(0)
        known = status_of("a task")
        assert known is not None
        assert known.failures
        while len(steps) < 5:
            await asyncio.sleep(0.01)
        assert (status_of("a task") or known).problem == ""
        task.cancel()
        await asyncio.wait([task])
        assert status_of("a task") is None

    asyncio.run(main())


def test_failures_of_tasks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A task that nobody awaits says its failure when it happens."""

    async def main() -> None:
        tasks = Tasks("deliveries")

        async def fail() -> None:
            raise ValueError("x")

        await asyncio.wait([tasks.start(fail())])
        lasting = tasks.start(asyncio.sleep(60))
        await tasks.cancel()
        assert lasting.cancelled()

    asyncio.run(main())
    assert "deliveries failed: x" in caplog.text
