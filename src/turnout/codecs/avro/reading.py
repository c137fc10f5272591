"""Reader of one Avro value: exact and bounded; the reference of `turnout.codecs.avro.columns`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeAlias

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.codecs.avro.connect_schema import branch_name, connect_schema_of, decimal_of, is_map_entry, nullable_of
from turnout.codecs.avro.types import AvroType
from turnout.loops.avro import MAX_EMPTY_ITEMS
from turnout.records import Moment
from turnout.records.types import Convert, DynamicValue

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
