"""Imports at first use: for what costs more to import than most commands take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

__all__ = ["DeferredClasses", "DeferredModule", "names_at_first_use", "np", "pc", "regex"]

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
