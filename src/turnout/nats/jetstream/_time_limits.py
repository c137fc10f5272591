"""Time limits and cancellation for coroutines that may miss a cancellation.

Before Python 3.12 `asyncio.wait_for`, which nats-py uses throughout, drops a cancellation that arrives together with
the result it waits for; nats-py itself drops some, too. A single cancellation, as `asyncio.timeout` sends it,
is then no limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

# Long enough for a task to end after a cancellation that it has noticed.
_CANCELLATION_SECONDS = 0.02


async def within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run *work* as a task and return its result, or raise its exception.

    Raises:
        TimeoutError: when it is not done in *seconds*; it was stopped.
    """
    task = asyncio.create_task(work)
    late = True
    try:
        await asyncio.wait([task], timeout=seconds)
        late = not task.done()
    finally:
        await stop(task)
    if late:
        raise TimeoutError
    return task.result()


async def stop(*tasks: asyncio.Task[object] | None) -> None:
    """Cancel tasks until they are done, and wait for them; the caller's own task is left out.

    A cancellation of the caller is raised once they are.
    """
    caller = asyncio.current_task()
    running = [task for task in tasks if task is not None and task is not caller]
    cancelled: asyncio.CancelledError | None = None
    while running := [task for task in running if not task.done()]:
        for task in running:
            task.cancel()
        try:
            await asyncio.wait(running, timeout=_CANCELLATION_SECONDS)
        except asyncio.CancelledError as failure:
            cancelled = failure
    for ended in tasks:
        # The loop logs exceptions that are never retrieved.
        if ended is not None and ended.done() and not ended.cancelled():
            ended.exception()
    if cancelled is not None:
        raise cancelled


class Watchdog:
    """Calls *alarm* with the seconds of silence, once per period of silence, until it is stopped.

    Args:
        limit: seconds of silence that are too many.
        alarm: callback; the watch continues afterwards.
    """

    __slots__ = ("_alarm", "_limit", "_reported", "_timer", "last_seen")

    def __init__(self, limit: float, alarm: Callable[[float], None]) -> None:
        self._limit = limit
        self._alarm = alarm
        self._timer: asyncio.TimerHandle | None = None
        self.last_seen = monotonic()
        self._reported = self.last_seen

    def start(self) -> None:
        """Begin to watch; silence counts from now."""
        self.stop()
        self.last_seen = self._reported = monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._check)

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        # A program that blocked the loop wakes with timers due and frames unread: let the socket speak first.
        self._timer = asyncio.get_running_loop().call_later(0.01, self._judge)

    def _judge(self) -> None:
        now = monotonic()
        since = max(self.last_seen, self._reported)
        rest = self._limit - (now - since)
        if rest > 0:
            self._timer = asyncio.get_running_loop().call_later(rest, self._check)
            return
        self._reported = now
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._check)
        self._alarm(now - self.last_seen)
