"""Background work of an index."""

from __future__ import annotations

import threading

import pytest

from turnout.subscriptions.index.index_writer import BackgroundTask


def test_a_result_is_waited_for() -> None:
    """Until then the task is not done."""
    go_on = threading.Event()

    def work() -> int:
        go_on.wait(30)
        return 7

    task = BackgroundTask(work)
    assert not task.done
    go_on.set()

    assert task.outcome() == 7
    assert task.done


def test_an_exception_is_raised_where_the_result_is_asked_for() -> None:
    """Each time."""
    missing: list[int] = []
    task = BackgroundTask(lambda: missing[0])
    task.wait()

    assert task.done
    for _ in range(2):
        with pytest.raises(IndexError):
            task.outcome()
