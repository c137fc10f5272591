"""Lazy reading of Avro values: a field is checked and skipped, and decoded only when its values are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from turnout.codecs.avro.column_reading import Cursors, ReadColumn
from turnout.codecs.avro.connect_schema import nullable_of
from turnout.codecs.avro.types import AvroType
from turnout.records.spans import Bounds, EncodedColumn, non_ascii
from turnout.records.types import Column, Mask, RowIds

_MORE: Final = 0x80
"""Continuation bit of a varint."""

_INT_BYTES: Final = 5
_LONG_BYTES: Final = 10

_SizeValues: TypeAlias = "Callable[[Cursors, RowIds], tuple[RowIds, Mask | None]]"
"""Function that returns the size in bytes of the value at each position, and the mask of malformed ones, whose size is
arbitrary."""

_CONVERTED: Final = frozenset({"date", "time-millis", "timestamp-millis"})

Form: TypeAlias = tuple[str, str | None, int | None, tuple[str, ...]]


def form_of(type_: AvroType) -> Form | None:
    """Return the form of a type's encoded values; None if they cannot be skipped.

    Fields of equal forms have equal bytes for equal values.
    """
    nullable = nullable_of(type_)
    inner, null = (type_, None) if nullable is None else nullable
    if inner.logical == "decimal" or inner.kind not in (*_SIZES, "enum"):
        return None
    return inner.kind, inner.logical if inner.logical in _CONVERTED else None, null, inner.symbols


def passing(type_: AvroType, read: ReadColumn) -> ReadColumn:
    """Return a reader that skips the values of a type if possible, and *read* otherwise."""
    form = form_of(type_)
    if form is None:
        return read
    kind, _, null, symbols = form
    sizes = partial(_enums, len(symbols)) if kind == "enum" else _SIZES[kind]

    def column(cursors: Cursors) -> Column:
        before = cursors.positions
        if null is None:
            sizes_found, wrong = sizes(cursors, before)
        else:
            sizes_found, wrong = _nullable(cursors, before, sizes, null)
        if wrong is not None and wrong.any():
            cursors.fail(wrong)
            sizes_found = np.where(wrong, 0, sizes_found)
        cursors.advance(sizes_found)
        bounds: Bounds = (before, cursors.positions)
        return EncodedColumn(
            form,
            cursors.raw,
            bounds,
            lambda cursor_indices: read(cursors.at(cursor_indices)),
            nullable=null is not None,
        )

    return column


def check_texts(cursors: Cursors, columns: Mapping[str, Column], readers: Mapping[str, ReadColumn]) -> None:
    """Fail the values that have a skipped text which is not UTF-8.

    Args:
        cursors: behind the values.
        columns: columns of the values, skipped ones included.
        readers: readers of the columns, by name.
    """
    texts = [(name, one) for name, one in columns.items() if isinstance(one, EncodedColumn) and _is_text(one)]
    if not texts:
        return
    suspect = non_ascii(cursors.content, [column.bounds for _, column in texts])
    for index, (name, column) in enumerate(texts):
        suspects = np.flatnonzero(suspect[:, index])
        if len(suspects):
            begins, ends = column.bounds
            part = cursors.at((begins[suspects], ends[suspects]))
            readers[name](part)
            cursors.failed[suspects[part.failed]] = True


def _is_text(column: EncodedColumn) -> bool:
    return isinstance(column.form, tuple) and column.form[0] == "string"


def _nullable(cursors: Cursors, before: RowIds, sizes: _SizeValues, null: int) -> tuple[RowIds, Mask | None]:
    branches = cursors.content[before]
    present = branches == 2 * (1 - null)
    inner, wrong = sizes(cursors, before + 1)
    if present.all():
        return inner + 1, wrong
    # For a null, *inner* is the size of the bytes that follow it (the next field or the padding) and is ignored.
    wrong_branch = ~present & (branches != 2 * null)
    return 1 + inner * present, wrong_branch if wrong is None else wrong_branch | (wrong & present)


def _longs(bits: int, cursors: Cursors, before: RowIds) -> tuple[RowIds, Mask | None]:
    content = cursors.content
    sizes = np.ones(len(before), np.int64)
    more = np.flatnonzero(content[before] >= _MORE)
    most = _INT_BYTES if bits == 32 else _LONG_BYTES
    for index in range(1, most):
        if not len(more):
            return sizes, None
        sizes[more] += 1
        more = more[content[np.minimum(before[more] + index, cursors.ends[more])] >= _MORE]
    wrong = np.zeros(len(before), np.bool_)
    wrong[more] = True
    large = np.flatnonzero(sizes == most)
    part = cursors.at((before[large], cursors.ends[large]))
    numbers = part.longs()
    wrong[large] |= part.failed | (numbers < -(1 << bits - 1)) | (numbers > (1 << bits - 1) - 1)
    return sizes, wrong


def _lengths(cursors: Cursors, before: RowIds) -> tuple[RowIds, RowIds, Mask]:
    """Return the lengths at the positions, their own sizes in bytes, and the mask of malformed ones."""
    first = cursors.content[before]
    lengths, own = (first >> 1).astype(np.int64), np.ones(len(before), np.int64)
    wrong = (first & 1).astype(np.bool_)
    more = np.flatnonzero(first >= _MORE)
    if len(more):
        part = cursors.at((before[more], cursors.ends[more]))
        numbers = part.longs()
        failed = part.failed | (numbers < 0) | (numbers > len(cursors.raw))
        wrong[more], lengths[more] = failed, np.where(failed, 0, numbers)
        own[more] = part.positions - before[more]
    return lengths, own, wrong


def _contents(cursors: Cursors, before: RowIds) -> tuple[RowIds, Mask | None]:
    lengths, own, wrong = _lengths(cursors, before)
    return lengths + own, wrong


def _enums(count: int, cursors: Cursors, before: RowIds) -> tuple[RowIds, Mask | None]:
    numbers, sizes, wrong = _lengths(cursors, before)
    return sizes, wrong | (numbers >= count)


def _booleans(cursors: Cursors, before: RowIds) -> tuple[RowIds, Mask | None]:
    return np.ones(len(before), np.int64), cursors.content[before] > 1


def _fixed(size: int, _: Cursors, before: RowIds) -> tuple[RowIds, Mask | None]:
    return np.full(len(before), size, np.int64), None


_SIZES: Final[dict[str, _SizeValues]] = {
    "boolean": _booleans,
    "int": partial(_longs, 32),
    "long": partial(_longs, 64),
    "float": partial(_fixed, 4),
    "double": partial(_fixed, 8),
    "string": _contents,
    "bytes": _contents,
}
