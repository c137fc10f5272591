"""ReplaceField: keep, remove and rename fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform
from turnout.transforms.options import Option, Options

__all__ = ["ReplaceField"]


def _pair(entry: str) -> list[str]:
    parts = entry.split(":")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _check_renames(entries: Sequence[str] | None) -> str | None:
    wrong = [entry for entry in entries or () if len(_pair(entry)) != 2]
    return f"expected entries old:new, and {wrong[0]!r} is none" if wrong else None


@dataclass(frozen=True, slots=True)
class ReplaceField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Keeps only some fields, removes some, renames some. Names are flat."
    options: ClassVar[tuple[Option, ...]] = (
        Option("exclude", "LIST", "Fields to remove; stronger than include.", default=()),
        Option("include", "LIST", "Fields to keep; all if empty.", default=()),
        Option("renames", "LIST", "Entries old:new.", default=(), check=_check_renames, valid="old:new"),
        REPLACE_NULL,
    )

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Cut the renames at their colons; where one field is named twice the last counts."""
        renames: dict[str, str] = {}
        for entry in options["renames"] or ():
            old, new = _pair(entry)
            renames[old] = new
        return cls(
            side,
            options["exclude"] or (),
            options["include"] or (),
            tuple(renames.items()),
            options["replace.null.with.default"],
        )

    def keeps(self, name: str) -> bool:
        """Whether the field of that (old) name is kept."""
        return name not in self.exclude and (not self.include or name in self.include)

    def renamed(self, name: str) -> str:
        """The new name of a field."""
        return dict(self.renames).get(name, name)

    def source_of(self, name: str) -> str:
        """Which old field is read for the new name: the reverse lookup that Connect does, with its oddities."""
        return {new: old for old, new in self.renames}.get(name, name)
