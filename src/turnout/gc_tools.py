"""Pauses of the cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

_FIRST_TASKS = 10
_tasks = count()


def freeze_gc() -> None:
    """Move all loaded objects out of the collector's sight; call it at the start of a Spark task.

    PySpark's workers collect garbage after every task and traverse the objects of all modules: 45 ms (measured), in
    each worker of a micro-batch, which starts its next task only after that. Only the first tasks load modules: later
    survivors may become garbage one day.
    """
    if next(_tasks) < _FIRST_TASKS:
        gc.freeze()


@contextmanager
def paused_gc(*, freeze: bool = False) -> Iterator[None]:
    """Pause the collector in this block: millions of new objects without cycles would double the time.

    Args:
        freeze: call `freeze_gc` first, in a task of Spark; PySpark collects when the task has ended.
    """
    if freeze:
        freeze_gc()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
