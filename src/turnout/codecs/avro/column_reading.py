"""Reader of many Avro values at once: each field of all of them, straight into a column.

A cursor for each value moves over the bytes of the batch in NumPy. Arrays, maps and unions of several types among the
fields, and malformed values, are left to `turnout.codecs.avro.reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.codecs.avro.connect_schema import decimal_of, nullable_of
from turnout.codecs.avro.reading import MAX_DECIMAL, MalformedError, Read, conversion_of, reader_of
from turnout.codecs.avro.types import AvroType
from turnout.records.spans import Bounds
from turnout.records.types import Column, Mask, NewColumn, Octets, RowIds

_PAD: Final = 16
"""Bytes behind the batch, so that a cursor at its end reads zeros."""

_MAX_VARINT: Final = 10


class Cursors:
    """Positions in the bytes of a batch, one for each value.

    Args:
        texts: texts of the values.
        start: offset of each value in its text.

    Attributes:
        failed: malformed values; their decoded contents are arbitrary.
        texts: texts of all values of the batch.
        raw: their bytes, joined.
        rows: the index of each cursor's text.
    """

    def __init__(self, texts: Sequence[bytes], start: int) -> None:
        self.texts = texts
        self.rows: RowIds = np.arange(len(texts))
        self.raw = b"".join([*texts, bytes(_PAD)])
        self.content: Octets = np.frombuffer(self.raw, np.uint8)
        self.ends: RowIds = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        self.positions: RowIds = np.empty(len(texts), np.int64)
        self.positions[0] = start
        self.positions[1:] = self.ends[:-1] + start
        self.failed: Mask = np.zeros(len(texts), np.bool_)

    def __len__(self) -> int:
        return len(self.positions)

    def advance(self, sizes: RowIds | int) -> RowIds:
        """Move all cursors; return their previous offsets. Those that would leave their value fail, and do not move."""
        before = self.positions
        after = before + sizes
        over = (after > self.ends) | (after < before)
        if over.any():
            self.failed |= over
            after[over] = self.ends[over]
            before = np.where(over, self.ends, before)
        self.positions = after
        return before

    def longs(self) -> NDArray[np.int64]:
        """Return the number at each cursor, and move behind it."""
        content, before = self.content, self.positions
        first = content[before]
        number = (first & 0x7F).astype(np.uint64)
        sizes = np.ones(len(before), np.int64)
        more = np.flatnonzero(first >= 0x80)
        for index in range(1, _MAX_VARINT):
            if not len(more):
                break
            byte = content[np.minimum(before[more] + index, self.ends[more])]
            number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            sizes[more] += 1
            if index == _MAX_VARINT - 1:
                self.failed[more[byte > 1]] = True
            more = more[byte >= 0x80]
        self.advance(sizes)
        return (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64)

    def fail(self, mask: Mask) -> None:
        """Mark values as malformed."""
        self.failed |= mask

    def bytes_of(self, before: RowIds, size: int) -> Octets:
        """Return *size* bytes at each position, as rows."""
        reach = np.minimum(before, len(self.content) - max(size, _PAD)) if size > _PAD else before
        return self.content[reach[:, None] + np.arange(size)]

    def slices(self) -> tuple[Octets, RowIds]:
        """Return the contents of texts with their length before them, one behind the other, with offsets."""
        sizes = self.longs()
        wrong = (sizes < 0) | (sizes > self.ends - self.positions)
        if wrong.any():
            self.failed |= wrong
            sizes[wrong] = 0
        before = self.advance(sizes)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        indices = np.repeat(before - offsets[:-1], sizes) + np.arange(offsets[-1])
        return self.content[indices], offsets

    def some(self, mask: Mask) -> Cursors:
        """Return cursors for some of the values; `merge` brings them back."""
        part = Cursors.__new__(Cursors)
        part.texts, part.rows = self.texts, self.rows[mask]
        part.raw, part.content, part.ends = self.raw, self.content, self.ends[mask]
        part.positions, part.failed = self.positions[mask], self.failed[mask]
        return part

    def at(self, bounds: Bounds) -> Cursors:
        """Return cursors at skipped values."""
        begins, ends = bounds
        part = Cursors.__new__(Cursors)
        part.texts, part.rows = self.texts, np.zeros(len(begins), np.int64)
        part.raw, part.content, part.ends = self.raw, self.content, ends
        part.positions, part.failed = begins, np.zeros(len(begins), np.bool_)
        return part

    def merge(self, mask: Mask, part: Cursors) -> None:
        """Take over the positions and failures of *part*."""
        self.positions[mask] = part.positions
        self.failed[mask] = part.failed


ReadColumn: TypeAlias = Callable[[Cursors], Column]
"""Reads a value at each cursor."""


def column_reader(type_: AvroType) -> ReadColumn:
    """Return the reader of a column of this type."""
    nullable = nullable_of(type_)
    if nullable is not None:
        return _nullable(column_reader(nullable[0]), nullable[1])
    if type_.logical == "decimal":
        raw = _fixed(type_.size) if type_.kind == "fixed" else _bytes
        return _decimals(raw, type_.scale)
    if type_.kind == "record":
        return _records({field.name: column_reader(field.type) for field in type_.fields})
    if type_.kind == "enum":
        return _enum(type_.symbols)
    if type_.kind == "fixed":
        return _fixed(type_.size)
    read = _PRIMITIVES.get(type_.kind)
    return _one_by_one(reader_of(type_)) if read is None else _converted(read, type_)


def _one_by_one(read: Read) -> ReadColumn:
    """Return a reader of arrays, maps and other unions: each value by itself, between columns that are not."""

    def column(cursors: Cursors) -> Column:
        texts = [cursors.texts[row] for row in cursors.rows.tolist()]
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        values: NewColumn = []
        ends: list[int] = []
        for index, begin in enumerate((cursors.positions - cursors.ends + sizes).tolist()):
            try:
                value, end = read(texts[index], begin)
            except MalformedError:
                cursors.failed[index] = True
                value, end = None, begin
            values.append(value)
            ends.append(end)
        cursors.positions = cursors.ends - sizes + np.array(ends, np.int64)
        return values

    return column


def _decimals(raw: ReadColumn, scale: int) -> ReadColumn:
    def read(cursors: Cursors) -> Column:
        contents = raw(cursors)
        cursors.fail(np.fromiter((len(content) > MAX_DECIMAL for content in contents), np.bool_, len(contents)))
        return [decimal_of(content[:MAX_DECIMAL], scale) for content in contents]

    return read


def _converted(read: ReadColumn, type_: AvroType) -> ReadColumn:
    convert = conversion_of(type_)
    return read if convert is None else lambda cursors: list(map(convert, read(cursors)))


def _nullable(inner: ReadColumn, null: int) -> ReadColumn:
    def read(cursors: Cursors) -> Column:
        branches = cursors.longs()
        cursors.fail((branches < 0) | (branches > 1))
        present = branches == 1 - null
        count = int(np.count_nonzero(present))
        if count == len(present):
            return inner(cursors)
        if not count:
            return [None] * len(present)
        part = cursors.some(present)
        values = iter(inner(part))
        cursors.merge(present, part)
        return [next(values) if is_present else None for is_present in present.tolist()]

    return read


def _records(readers: dict[str, ReadColumn]) -> ReadColumn:
    names = tuple(readers)

    def read(cursors: Cursors) -> Column:
        if not names:
            return [{} for _ in range(len(cursors))]
        columns = [reader(cursors) for reader in readers.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    return read


def _enum(symbols: tuple[str, ...]) -> ReadColumn:
    def read(cursors: Cursors) -> Column:
        indices = cursors.longs()
        wrong = (indices < 0) | (indices >= len(symbols))
        if wrong.any():
            cursors.fail(wrong)
            indices[wrong] = 0
        return [symbols[index] for index in indices.tolist()]

    return read


def _fixed(size: int) -> ReadColumn:
    def read(cursors: Cursors) -> Column:
        before = cursors.advance(size)
        raw = cursors.content.data
        return [bytes(raw[at : at + size]) for at in before.tolist()]

    return read


def _longs(cursors: Cursors) -> Column:
    numbers: NewColumn = cursors.longs().tolist()
    return numbers


def _ints(cursors: Cursors) -> Column:
    numbers = cursors.longs()
    wrong = (numbers < -(1 << 31)) | (numbers >= 1 << 31)
    if wrong.any():
        cursors.fail(wrong)
        numbers[wrong] = 0
    column: NewColumn = numbers.tolist()
    return column


def _booleans(cursors: Cursors) -> Column:
    values = cursors.content[cursors.advance(1)]
    cursors.fail(values > 1)
    flags: NewColumn = (values == 1).tolist()
    return flags


def _floats(cursors: Cursors) -> Column:
    numbers: NewColumn = cursors.bytes_of(cursors.advance(4), 4).view("<f4").ravel().tolist()
    return numbers


def _doubles(cursors: Cursors) -> Column:
    numbers: NewColumn = cursors.bytes_of(cursors.advance(8), 8).view("<f8").ravel().tolist()
    return numbers


def _strings(cursors: Cursors) -> Column:
    content, offsets = cursors.slices()
    bounds = offsets.tolist()
    if not len(content) or content.max() < 0x80:
        text = content.tobytes().decode("ascii")
        return [text[begin:end] for begin, end in pairwise(bounds)]
    raw = content.tobytes()
    values: NewColumn = []
    for row, (begin, end) in enumerate(pairwise(bounds)):
        try:
            values.append(raw[begin:end].decode())
        except UnicodeDecodeError:
            cursors.failed[row] = True
            values.append("")
    return values


def _bytes(cursors: Cursors) -> Column:
    content, offsets = cursors.slices()
    raw = content.tobytes()
    return [raw[begin:end] for begin, end in pairwise(offsets.tolist())]


_PRIMITIVES: Final[dict[str, ReadColumn]] = {
    "boolean": _booleans,
    "int": _ints,
    "long": _longs,
    "float": _floats,
    "double": _doubles,
    "string": _strings,
    "bytes": _bytes,
}
