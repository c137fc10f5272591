"""Columns of Avro records: a loop finds and checks their fields, whose values are decoded where they are used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from turnout.codecs.avro.connect_schema import branch_name, is_map_entry, nullable_of
from turnout.codecs.avro.reading import MAX_DECIMAL, conversion_of, reader_of
from turnout.codecs.avro.types import AvroType
from turnout.loops import avro as loops
from turnout.records.spans import Bounds, EncodedColumn
from turnout.records.types import Column, Mask, NewColumn, Octets, RowIds

_CONVERTED: Final = frozenset({"date", "time-millis", "timestamp-millis"})
_PACKED: Final = {"float": "<f4", "double": "<f8"}
_SIMPLE: Final = {
    "null": loops.NULL,
    "boolean": loops.BOOLEAN,
    "int": loops.INT,
    "long": loops.LONG,
    "string": loops.STRING,
}
_NEVER: Final = (loops.ENUM, 0, 0)
"""Node that no bytes are a value of: they are left to `turnout.codecs.avro.reading`, which raises the error."""

_ReadValues: TypeAlias = Callable[[bytes, Octets, Bounds], Column]
"""Decodes the values of a column in bytes, given as an array, too."""


def form_of(type_: AvroType) -> Hashable:
    """Return the form of a type's encoded values: fields of equal forms have equal bytes for equal values."""
    return "avro", _form_of(type_)


def _form_of(type_: AvroType) -> Hashable:
    if type_.kind == "record":
        return type_.kind, tuple((field.name, _form_of(field.type)) for field in type_.fields)
    if type_.kind == "union":
        nullable = nullable_of(type_)
        if nullable is not None:
            return "nullable", nullable[1], _form_of(nullable[0])
        return type_.kind, tuple((branch_name(branch), _form_of(branch)) for branch in type_.inner)
    if type_.inner:
        return type_.kind, is_map_entry(type_), _form_of(type_.inner[0])
    if type_.logical == "decimal":
        return type_.kind, type_.logical, type_.scale, type_.size
    return type_.kind, type_.logical if type_.logical in _CONVERTED else None, type_.symbols, type_.size


