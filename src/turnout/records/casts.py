"""Casts of Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.records.types import ArrowArray

if TYPE_CHECKING:
    import pyarrow as pa


def as_type(column: ArrowArray, type_: pa.DataType) -> ArrowArray:
    """Return the column as a type: itself if it has that type, as a cast to it takes as long as a thousand values.

    Raises:
        pyarrow.ArrowInvalid: a value cannot be of that type.

    >>> import pyarrow as pa
    >>> numbers = pa.array([1, 2])
    >>> as_type(numbers, pa.int64()) is numbers, as_type(numbers, pa.string()).to_pylist()
    (True, ['1', '2'])
    """
    return column if column.type.equals(type_) else column.cast(type_)
