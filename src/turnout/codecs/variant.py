"""Spark's VARIANT in bytes: schemaless values read from it, and values of any kind written in it.

The format is Parquet's: a value refers to the names of its objects' fields by number, and the metadata lists these
names. JSON's fractions are decimals in a variant that Spark parsed and doubles in Connect, so decimals are read as
doubles; dates and timestamps are read in milliseconds, which is what Connect has.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import timedelta
from decimal import Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Final

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.errors import RecordError
from turnout.records import BigInt, Float32, Moment, Schema, Struct
from turnout.records.schema import DATE, DECIMAL, DIGITS, TIME
from turnout.records.types import DynamicValue, Value

_MILLI: Final = timedelta(milliseconds=1) // timedelta(microseconds=1)
_SHORT: Final = 63
_EXACT: Final = Context(prec=1000)

_PRIMITIVE, _SHORT_TEXT, _OBJECT = 0, 1, 2
_NULL, _TRUE, _FALSE, _DOUBLE, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ = 0, 1, 2, 7, 11, 12, 13
_FLOAT, _BINARY, _TEXT, _UUID = 14, 15, 16, 20
_INTEGERS: Final = {3: 1, 4: 2, 5: 4, 6: 8}
_DECIMALS: Final = {8: 4, 9: 8, 10: 16}
_DECIMAL_TYPES: Final = ((9, 8, 4), (18, 9, 8), (DIGITS, 10, 16))
"""Digits that fit, type, bytes."""

_SMALLEST = tuple((1 << (8 * size - 1), type_, size) for type_, size in _INTEGERS.items())


def decode(value: bytes, metadata: bytes) -> Value:
    """Return the schemaless value that a variant holds; JSON's null is None.

    Raises:
        RecordError: when it is no variant, or of a type that Connect has nothing for.
    """
    try:
        return _VariantReader(value, _names_of(metadata)).at(0)
    except (IndexError, ValueError, struct.error, RecursionError) as error:
        raise RecordError(f"the variant cannot be read: {error}") from error


@lru_cache(maxsize=4096)
def _names_of(metadata: bytes) -> tuple[str, ...]:
    """Return the names in a variant's metadata; cached, as the variants of a frame often have the same metadata."""
    size = (metadata[0] >> 6) + 1
    starts = _numbers(metadata, 1 + size, size, _uint(metadata, 1, size) + 1)
    texts = metadata[1 + size * (len(starts) + 1) :]
    return tuple(texts[start:end].decode() for start, end in pairwise(starts))


def _uint(data: bytes, at: int, size: int) -> int:
    return data[at] if size == 1 else int.from_bytes(data[at : at + size], "little")


def _bytes(data: bytes, at: int, size: int) -> bytes:
    body = data[at : at + size]
    if len(body) < size:
        raise IndexError("it is cut off")
    return body


def _numbers(data: bytes, at: int, size: int, count: int) -> list[int]:
    if size == 1:
        return list(data[at : at + count])
    return [int.from_bytes(data[offset : offset + size], "little") for offset in range(at, at + count * size, size)]


