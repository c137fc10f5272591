"""Background work during which readers are not blocked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Computation in a thread of its own.

    Args:
        work: gives the outcome.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._outcome: list[T] = []
        self._problem: BaseException | None = None

        def run() -> None:
            try:
                self._outcome.append(work())
            except BaseException as problem:  # noqa: BLE001 - raised to the caller that reads the outcome
                self._problem = problem

        self._thread = threading.Thread(target=run, name="turnout-index", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Return True if the task has ended."""
        return bool(self._outcome) or self._problem is not None

    def wait(self) -> None:
        """Wait until it has."""
        self._thread.join()

    def outcome(self) -> T:
        """Wait for the task and return its result, or raise its exception."""
        self.wait()
        if self._problem is not None:
            raise self._problem
        return self._outcome[0]
