"""Time limits and cancellation for coroutines that may miss a cancellation.

Before Python 3.12 `asyncio.wait_for`, which nats-py uses throughout, drops a cancellation that arrives together with
the result it waits for; nats-py itself drops some, too. One cancellation, which is all that `asyncio.timeout` sends,
is then no limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Long enough for a task to come to its end after a cancellation that it has noticed.
_BETWEEN_CANCELLATIONS = 0.02


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


async def stop(*tasks: asyncio.Task[Any] | None) -> None:
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
            await asyncio.wait(running, timeout=_BETWEEN_CANCELLATIONS)
        except asyncio.CancelledError as failure:
            cancelled = failure
    for ended in tasks:
        # An exception that nobody retrieves is printed by the loop.
        if ended is not None and ended.done() and not ended.cancelled():
            ended.exception()
    if cancelled is not None:
        raise cancelled
