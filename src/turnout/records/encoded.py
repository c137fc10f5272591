"""Columns in the bytes of a codec's format, decoded at the first access to a value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from turnout.records.types import Column, Offsets

Bounds: TypeAlias = "tuple[Offsets, Offsets]"
"""Begin and end of each value of a column in its content."""


class EncodedColumn(Sequence[Any]):
    """Column of well-formed encoded values, which are decoded at the first access.

    Most fields of a record are only passed on: their bytes are copied from the input to the output, and no value is
    created.

    Args:
        form: form of the bytes; columns of equal forms may be written as each other.
        content: bytes that contain the values.
        bounds: bounds of the values in the content.
        read: function that decodes the values in given bounds.
        nullable: True if there may be nulls.
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


class EncodedRun(NamedTuple):
    """Bytes of columns that are adjacent in one content, value by value."""

    content: bytes
    begins: Offsets
    ends: Offsets

    @staticmethod
    def extended(run: EncodedRun | None, column: EncodedColumn, pieces: list[list[bytes]]) -> EncodedRun:
        """Return the run with one more column, or a new one of it; then *pieces* get the bytes of the old one."""
        begins, ends = column.bounds
        if run is not None and run.content is column.content and np.array_equal(run.ends, begins):
            return EncodedRun(run.content, run.begins, ends)
        EncodedRun.closed(run, pieces)
        return EncodedRun(column.content, begins, ends)

    @staticmethod
    def closed(run: EncodedRun | None, pieces: list[list[bytes]]) -> None:
        """Give *pieces* the bytes of each value of a run, if there is one."""
        if run is not None:
            content = run.content
            bounds = zip(run.begins.tolist(), run.ends.tolist(), strict=True)
            pieces.append([content[begin:end] for begin, end in bounds])
