"""What a Python worker of Spark does at its tasks for us."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["spare_collections", "without_collections"]

_FIRST_TASKS = 10
_tasks = count()


def spare_collections() -> None:
    """Take what this process has loaded out of the garbage collector's sight; to be called at the start of a task.

    PySpark's workers collect garbage after every task, and look through all objects of all modules for it: 45 ms
    (measured), in each of the four workers of a micro-batch, which begin their next task only after that. What has
    just survived is no garbage. Only the first tasks load modules: later survivors may become garbage one day.
    """
    if next(_tasks) < _FIRST_TASKS:
        gc.freeze()


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in this block: a batch makes millions of objects and no cycles.

    PySpark collects when the task has ended.
    """
    spare_collections()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
