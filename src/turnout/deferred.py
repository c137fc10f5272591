"""Imports at first use: for what costs more to import than most commands take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class DeferredModule:
    """Module that is imported when one of its names is used.

    >>> json = DeferredModule("json")
    >>> json.loads("[1]")
    [1]
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def names_at_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which imports the module of a public name when the name is used.

    A name that needs Spark raises `turnout.errors.MissingExtraError` where Spark is not installed.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "pyspark":
                raise
            from turnout.errors import MissingExtraError

            raise MissingExtraError("spark", "pyspark") from missing

    return get
