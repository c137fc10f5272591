"""Means to keep a start short: plug-ins by entry point, and the garbage collector."""

from __future__ import annotations

import gc
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from itertools import count
from types import ModuleType
from typing import Any


class _PandasBlocker:
    """Import finder that hides pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas, and leave other modules to other finders."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)
        return None


def block_pandas_import() -> None:
    """Make Arrow treat pandas as not installed, in this process and in processes forked from it.

    To make an array of a list Arrow checks whether the list is one of pandas's, and imports pandas for the question:
    half a second of processor time in each process. It checks once. For processes of our own alone: Arrow's result is
    final, and frames of pandas can no longer be made.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    absent = _PandasBlocker()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)


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


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, not loaded.

    Listing all packages takes some 20 ms; the result is cached for each ``sys.path``.

    >>> "sqlite" in {point.name for point in entry_points("turnout.stores")}
    True
    """
    return tuple(_all(tuple(sys.path)).select(group=group))


@lru_cache(maxsize=4)
def _all(_path: tuple[str, ...]) -> Any:
    # EntryPoints since Python 3.12, a mapping with the same method before.
    return importlib.metadata.entry_points()
