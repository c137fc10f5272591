"""Means to keep a start short: imports at first use, plug-ins by entry point, and the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

# What a type checker would not let other modules import from here.
__all__ = ["np", "pc", "regex"]

_Class = TypeVar("_Class")


class DeferredModule:
    """Module that is imported when one of its names is used.

    >>> json = DeferredModule("json")
    >>> json.loads("[1]")
    [1]
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import numpy as np
    import pyarrow.compute as pc
    import regex
else:
    # Of most modules on the path of records only this name is needed, and commands that read no record do without it.
    np = DeferredModule("numpy")
    # It makes each of its functions as it is imported, and a single record needs none of them.
    pc = DeferredModule("pyarrow.compute")
    # Only routes with patterns in Java's form need it.
    regex = DeferredModule("regex")


class DeferredClasses(Mapping[str, type[_Class]]):
    """Classes by name, each imported at its first use.

    >>> DeferredClasses({"Decimal": "decimal", "int": int})["Decimal"]
    <class 'decimal.Decimal'>

    Args:
        homes: the module of each class, or the class itself.
    """

    def __init__(self, homes: Mapping[str, str | type[_Class]]) -> None:
        self._homes = dict(homes)

    def __getitem__(self, name: str) -> type[_Class]:
        home = self._homes[name]
        if isinstance(home, str):
            home = self._homes[name] = getattr(import_module(home), name)
        return home

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


def names_at_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package, which imports the module of a public name when the name is used.

    A name that needs Spark raises `turnout.errors.MissingExtraError` where Spark is not installed.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "pyspark":
                raise
            from turnout.errors import MissingExtraError

            raise MissingExtraError("spark", "pyspark") from missing
        return value

    return get


class _PandasBlocker:
    """Import finder that hides pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse pandas, and leave other modules to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


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
    from importlib.metadata import entry_points as all_entry_points

    # EntryPoints since Python 3.12, a mapping with the same method before.
    return all_entry_points()
