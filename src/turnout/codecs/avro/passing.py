"""Passing of Avro values: cursors move behind a field that is checked, and read when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from turnout.codecs.avro.column_reading import Cursors, ReadColumn
from turnout.codecs.avro.connect_schema import nullable_of
from turnout.codecs.avro.types import AvroType
from turnout.records.encoded import Bounds, EncodedColumn
from turnout.records.types import Column, Mask, RowIds

_MORE: Final = 0x80
"""This bit of a byte says that the number goes on."""

_INT_BYTES: Final = 5
_LONG_BYTES: Final = 10

_SizeValues: TypeAlias = Callable[[Cursors, RowIds], tuple[RowIds, Mask | None]]
"""Returns how many bytes the value at each position has, and which of them are none; those may have any size."""

_CONVERTED: Final = frozenset({"date", "time-millis", "timestamp-millis"})

Form: TypeAlias = tuple[str, str | None, int | None, tuple[str, ...]]


def form_of(type_: AvroType) -> Form | None:
    """Return the layout of the values of a type; None where they cannot be passed.

    Fields of equal forms have equal bytes for equal values.
    """
    nullable = nullable_of(type_)
    inner, null = (type_, None) if nullable is None else nullable
    if inner.logical == "decimal" or inner.kind not in (*_SIZES, "enum"):
        return None
    return inner.kind, inner.logical if inner.logical in _CONVERTED else None, null, inner.symbols


def passing(type_: AvroType, read: ReadColumn) -> ReadColumn:
    """Return a reader that passes the values of a type, if they can be, and *read* otherwise."""
    form = form_of(type_)
    if form is None:
        return read
    kind, _, null, symbols = form
    sizes = partial(_enums, len(symbols)) if kind == "enum" else _SIZES[kind]

    def column(cursors: Cursors) -> Column:
        before = cursors.positions
        if null is None:
            sizes_there, wrong = sizes(cursors, before)
        else:
            sizes_there, wrong = _nullable(cursors, before, sizes, null)
        if wrong is not None and wrong.any():
            cursors.fail(wrong)
            sizes_there = np.where(wrong, 0, sizes_there)
        cursors.advance(sizes_there)
        bounds: Bounds = (before, cursors.positions)
        return EncodedColumn(form, cursors.raw, bounds, lambda some: read(cursors.at(some)), nullable=null is not None)

    return column


def check_texts(cursors: Cursors, columns: Mapping[str, Column], readers: Mapping[str, ReadColumn]) -> None:
    """Fail the values of which a text that was passed is not UTF-8.

    Args:
        cursors: behind the values.
        columns: of the values, those that were passed among them.
        readers: of the columns.
    """
    texts = [(name, one) for name, one in columns.items() if isinstance(one, EncodedColumn) and _is_text(one)]
    if not texts:
        return
    # One pass over the bytes of the batch: whether one between two edges, which ascend, is not ASCII.
    edges = np.stack([edge for _, column in texts for edge in column.bounds], axis=1)
    high = np.bitwise_or.reduceat(cursors.content, edges.ravel()).reshape(edges.shape) >= _MORE
    for index, (name, column) in enumerate(texts):
        suspects = np.flatnonzero(high[:, 2 * index])
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
    # Of a null the bytes behind it were looked at: those of the next field, or of the padding.
    none = ~present & (branches != 2 * null)
    return 1 + inner * present, none if wrong is None else none | (wrong & present)


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
    """Return the lengths at the positions, how many bytes they have themselves, and which are none."""
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
