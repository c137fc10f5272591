"""Columns of Avro records: a loop finds and checks their fields, whose values are decoded where they are used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.codecs.avro.connect_schema import branch_name, is_map_entry, nullable_of
from turnout.codecs.avro.reading import MAX_DECIMAL, conversion_of, reader_of
from turnout.codecs.avro.types import AvroType
from turnout.loops import avro as loops
from turnout.records.spans import Bounds, EncodedColumn
from turnout.records.types import Column, Mask, Octets, RowIds

_CONVERTED: Final = frozenset({"date", "time-millis", "timestamp-millis"})
_NUMBERS: Final = frozenset({"int", "long"})
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
        self.numbers[begin : begin + 3] = self._numbers_of(type_)
        return node

    def _numbers_of(self, type_: AvroType) -> tuple[int, int, int]:
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
        self._stack = np.empty(loops.STACK_FIELDS * (type_.depth + 1), np.int64)
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
        stack = np.empty_like(self._stack)
        loops.find_fields(
            content, ends - sizes + start, ends, self._nodes, self._inner, self._fields, edges.ravel(), failed, stack
        )
        columns: dict[str, Column] = {
            name: EncodedColumn(form, raw, (edges[at], edges[at + 1]), partial(read, raw, content), nullable=has_null)
            for at, (name, form, read, has_null) in enumerate(self._columns)
        }
        return columns, failed.view(np.bool_)


def _has_null(type_: AvroType) -> bool:
    return type_.kind == "null" or any(branch.kind == "null" for branch in type_.inner if type_.kind == "union")


def _values_of(type_: AvroType) -> _ReadValues:
    """Return what decodes values that were checked."""
    inner, null = nullable_of(type_) or (type_, -1)
    if inner.kind in _NUMBERS:
        read: Callable[..., tuple[Column, NDArray[np.uint8]]] = partial(_numbers, null)
    elif inner.kind == "enum":
        read = partial(_symbols, inner.symbols, null)
    elif inner.kind in _PACKED:
        read = partial(_packed, _PACKED[inner.kind], null)
    elif inner.kind == "boolean":
        read = partial(_booleans, null)
    elif inner.kind in ("string", "bytes", "fixed"):
        read = partial(_contents, str if inner.kind == "string" else bytes, inner.kind != "fixed", null)
    else:
        value = reader_of(type_)
        return lambda raw, _, bounds: [value(raw, begin)[0] for begin in bounds[0].tolist()]
    convert = conversion_of(inner)

    def values(_: bytes, content: Octets, bounds: Bounds) -> Column:
        column, present = read(content, *map(np.ascontiguousarray, bounds))
        if present.all():
            return column if convert is None else list(map(convert, column))
        convert_one = convert or _same
        return [
            convert_one(value) if is_present else None
            for value, is_present in zip(column, present.tolist(), strict=True)
        ]

    return values


def _same(value: object) -> object:
    return value


def _numbers(null: int, content: Octets, begins: RowIds, ends: RowIds) -> tuple[Column, NDArray[np.uint8]]:
    numbers, present = np.empty(len(begins), np.int64), np.empty(len(begins), np.uint8)
    loops.read_longs(content, begins, ends, null, numbers, present)
    return numbers.tolist(), present


def _symbols(
    symbols: tuple[str, ...], null: int, content: Octets, begins: RowIds, ends: RowIds
) -> tuple[Column, NDArray[np.uint8]]:
    indices, present = _numbers(null, content, begins, ends)
    return [symbols[index] for index in indices], present


def _found(null: int, sized: bool, content: Octets, begins: RowIds, ends: RowIds) -> tuple[RowIds, NDArray[np.uint8]]:
    contents, present = np.empty(len(begins), np.int64), np.empty(len(begins), np.uint8)
    loops.find_contents(content, begins, ends, null, int(sized), contents, present)
    return contents, present


def _packed(code: str, null: int, content: Octets, begins: RowIds, ends: RowIds) -> tuple[Column, NDArray[np.uint8]]:
    size = int(code[-1])
    contents, present = _found(null, False, content, begins, ends)
    # Of a null it is any number.
    contents[present == 0] = 0
    padded = np.concatenate([content, np.zeros(size, np.uint8)]) if not present.all() else content
    return padded[contents[:, None] + np.arange(size)].view(code).ravel().tolist(), present


def _booleans(null: int, content: Octets, begins: RowIds, ends: RowIds) -> tuple[Column, NDArray[np.uint8]]:
    contents, present = _found(null, False, content, begins, ends)
    contents[present == 0] = begins[present == 0]
    return (content[contents] == 1).tolist(), present


def _contents(
    kind: type, sized: bool, null: int, content: Octets, begins: RowIds, ends: RowIds
) -> tuple[Column, NDArray[np.uint8]]:
    contents, present = _found(null, sized, content, begins, ends)
    raw = content.data
    edges = zip(contents.tolist(), ends.tolist(), strict=True)
    if kind is str:
        return [str(raw[begin:end], "utf-8") for begin, end in edges], present
    return [bytes(raw[begin:end]) for begin, end in edges], present
