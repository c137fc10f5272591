"""Readers of Avro: of one value, exact and bounded, and of columns of records.

Of columns, a loop finds and checks the fields, whose values are decoded where they are used; the reader of one value is
their reference.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.codecs.avro.connect_schema import branch_name, connect_schema_of, decimal_of, is_map_entry, nullable_of
from turnout.codecs.avro.types import AvroType
from turnout.loops import avro as loops
from turnout.loops.avro import MAX_EMPTY_ITEMS
from turnout.records import Moment
from turnout.records.spans import Bounds, EncodedColumn, joined_bytes
from turnout.records.types import Column, Convert, DynamicValue, Mask, NewColumn, Octets, RowIds

Read: TypeAlias = Callable[[bytes, int], tuple[DynamicValue, int]]
"""Reads a value at a position, and returns it with the position behind it."""

MAX_DECIMAL: Final = 400
"""Maximum number of bytes in a decimal: some 960 digits."""

_MAX_VARINT: Final = 10
_float = struct.Struct("<f").unpack_from
_double = struct.Struct("<d").unpack_from


class MalformedError(ValueError):
    """Raised when bytes are no value of a schema."""


def read_value(read: Read, text: bytes, start: int) -> DynamicValue:
    """Return the value that begins at *start* and ends with the text.

    Raises:
        MalformedError: it is no value of the schema, or something follows.
    """
    value, end = read(text, start)
    if end != len(text):
        raise MalformedError(f"expected the end after byte {end}, found {len(text) - end} bytes more")
    return value


def reader_of(type_: AvroType) -> Read:
    """Return the reader of values of a type, as its Connect schema has them."""
    if type_.kind == "record":
        return _record(type_)
    if type_.kind == "array":
        return _map_entries(type_) if is_map_entry(type_) else _array(type_)
    if type_.kind == "map":
        return _map(type_)
    if type_.kind == "union":
        return _union(type_)
    if type_.kind == "enum":
        return _enum(type_.symbols)
    if type_.kind == "fixed":
        return _converted(_fixed(type_.size), conversion_of(type_))
    return _converted(_PRIMITIVES[type_.kind], conversion_of(type_))


def conversion_of(type_: AvroType) -> Convert | None:
    """Return the conversion of a primitive value to its logical type; None if it is unchanged."""
    if type_.logical == "date":
        return lambda days: Moment(days * MILLISECONDS_PER_DAY)
    if type_.logical in ("time-millis", "timestamp-millis"):
        return Moment
    if type_.logical == "decimal":
        scale = type_.scale
        return lambda raw: _decimal(raw, scale)
    return None


def _decimal(raw: bytes, scale: int) -> Decimal:
    if len(raw) > MAX_DECIMAL:
        raise MalformedError(f"expected a decimal of at most {MAX_DECIMAL} bytes, found {len(raw)}")
    return decimal_of(raw, scale)


def _converted(read: Read, convert: Convert | None) -> Read:
    if convert is None:
        return read

    def converted(text: bytes, at: int) -> tuple[DynamicValue, int]:
        value, at = read(text, at)
        return convert(value), at

    return converted


def _long(text: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    for index in range(at, min(at + _MAX_VARINT, len(text))):
        byte = text[index]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return (number >> 1) ^ -(number & 1), index + 1
        shift += 7
    if len(text) - at < _MAX_VARINT:
        raise MalformedError(f"expected a number at byte {at}, found the end")
    raise MalformedError(f"expected a number of at most 64 bits at byte {at}")


def _int(text: bytes, at: int) -> tuple[int, int]:
    number, end = _long(text, at)
    if not -(1 << 31) <= number < 1 << 31:
        raise MalformedError(f"expected a number of 32 bits at byte {at}, found {number}")
    return number, end


def _boolean(text: bytes, at: int) -> tuple[bool, int]:
    if text[at : at + 1] not in (b"\0", b"\1"):
        raise MalformedError(f"expected 0 or 1 at byte {at}, found {text[at : at + 1].hex() or 'the end'}")
    return text[at] == 1, at + 1


def _number(unpack: Callable[[bytes, int], tuple[float, ...]], size: int) -> Read:
    def read(text: bytes, at: int) -> tuple[float, int]:
        if len(text) - at < size:
            raise MalformedError(f"expected {size} bytes at byte {at}, found {len(text) - at}")
        return unpack(text, at)[0], at + size

    return read


def _bytes(text: bytes, at: int) -> tuple[bytes, int]:
    size, start = _long(text, at)
    if not 0 <= size <= len(text) - start:
        raise MalformedError(f"expected a length of at most {len(text) - start} at byte {at}, found {size}")
    return text[start : start + size], start + size


def _string(text: bytes, at: int) -> tuple[str, int]:
    content, end = _bytes(text, at)
    try:
        return content.decode(), end
    except UnicodeDecodeError:
        raise MalformedError(f"expected text in UTF-8 at byte {at}") from None


def _null(_text: bytes, at: int) -> tuple[None, int]:
    return None, at


def _fixed(size: int) -> Read:
    def read(text: bytes, at: int) -> tuple[bytes, int]:
        if len(text) - at < size:
            raise MalformedError(f"expected {size} bytes at byte {at}, found {len(text) - at}")
        return text[at : at + size], at + size

    return read


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(text: bytes, at: int) -> tuple[str, int]:
        index, end = _long(text, at)
        if not 0 <= index < len(symbols):
            raise MalformedError(f"expected one of {len(symbols)} symbols at byte {at}, found number {index}")
        return symbols[index], end

    return read


def _record(type_: AvroType) -> Read:
    fields = [(field.name, reader_of(field.type)) for field in type_.fields]

    def read(text: bytes, at: int) -> tuple[dict[str, DynamicValue], int]:
        value = {}
        for name, field in fields:
            value[name], at = field(text, at)
        return value, at

    return read


def _union(type_: AvroType) -> Read:
    branches = [reader_of(branch) for branch in type_.inner]
    struct_names: list[str] | None = None
    if nullable_of(type_) is None and sum(branch.kind != "null" for branch in type_.inner) > 1:
        struct_names = [field.name for field in connect_schema_of(type_).fields]

    def read(text: bytes, at: int) -> tuple[DynamicValue, int]:
        index, start = _long(text, at)
        if not 0 <= index < len(branches):
            raise MalformedError(f"expected one of {len(branches)} branches at byte {at}, found number {index}")
        value, end = branches[index](text, start)
        if struct_names is None or type_.inner[index].kind == "null":
            return value, end
        chosen = branch_name(type_.inner[index])
        return {name: value if name == chosen else None for name in struct_names}, end

    return read


def _block_count(text: bytes, at: int, min_size: int, previous_items: int) -> tuple[int, int]:
    """Return the number of items in a block, and the position of the first."""
    count, start = _long(text, at)
    if count < 0:
        count = -count
        _, start = _long(text, start)
    most = (len(text) - start) // min_size if min_size else MAX_EMPTY_ITEMS - previous_items
    if count > most:
        raise MalformedError(f"expected at most {most} items at byte {at}, found {count}")
    return count, start


def _array(type_: AvroType) -> Read:
    item, size = reader_of(type_.inner[0]), type_.inner[0].min_size

    def read(text: bytes, at: int) -> tuple[list[DynamicValue], int]:
        values: list[DynamicValue] = []
        while True:
            count, at = _block_count(text, at, size, len(values))
            if not count:
                return values, at
            for _ in range(count):
                value, at = item(text, at)
                values.append(value)

    return read


def _map(type_: AvroType) -> Read:
    item, size = reader_of(type_.inner[0]), 1 + type_.inner[0].min_size

    def read(text: bytes, at: int) -> tuple[dict[str, DynamicValue], int]:
        values: dict[str, DynamicValue] = {}
        while True:
            count, at = _block_count(text, at, size, 0)
            if not count:
                return values, at
            for _ in range(count):
                key, at = _string(text, at)
                values[key], at = item(text, at)

    return read


def _map_entries(type_: AvroType) -> Read:
    entries = _array(type_)

    def read(text: bytes, at: int) -> tuple[dict[DynamicValue, DynamicValue], int]:
        values, end = entries(text, at)
        try:
            return {entry["key"]: entry["value"] for entry in values}, end
        except TypeError:
            raise MalformedError(f"expected keys of a map that are no lists and no records at byte {at}") from None

    return read


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _number(_float, 4),
    "double": _number(_double, 8),
    "bytes": _bytes,
    "string": _string,
}


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
            (field.name, form_of(field.type), _values_of(field.type), _has_null(field.type), _null_of_text(field.type))
            for field in type_.fields
        ]

    def read(self, texts: Sequence[bytes], start: int) -> tuple[dict[str, Column], Mask]:
        """Return the columns of the records, and the mask of texts that are none, in whose rows they are arbitrary.

        Args:
            texts: texts of the records.
            start: offset of each record in its text.
        """
        raw, offsets = joined_bytes(texts)
        content: Octets = np.frombuffer(raw, np.uint8)
        count = len(texts)
        edges = np.empty((len(self._fields) + 1, count), np.int64)
        failed = np.zeros(count, np.uint8)
        # A reader may be used by several threads.
        stack = np.empty(self._stack_size, np.int64)
        loops.find_fields(
            content,
            offsets[:-1] + start,
            offsets[1:],
            self._nodes,
            self._inner,
            self._fields,
            edges.ravel(),
            failed,
            stack,
        )
        columns: dict[str, Column] = {
            name: EncodedColumn(
                form,
                raw,
                (edges[at], edges[at + 1]),
                partial(read, raw, content),
                nullable=has_null,
                find_texts=None if null is None else partial(_text_bounds, content, null),
            )
            for at, (name, form, read, has_null, null) in enumerate(self._columns)
        }
        return columns, failed.view(np.bool_)


def _has_null(type_: AvroType) -> bool:
    return type_.kind == "null" or (type_.kind == "union" and any(branch.kind == "null" for branch in type_.inner))


def _null_of_text(type_: AvroType) -> int | None:
    """Return the branch of nulls of a type of texts, -1 if it has none; None of other types."""
    inner, null = nullable_of(type_) or (type_, -1)
    return null if inner.kind == "string" else None


def _text_bounds(content: Octets, null: int, bounds: Bounds) -> Bounds:
    """Return where checked texts begin and end; nulls are empty."""
    begins, ends = map(np.ascontiguousarray, bounds)
    texts, is_present = np.empty(len(begins), np.int64), np.empty(len(begins), np.uint8)
    loops.read_values(content, begins, ends, null, loops.STRING, texts, is_present)
    return texts, np.where(is_present, ends, texts)


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