class _Nodes:
    """Nodes of types, as `turnout.loops.avro` has them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.inner: list[int] = []

    def add(self, type_: AvroType) -> int:
        """Add a type with its inner types; return its node."""
        node = len(self.numbers) // loops.NODE_FIELDS
        self.numbers += [0] * loops.NODE_FIELDS
        begin = node * loops.NODE_FIELDS
        self.numbers[begin : begin + 3] = self.numbers_of(type_)
        return node

    def numbers_of(self, type_: AvroType) -> tuple[int, int, int]:
        """Return the numbers of the node of a type, whose inner types are added."""
        kind = type_.kind
        if kind in ("record", "union"):
            members = [field.type for field in type_.fields] if kind == "record" else type_.inner
            nodes = [self.add(member) for member in members]
            self.inner += nodes
            return loops.RECORD if kind == "record" else loops.UNION, len(self.inner) - len(nodes), len(nodes)
        if kind in ("array", "map"):
            (item,) = type_.inner
            if kind == "array" and is_map_entry(type_) and not _is_hashable(item.fields[0].type):
                return _NEVER
            return (
                (loops.ARRAY, self.add(item), item.min_size)
                if kind == "array"
                else (loops.MAP, self.add(item), 1 + item.min_size)
            )
        is_decimal = type_.logical == "decimal"
        if kind == "bytes":
            return loops.BYTES, MAX_DECIMAL if is_decimal else -1, 0
        if kind == "enum":
            return loops.ENUM, len(type_.symbols), 0
        if kind == "fixed":
            return _NEVER if is_decimal and type_.size > MAX_DECIMAL else (loops.FIXED, type_.size, 0)
        return (loops.FIXED, int(_PACKED[kind][-1]), 0) if kind in _PACKED else (_SIMPLE[kind], 0, 0)


def _is_hashable(type_: AvroType) -> bool:
    nullable = nullable_of(type_)
    return (type_ if nullable is None else nullable[0]).kind not in ("record", "array", "map", "union")


class RecordReader:
    """Reader of many records of a type.

    Args:
        type_: the type.
    """

    def __init__(self, type_: AvroType) -> None:
        nodes = _Nodes()
        fields = [nodes.add(field.type) for field in type_.fields]
        self._nodes, self._inner, self._fields = (
            np.array(numbers, np.int64) for numbers in (nodes.numbers, nodes.inner, fields)
        )
        self._stack_size = loops.STACK_FIELDS * (type_.depth + 1)
        self._columns = [
            (field.name, form_of(field.type), _values_of(field.type), _has_null(field.type)) for field in type_.fields
        ]

    def read(self, texts: Sequence[bytes], start: int) -> tuple[dict[str, Column], Mask]:
        """Return the columns of the records, and the mask of texts that are none, in whose rows they are arbitrary.

        Args:
            texts: texts of the records.
            start: offset of each record in its text.
        """
        raw = b"".join(texts)
        content: Octets = np.frombuffer(raw, np.uint8)
        count = len(texts)
        sizes = np.fromiter(map(len, texts), np.int64, count)
        ends: RowIds = np.cumsum(sizes)
        edges = np.empty((len(self._fields) + 1, count), np.int64)
        failed = np.zeros(count, np.uint8)
        # A reader may be used by several threads.
        stack = np.empty(self._stack_size, np.int64)
        loops.find_fields(
            content, ends - sizes + start, ends, self._nodes, self._inner, self._fields, edges.ravel(), failed, stack
        )
        columns: dict[str, Column] = {
            name: EncodedColumn(form, raw, (edges[at], edges[at + 1]), partial(read, raw, content), nullable=has_null)
            for at, (name, form, read, has_null) in enumerate(self._columns)
        }
        return columns, failed.view(np.bool_)


def _has_null(type_: AvroType) -> bool:
    return type_.kind == "null" or (type_.kind == "union" and any(branch.kind == "null" for branch in type_.inner))


def _values_of(type_: AvroType) -> _ReadValues:
    """Return what decodes values that were checked."""
    inner, null = nullable_of(type_) or (type_, -1)
    make = _decoder(inner)
    if make is None:
        value = reader_of(type_)
        return lambda raw, _, bounds: [value(raw, begin)[0] for begin in bounds[0].tolist()]
    kind, *_ = _Nodes().numbers_of(inner)
    convert = conversion_of(inner)

    def values(_: bytes, content: Octets, bounds: Bounds) -> Column:
        begins, ends = map(np.ascontiguousarray, bounds)
        numbers, is_present = np.empty(len(begins), np.int64), np.empty(len(begins), np.uint8)
        loops.read_values(content, begins, ends, null, kind, numbers, is_present)
        if is_present.all():
            found = make(content, numbers, ends)
            return found if convert is None else list(map(convert, found))
        rows = np.flatnonzero(is_present)
        column: NewColumn = [None] * len(begins)
        found = make(content, numbers[rows], ends[rows])
        for row, value in zip(rows.tolist(), found if convert is None else map(convert, found), strict=True):
            column[row] = value
        return column

    return values


def _decoder(type_: AvroType) -> Callable[[Octets, RowIds, RowIds], NewColumn] | None:
    """Return what decodes the contents between offsets and ends, or the numbers there; None for nested values."""
    if type_.kind in ("int", "long"):
        return lambda _, numbers, __: numbers.tolist()
    if type_.kind == "enum":
        symbols = type_.symbols
        return lambda _, numbers, __: [symbols[number] for number in numbers.tolist()]
    if type_.kind == "boolean":
        return lambda content, offsets, _: (content[offsets] == 1).tolist()
    if type_.kind in _PACKED:
        return partial(_packed, _PACKED[type_.kind])
    if type_.kind in ("string", "bytes", "fixed"):
        return _texts if type_.kind == "string" else _contents
    return None


def _packed(code: str, content: Octets, offsets: RowIds, _ends: RowIds) -> NewColumn:
    numbers: NewColumn = content[offsets[:, None] + np.arange(int(code[-1]))].view(code).ravel().tolist()
    return numbers


def _texts(content: Octets, offsets: RowIds, ends: RowIds) -> NewColumn:
    raw = content.data
    return [str(raw[begin:end], "utf-8") for begin, end in zip(offsets.tolist(), ends.tolist(), strict=True)]


def _contents(content: Octets, offsets: RowIds, ends: RowIds) -> NewColumn:
    raw = content.data
    return [bytes(raw[begin:end]) for begin, end in zip(offsets.tolist(), ends.tolist(), strict=True)]
