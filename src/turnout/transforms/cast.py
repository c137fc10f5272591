"""Cast: change the type of a whole key or value, or of named fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform
from turnout.transforms.options import Option, Options

__all__ = ["TARGETS", "Cast"]

TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


def _parts(entry: str) -> list[str]:
    """The entry cut at its colons; empty parts at the end do not count, so ``x:`` is a lone ``x``."""
    parts = [part.strip() for part in entry.split(":")]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _check(entries: Sequence[str] | None) -> str | None:
    if not entries:
        return "expected at least one field:type or one type"
    for entry in entries:
        parts = _parts(entry)
        if len(parts) > 2:
            return f"expected field:type, found the entry {entry!r}"
        if parts[-1].lower() not in TARGETS:
            return f"expected a type of {', '.join(TARGETS)} in the entry {entry!r}"
        if len(parts) == 1 and len(entries) > 1:
            return f"expected the type of the whole value, {parts[0]!r}, to be the only entry"
    return None


@dataclass(frozen=True, slots=True)
class Cast(Transform):
    """See ``summary``.

    Attributes:
        whole: the type of the whole key or value, if it is cast as a whole.
        fields: the type of each named field; names are flat.
    """

    summary: ClassVar[str] = "Casts fields, or the whole key or value, to a primitive type."
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "spec",
            "LIST",
            "Entries field:type, or one type for the whole.",
            check=_check,
            valid=f"types: {', '.join(TARGETS)}, in any case",
        ),
        REPLACE_NULL,
    )

    whole: str | None = None
    fields: tuple[tuple[str, str], ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the spec; where a field is named twice the last type wins."""
        parts = [_parts(entry) for entry in options["spec"]]
        replace = options["replace.null.with.default"]
        if len(parts[0]) == 1:
            return cls(side=side, whole=parts[0][0].lower(), replace_null_with_default=replace)
        fields = {name: type_.lower() for name, type_ in parts}
        return cls(side=side, fields=tuple(fields.items()), replace_null_with_default=replace)
