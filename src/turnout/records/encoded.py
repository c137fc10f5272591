"""Columns in the bytes of a codec's format, decoded at the first access to a value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from turnout.base.deferred import np
from turnout.records.types import Column, Mask, Octets, Offsets

_MAX_ASCII: Final = 0x7F

Bounds: TypeAlias = "tuple[Offsets, Offsets]"
"""Begin and end of each value of a column in its content."""

Slices: TypeAlias = "tuple[bytes, Bounds]"
"""Content with the bounds of a column's values."""


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

    @property
    def slices(self) -> Slices:
        """Encoded bytes of the values."""
        return self.content, self.bounds

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


class ColumnPieces:
    """Bytes of columns, to be joined value by value; of adjacent encoded columns one slice is taken for each value."""

    def __init__(self) -> None:
        self._columns: list[Sequence[bytes]] = []
        self._run: Slices | None = None

    def add(self, pieces: Sequence[bytes]) -> None:
        """Append the bytes of a column."""
        self._end_run()
        self._columns.append(pieces)

    def add_slices(self, slices: Slices) -> None:
        """Append the bytes of an encoded column."""
        content, (begins, ends) = slices
        if self._run is not None:
            last_content, (first, last) = self._run
            if last_content is content and np.array_equal(last, begins):
                self._run = content, (first, ends)
                return
        self._end_run()
        self._run = slices

    def joined(self) -> list[bytes]:
        """Return the bytes of all columns for each value; there is at least one column."""
        self._end_run()
        return list(map(b"".join, zip(*self._columns, strict=True)))

    def _end_run(self) -> None:
        if self._run is not None:
            content, bounds = self._run
            edges = zip(*(edge.tolist() for edge in bounds), strict=True)
            self._columns.append([content[begin:end] for begin, end in edges])
            self._run = None


def non_ascii(content: Octets, texts: Sequence[Bounds]) -> Mask:
    """Return True for texts with a byte that is not ASCII, in one pass: a row for each record, a column for each text.

    Args:
        content: bytes with the texts, and at least one byte behind them.
        texts: bounds of the texts, at least one; ascending within a record, and from record to record. For an empty
            text the result is arbitrary.
    """
    edges = np.stack([edge for bounds in texts for edge in bounds], axis=1)
    high: Mask = np.bitwise_or.reduceat(content, edges.ravel()).reshape(edges.shape) > _MAX_ASCII
    return high[:, ::2]