class _VariantReader:
    """Reads the values of one variant."""

    __slots__ = ("_data", "_names")

    def __init__(self, data: bytes, names: tuple[str, ...]) -> None:
        self._data = data
        self._names = names

    def at(self, at: int) -> Value:
        """Return the value at a byte position."""
        head = self._data[at]
        basic, rest = head & 3, head >> 2
        if basic == _PRIMITIVE:
            return self._primitive(rest, at + 1)
        if basic == _SHORT_TEXT:
            return _bytes(self._data, at + 1, rest).decode()
        return self._object(rest, at + 1) if basic == _OBJECT else self._array(rest, at + 1)

    def _primitive(self, type_: int, at: int) -> Value:
        data = self._data
        if type_ <= _FALSE:
            return None if type_ == _NULL else type_ == _TRUE
        if type_ in _INTEGERS:
            return int.from_bytes(_bytes(data, at, _INTEGERS[type_]), "little", signed=True)
        if type_ == _DOUBLE:
            number: float = struct.unpack_from("<d", data, at)[0]
            return number
        if type_ in _DECIMALS:
            return self._decimal(at, _DECIMALS[type_])
        if type_ in (_BINARY, _TEXT):
            body = _bytes(data, at + 4, _uint(data, at, 4))
            return body.decode() if type_ == _TEXT else body
        if type_ == _DATE:
            return Moment(struct.unpack_from("<i", data, at)[0] * MILLISECONDS_PER_DAY)
        if type_ in (_TIMESTAMP, _TIMESTAMP_NTZ):
            return Moment(struct.unpack_from("<q", data, at)[0] // _MILLI)
        if type_ == _FLOAT:
            return Float32(struct.unpack_from("<f", data, at)[0])
        if type_ == _UUID:
            digits = _bytes(data, at, 16).hex()
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        raise RecordError(f"the variant holds a value of type {type_}, which Connect does not have")

    def _decimal(self, at: int, size: int) -> float | int:
        scale = self._data[at]
        unscaled = int.from_bytes(_bytes(self._data, at + 1, size), "little", signed=True)
        if scale:
            return float(Decimal(unscaled).scaleb(-scale, _EXACT))
        return unscaled if -(1 << 63) <= unscaled < 1 << 63 else BigInt(unscaled)

    def _object(self, rest: int, at: int) -> dict[str, Value]:
        offset_size, id_size, count_size = (rest & 3) + 1, (rest >> 2 & 3) + 1, 4 if rest >> 4 & 1 else 1
        count = _uint(self._data, at, count_size)
        ids = _numbers(self._data, at + count_size, id_size, count)
        offsets_at = at + count_size + count * id_size
        offsets = _numbers(self._data, offsets_at, offset_size, count)
        base = offsets_at + (count + 1) * offset_size
        return {self._names[number]: self.at(base + offset) for number, offset in zip(ids, offsets, strict=True)}

    def _array(self, rest: int, at: int) -> list[Value]:
        offset_size, count_size = (rest & 3) + 1, 4 if rest >> 2 & 1 else 1
        count = _uint(self._data, at, count_size)
        offsets = _numbers(self._data, at + count_size, offset_size, count)
        base = at + count_size + (count + 1) * offset_size
        return [self.at(base + offset) for offset in offsets]


def encode(value: DynamicValue, schema: Schema | None = None) -> tuple[bytes, bytes]:
    """Return a value, with its schema or schemaless, as a variant: its value and its metadata.

    A map whose keys are not all strings is an array of pairs, as JsonConverter writes it.

    Raises:
        RecordError: unsupported by variants: numbers of more than 38 digits, dates out of its range.
    """
    writer = _Writer()
    try:
        body = writer.value(value, schema)
        return body, _metadata_of(tuple(writer.ids))
    except (OverflowError, UnicodeEncodeError, RecursionError, struct.error) as error:
        raise RecordError(f"a variant cannot hold the value: {error}") from error


@lru_cache(maxsize=4096)
def _metadata_of(names: tuple[str, ...]) -> bytes:
    texts = [name.encode() for name in names]
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    size = _size_of(max(ends[-1], len(names)))
    return bytes([1 | size - 1 << 6]) + len(names).to_bytes(size, "little") + _packed(ends, size) + b"".join(texts)


@lru_cache(maxsize=4096)
def _order_of(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the order that an object's fields must have: that of Java's strings."""
    return tuple(sorted(range(len(names)), key=lambda at: names[at].encode("utf-16-be", "surrogatepass")))


def _size_of(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _packed(numbers: list[int], size: int) -> bytes:
    return bytes(numbers) if size == 1 else b"".join(number.to_bytes(size, "little") for number in numbers)


class _Writer:
    """Writes one variant.

    Attributes:
        ids: the names of fields so far, with their numbers.
    """

    __slots__ = ("ids",)

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def value(self, value: DynamicValue, schema: Schema | None) -> bytes:
        """Return the bytes of a value."""
        if value is None:
            return _primitive(_NULL)
        if isinstance(value, str):
            return _encoded_text(value)
        if isinstance(value, bool):
            return _primitive(_TRUE if value else _FALSE)
        if isinstance(value, Moment):
            return _moment(value, schema)
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            single = isinstance(value, Float32) or (schema is not None and schema.type == "float32")
            return (
                _primitive(_FLOAT, struct.pack("<f", value))
                if single
                else _primitive(_DOUBLE, struct.pack("<d", value))
            )
        if isinstance(value, Mapping):
            return self._mapping(value, schema)
        if isinstance(value, list | tuple):
            inner = schema.values if schema is not None else None
            return _container([self.value(item, inner) for item in value])
        if isinstance(value, Struct):
            return self._mapping(value.fields, value.schema)
        if isinstance(value, Decimal):
            return _decimal(value, schema)
        body = bytes(value)
        return _primitive(_BINARY, struct.pack("<I", len(body)) + body)

    def _mapping(self, value: Mapping[DynamicValue, DynamicValue], schema: Schema | None) -> bytes:
        if schema is not None and schema.type == "struct":
            return self._object(
                {field.name: self.value(value.get(field.name), field.schema) for field in schema.fields}
            )
        keys, inner = (None, None) if schema is None else (schema.keys, schema.values)
        if all(isinstance(key, str) for key in value):
            return self._object({key: self.value(item, inner) for key, item in value.items()})
        return _container([_container([self.value(key, keys), self.value(item, inner)]) for key, item in value.items()])

    def _object(self, fields: dict[str, bytes]) -> bytes:
        names, bodies = tuple(fields), list(fields.values())
        order = _order_of(names)
        ids = [self.ids.setdefault(names[at], len(self.ids)) for at in order]
        return _container([bodies[at] for at in order], ids)


def _primitive(type_: int, body: bytes = b"") -> bytes:
    return bytes([type_ << 2]) + body


def _encoded_text(text: str) -> bytes:
    body = text.encode()
    if len(body) <= _SHORT:
        return bytes([len(body) << 2 | _SHORT_TEXT]) + body
    return _primitive(_TEXT, struct.pack("<I", len(body)) + body)


def _integer(number: int) -> bytes:
    """Encode an integer in the fewest bytes that Spark uses for it; as a decimal if it has more than 64 bits."""
    for limit, type_, size in _SMALLEST:
        if -limit <= number < limit:
            return _primitive(type_, number.to_bytes(size, "little", signed=True))
    return _unscaled(number, 0)


def _moment(moment: int, schema: Schema | None) -> bytes:
    logical = schema.logical if schema is not None else None
    if logical == TIME:
        return _integer(int(moment))
    if logical == DATE:
        return _primitive(_DATE, struct.pack("<i", moment // MILLISECONDS_PER_DAY))
    return _primitive(_TIMESTAMP, struct.pack("<q", moment * _MILLI))


def _decimal(number: Decimal, schema: Schema | None) -> bytes:
    scale = schema.scale if schema is not None and schema.logical == DECIMAL else None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise RecordError(f"a variant cannot hold the number {number}")
    scale = max(-exponent, 0) if scale is None else scale
    if not 0 <= scale <= DIGITS:
        raise RecordError(f"a variant cannot hold a number with {scale} digits behind the point")
    return _unscaled(int(number.scaleb(scale, _EXACT)), scale)


def _unscaled(number: int, scale: int) -> bytes:
    for digits, type_, size in _DECIMAL_TYPES:
        if scale <= digits and abs(number) < 10**digits:
            return _primitive(type_, bytes([scale]) + number.to_bytes(size, "little", signed=True))
    raise RecordError(f"a variant cannot hold a number of more than {DIGITS} digits")


def _container(bodies: list[bytes], ids: list[int] | None = None) -> bytes:
    """Return an array, or with *ids* an object, of these values."""
    offsets = [0]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    large = len(bodies) > 0xFF
    offset_size = _size_of(offsets[-1])
    count = len(bodies).to_bytes(4 if large else 1, "little")
    if ids is None:
        head = (large << 2 | offset_size - 1) << 2 | 3
        listed = b""
    else:
        id_size = _size_of(max(ids, default=0))
        head = (large << 4 | id_size - 1 << 2 | offset_size - 1) << 2 | _OBJECT
        listed = _packed(ids, id_size)
    return b"".join((bytes([head]), count, listed, _packed(offsets, offset_size), *bodies))
