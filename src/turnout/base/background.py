"""Background work: threads and tasks that are started again after a failure, and whose state health checks can ask for.

The end of a thread by an exception is not reported. All threads and lasting tasks are therefore started here: their
failures are logged and counted, lasting work begins again after a growing pause, and `statuses` has the
state of all that this process runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from turnout.errors import RunError, TurnoutError, message_of

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Its own, as the process's stays as its user has seeded it.
_random = random.Random()  # noqa: S311 - spreads load, no secret
os.register_at_fork(after_in_child=_random.seed)

_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0
_STEADY_SECONDS: Final = 10.0
"""Work that has run for so long since its last start has recovered."""


def spread(seconds: float, least: float = 0.75, most: float = 1.0) -> float:
    """Return a random part of *seconds*, so that those who failed together do not try again together."""
    return seconds * _random.uniform(least, most)


@dataclass(frozen=True, slots=True)
class BackgroundStatus:
    """State of one background work.

    Attributes:
        name: name of the work.
        is_alive: False if its thread or task has ended although it was not stopped.
        failures: number of failures since its start.
        problem: the last failure as a sentence; "" if it has recovered.
    """

    name: str
    is_alive: bool
    failures: int
    problem: str


class _Record:
    """Failures of one work, and whether it has recovered from the last one."""

    def __init__(self, name: str, is_alive: Callable[[], bool]) -> None:
        self.name = name
        self._is_alive = is_alive
        self._failures = 0
        self._in_a_row = 0
        self._problem = ""
        self._began: float | None = None

    def begins(self) -> None:
        """Note the start of an attempt."""
        self._began = time.monotonic()

    def succeeded(self) -> None:
        """Note that a step has ended without a failure."""
        self._in_a_row, self._problem, self._began = 0, "", None

    def failed(self, failure: BaseException, longest: float) -> float:
        """Log and count a failure, and return the seconds until the next attempt."""
        if self._is_steady():
            self._in_a_row = 0
        self._began = None
        self._failures += 1
        self._in_a_row += 1
        pause = min(longest, _FIRST_SECONDS * 2.0 ** min(self._in_a_row - 1, 20))
        pause = spread(pause)
        is_known = isinstance(failure, TurnoutError | OSError)
        sentence = message_of(failure) if is_known else f"{type(failure).__name__}: {message_of(failure)}"
        self._problem = f"{self.name}: {sentence}"
        text = "%s failed, next attempt in %.1f s: %s"
        if is_known:
            _log.warning(text, self.name, pause, sentence)
        else:
            _log.error(text, self.name, pause, sentence, exc_info=failure)
        return pause

    def _is_steady(self) -> bool:
        return self._began is not None and time.monotonic() - self._began >= _STEADY_SECONDS

    def status(self) -> BackgroundStatus:
        """Return the state; any thread may ask."""
        alive = self._is_alive()
        problem = f"{self.name} has ended" if not alive else "" if self._is_steady() else self._problem
        return BackgroundStatus(self.name, alive, self._failures, problem)


_records: set[_Record] = set()
_lock = threading.Lock()


def statuses() -> list[BackgroundStatus]:
    """Return the state of all background work of this process, by name."""
    with _lock:
        records = tuple(_records)
    return sorted((record.status() for record in records), key=lambda status: status.name)


def _know(record: _Record) -> None:
    with _lock:
        _records.add(record)


def _forget(record: _Record) -> None:
    with _lock:
        _records.discard(record)


class Background:
    """Thread that does its work until it is stopped, whatever happens to one attempt.

    Args:
        name: name of the work, as a person reads it: ``webhooks of the route flights``.
        work: one step, which is repeated; or, without *every*, work that lasts until `stopped` is set.
        every: seconds between the end of a step and the next.
        delay: seconds before the first step.
        longest: seconds of the longest pause after failures.

    Attributes:
        stopped: set by `stop`; lasting work has to end then.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        *,
        every: float | None = None,
        delay: float = 0.0,
        longest: float = _LONGEST_SECONDS,
    ) -> None:
        self.name = name
        self.stopped = threading.Event()
        self._work = work
        self._every = every
        self._delay = delay
        self._longest = longest
        self._thread = threading.Thread(target=self._run, name=_thread_name(name), daemon=True)
        self._record = _Record(name, lambda: self._thread.ident is None or self._thread.is_alive())

    def start(self) -> Self:
        """Start the thread."""
        _know(self._record)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Let the work end, without waiting for it."""
        self.stopped.set()
        _forget(self._record)

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end of the thread, if it was started; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop the work, and wait for its end."""
        self.stop()
        self.join()

    def is_alive(self) -> bool:
        """Return True while the thread runs."""
        return self._thread.is_alive()

    def status(self) -> BackgroundStatus:
        """Return the state of the work."""
        return self._record.status()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        if self._delay and self.stopped.wait(self._delay):
            return
        # Without a delay the first step is done in any case: the end of a server waits for its start.
        while True:
            self._record.begins()
            try:
                self._attempt()
            except BaseException as failure:  # noqa: BLE001 - only this thread does the work
                if self.stopped.is_set():
                    _log.info("%s failed while it stopped: %r", self.name, failure)
                    return
                pause = max(self._every or 0.0, self._record.failed(failure, self._longest))
            else:
                self._record.succeeded()
                pause = self._every or 0.0
            if self.stopped.wait(pause):
                return

    def _attempt(self) -> None:
        self._work()
        if self._every is None and not self.stopped.is_set():
            raise RunError("it has returned although it was not stopped")


def run_once(name: str, work: Callable[[], object], *, level: int = logging.ERROR) -> threading.Thread:
    """Do a work on a thread of its own, once; a failure is logged."""

    def attempt() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - the failure is not reported elsewhere
            _log.log(level, "%s failed: %s", name, failure, exc_info=failure)

    thread = threading.Thread(target=attempt, name=_thread_name(name), daemon=True)
    thread.start()
    return thread


async def keep_running(
    name: str, work: Callable[[], Awaitable[object]], *, every: float, longest: float = _LONGEST_SECONDS
) -> None:
    """Await a step again and again until this task is cancelled, whatever happens to one of them.

    Args:
        name: name of the work.
        work: one step.
        every: seconds between the end of a step and the next.
        longest: seconds of the longest pause after failures.
    """
    record = _Record(name, lambda: True)
    _know(record)
    try:
        while True:
            record.begins()
            try:
                await work()
            except Exception as failure:  # noqa: BLE001 - only this task does the work
                await asyncio.sleep(max(every, record.failed(failure, longest)))
            else:
                record.succeeded()
                await asyncio.sleep(every)
    finally:
        _forget(record)


class Tasks:
    """Tasks of one owner that are not awaited: kept until they end, and their failures are logged.

    Args:
        name: what they do, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[object, object, _T]) -> asyncio.Task[_T]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            _log.error("%s failed: %s", self._name, failure, exc_info=failure)

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _thread_name(name: str) -> str:
    return f"turnout-{name.replace(' ', '-')}"
