"""Columns that are still the bytes of a codec's format, read at the first look at a value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from turnout.records.types import Column, Offsets

Bounds: TypeAlias = "tuple[Offsets, Offsets]"
"""Begin and end of each value of a column in its content."""


class EncodedColumn(Sequence[Any]):
    """Column of values that are known to be well-formed, and are read when one of them is asked for.

    Of a record most fields are only passed on: their bytes go from what was read to what is written, and no value is
    ever made.

    Args:
        form: of the bytes; columns of equal forms may be written as each other.
        content: in which the values lie.
        bounds: of the values in the content.
        read: returns the values in such bounds.
        nullable: whether there may be nulls.
    """

    __slots__ = ("_read", "_values", "bounds", "content", "form", "nullable")

    def __init__(
        self, form: Hashable, content: bytes, bounds: Bounds, read: Callable[[Bounds], Column], *, nullable: bool
    ) -> None:
        self.form = form
        self.content = content
        self.bounds = bounds
        self.nullable = nullable
        self._read = read
        self._values: Column | None = None

    @property
    def values(self) -> Column:
        """The values, which are read once."""
        if self._values is None:
            self._values = self._read(self.bounds)
        return self._values

    def chosen(self, indices: Offsets, take: Callable[[Column], Column]) -> EncodedColumn:
        """Return the values at some indices, which *take* takes out of a column that was read."""
        begins, ends = self.bounds
        part = EncodedColumn(
            self.form, self.content, (begins[indices], ends[indices]), self._read, nullable=self.nullable
        )
        if self._values is not None:
            part._values = take(self._values)
        return part

    def __len__(self) -> int:
        return len(self.bounds[0])

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __contains__(self, value: object) -> bool:
        return (value is not None or self.nullable) and value in self.values

    def __eq__(self, other: object) -> bool:
        return list(self.values) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.values)
