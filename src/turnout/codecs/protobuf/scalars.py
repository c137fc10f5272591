"""Columns of single values to Protobuf's bytes, and messages that are Connect's logical types, read and written.

Each value is a piece with its tag before it. The logical types are Timestamp, Date, TimeOfDay and Decimal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final, TypeAlias

import numpy as np
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.varint import ONE_BYTE_VARINTS, varint, zigzag_varint
from turnout.codecs.json_nodes import EXACT, LARGEST, day_of
from turnout.codecs.protobuf.descriptors import DATE, DECIMAL, TIME_OF_DAY
from turnout.errors import RecordError
from turnout.loops import times
from turnout.loops.protobuf import FIRST_SECOND, LAST_SECOND, NANOS_PER_MILLI
from turnout.records import Moment
from turnout.records.spans import Slices
from turnout.records.types import Column, DynamicValue, Offsets

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_BITS: Final = (1 << 64) - 1


def signed_varint(number: int) -> bytes:
    """Return the varint of a signed number of up to 64 bits, in two's complement.

    >>> len(signed_varint(-1))
    10
    """
    return varint(number & _BITS)


def tag(number: int, wire_type: int) -> bytes:
    r"""Return the tag of a field.

    >>> tag(1, LENGTH)
    b'\n'
    """
    return varint(number << 3 | wire_type)


def delimited(prefix: bytes, body: bytes) -> bytes:
    """Return bytes with their length before them, behind the tag *prefix*."""
    length = len(body)
    return prefix + (ONE_BYTE_VARINTS[length] if length < 128 else varint(length)) + body


Pieces: TypeAlias = list[bytes]

WriteColumn: TypeAlias = Callable[[Column], Pieces]
"""Writes values, none of them null; raises `ValueError` or `TypeError` where one does not fit."""

_KINDS: Final = FieldDescriptor
WIRE_TYPES: Final = {
    **dict.fromkeys(range(1, 19), VARINT),
    **dict.fromkeys((_KINDS.TYPE_DOUBLE, _KINDS.TYPE_FIXED64, _KINDS.TYPE_SFIXED64), FIXED64),
    **dict.fromkeys((_KINDS.TYPE_FLOAT, _KINDS.TYPE_FIXED32, _KINDS.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((_KINDS.TYPE_STRING, _KINDS.TYPE_BYTES, _KINDS.TYPE_MESSAGE), LENGTH),
}
"""Type of a field → type on the wire."""

_ONE_BYTE: Final = 128
"""Lengths below take one byte."""

_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_INTEGERS: Final = {
    _KINDS.TYPE_INT32: (*_INT32, signed_varint),
    _KINDS.TYPE_INT64: (*_INT64, signed_varint),
    _KINDS.TYPE_SINT32: (*_INT32, zigzag_varint),
    _KINDS.TYPE_SINT64: (*_INT64, zigzag_varint),
    # An int64 of Connect holds them; above its middle, those of 64 bits are negative there, as in Java.
    _KINDS.TYPE_UINT32: (0, 2**32 - 1, signed_varint),
    _KINDS.TYPE_UINT64: (-(2**63), 2**64 - 1, signed_varint),
    _KINDS.TYPE_SFIXED32: (*_INT32, struct.Struct("<i").pack),
    _KINDS.TYPE_SFIXED64: (*_INT64, struct.Struct("<q").pack),
    _KINDS.TYPE_FIXED32: (0, 2**32 - 1, struct.Struct("<I").pack),
    _KINDS.TYPE_FIXED64: (-(2**63), 2**64 - 1, lambda value: struct.pack("<Q", value & (2**64 - 1))),
}
"""Type of a field → its least and its greatest value, and what writes one."""


def scalar_writer(kind: int, prefix: bytes, *, omit_default: bool) -> WriteColumn:
    """Return the writer of a scalar type.

    Args:
        kind: the type of the field, as `FieldDescriptor` numbers it.
        prefix: the tag, or nothing within a packed list.
        omit_default: whether a zero, an empty text and false are not written at all.
    """
    if kind in _INTEGERS:
        return _integers(*_INTEGERS[kind], prefix, omit_default=omit_default)
    if kind in (_KINDS.TYPE_DOUBLE, _KINDS.TYPE_FLOAT):
        return _floats("<f8" if kind == _KINDS.TYPE_DOUBLE else "<f4", prefix, omit_default=omit_default)
    if kind == _KINDS.TYPE_BOOL:
        return _booleans(prefix, omit_default=omit_default)
    return _texts(_utf8 if kind == _KINDS.TYPE_STRING else _bytes, prefix, omit_default=omit_default)


def by_distinct(write: Callable[[object], bytes]) -> WriteColumn:
    """Return the writer of a column that writes each distinct value once."""

    def column(values: Column) -> Pieces:
        pieces = {value: write(value) for value in set(values)}
        return list(map(pieces.__getitem__, values))

    return column


def _integers(
    least: int, greatest: int, write: Callable[[int], bytes], prefix: bytes, *, omit_default: bool
) -> WriteColumn:
    def piece(value: DynamicValue) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
            raise ValueError(f"expected an integer from {least} to {greatest}, found {value!r}")
        return b"" if omit_default and value == 0 else prefix + write(value)

    def column(values: Column) -> Pieces:
        distinct = set(values)
        if {int}.issuperset(map(type, distinct)) and distinct and least <= min(distinct) <= max(distinct) <= greatest:
            pieces = {value: prefix + write(value) for value in distinct}
            if omit_default and 0 in pieces:
                pieces[0] = b""
        else:
            pieces = {value: piece(value) for value in distinct}
        return list(map(pieces.__getitem__, values))

    return column


def _floats(form: str, prefix: bytes, *, omit_default: bool) -> WriteColumn:
    size = int(form[-1])
    head = np.frombuffer(prefix, np.uint8)
    width = len(prefix) + size

    def column(values: Column) -> Pieces:
        if not {float, int}.issuperset(map(type, values)):
            wrong = next(value for value in values if not isinstance(value, float | int) or isinstance(value, bool))
            raise ValueError(f"expected a number, found {wrong!r}")
        with np.errstate(over="ignore"):
            numbers = np.array(values, np.float64).astype(form)
        octets = np.empty((len(numbers), width), np.uint8)
        octets[:, : len(prefix)] = head
        octets[:, len(prefix) :] = numbers.view(np.uint8).reshape(-1, size)
        pieces: Pieces = octets.view(f"V{width}").ravel().tolist()
        if omit_default:
            # Zero by its bits: -0.0 is written.
            for at in np.flatnonzero(numbers.view(f"<u{size}") == 0).tolist():
                pieces[at] = b""
        return pieces

    return column


def _booleans(prefix: bytes, *, omit_default: bool) -> WriteColumn:
    pieces: dict[Hashable, bytes] = {True: prefix + b"\1", False: b"" if omit_default else prefix + b"\0"}

    def column(values: Column) -> Pieces:
        wrong = [value for value in values if value is not True and value is not False]
        if wrong:
            raise ValueError(f"expected true or false, found {wrong[0]!r}")
        return list(map(pieces.__getitem__, values))

    return column


def _texts(read: Callable[[DynamicValue], bytes], prefix: bytes, *, omit_default: bool) -> WriteColumn:
    heads = [prefix + bytes((size,)) for size in range(_ONE_BYTE)]
    empty = b"" if omit_default else heads[0]

    def each(values: Iterable[DynamicValue]) -> Pieces:
        bodies = map(read, values)
        return [
            empty if not body else heads[len(body)] + body if len(body) < _ONE_BYTE else delimited(prefix, body)
            for body in bodies
        ]

    def column(values: Column) -> Pieces:
        sample = values[:64]
        distinct = set(values) if len(set(sample)) < len(sample) else ()
        if not distinct or 2 * len(distinct) > len(values):
            return each(values)
        pieces = dict(zip(distinct, each(distinct), strict=True))
        return list(map(pieces.__getitem__, values))

    return column


def _utf8(value: DynamicValue) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, found {value!r}")  # noqa: TRY004 - reported like every other error here
    return value.encode()


def _bytes(value: DynamicValue) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(f"expected bytes, found {value!r}")  # noqa: TRY004 - likewise
    return bytes(value)


def enum_writer(enum: EnumDescriptor, unknown_prefix: str, prefix: bytes, *, omit_default: bool) -> WriteColumn:
    """Return the writer of an enum: of names, of numbers, and of the texts of numbers without a name."""
    numbers = {value.name: value.number for value in enum.values}

    def piece(value: DynamicValue) -> bytes:
        number = numbers.get(value) if isinstance(value, str) else value
        if isinstance(value, str) and number is None and value.startswith(unknown_prefix):
            digits = value.removeprefix(unknown_prefix)
            number = int(digits) if digits.lstrip("-").isdecimal() and len(digits) < 12 else None
        if not isinstance(number, int) or isinstance(number, bool) or not _INT32[0] <= number <= _INT32[1]:
            raise ValueError(f"expected a value of the enum {enum.full_name}, found {value!r}")
        return b"" if omit_default and number == 0 else prefix + signed_varint(number)

    return by_distinct(piece)


TIMESTAMP: Final = "google.protobuf.Timestamp"

_MAX_BYTES: Final = LARGEST * 5 // 12
"""Bytes of a decimal's number; more have more digits than `LARGEST`."""


def _read_timestamp(message: Any) -> Moment:
    seconds, nanos = message.seconds, message.nanos
    if not (FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanos < 1000 * NANOS_PER_MILLI):
        raise RecordError(
            f"expected a Timestamp of the years 1 to 9999, found {seconds} seconds and {nanos} nanoseconds"
        )
    return Moment(seconds * 1000 + nanos // NANOS_PER_MILLI)


def _read_date(message: Any) -> Moment:
    try:
        return day_of(date(message.year, message.month, message.day))
    except (ValueError, OverflowError):
        found = f"{message.year}-{message.month}-{message.day}"
        raise RecordError(f"expected a Date of the years 1 to 9999, found {found}") from None


def _read_time(message: Any) -> Moment:
    hours, minutes, seconds, nanos = message.hours, message.minutes, message.seconds, message.nanos
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < 1000 * NANOS_PER_MILLI):
        raise RecordError(f"expected a TimeOfDay, found {hours}:{minutes}:{seconds} and {nanos} nanoseconds")
    return Moment(((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // NANOS_PER_MILLI)


def _read_decimal(message: Any) -> Decimal:
    value, scale, precision = message.value, message.scale, message.precision
    if len(value) > _MAX_BYTES or abs(scale) > LARGEST:
        raise RecordError(
            f"expected a Decimal of at most {LARGEST:,} digits, found {len(value):,} bytes of the scale {scale}"
        )
    number = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, EXACT)
    if 0 < precision <= LARGEST:
        return Context(prec=precision, rounding=ROUND_HALF_UP, Emax=EXACT.Emax, Emin=EXACT.Emin).plus(number)
    return number


READERS: Final[Mapping[str, Callable[[object], Moment | Decimal]]] = {
    TIMESTAMP: _read_timestamp,
    DATE: _read_date,
    TIME_OF_DAY: _read_time,
    DECIMAL: _read_decimal,
}
"""Full name of the message → its value."""


def timestamp_slices(moments: Offsets, prefix: bytes) -> Slices | None:
    """Return the Timestamps of a column of milliseconds; None where one cannot be written."""
    out = np.empty(len(moments) * (len(prefix) + times.MAX_TIMESTAMP), np.uint8)
    offsets = np.empty(len(moments) + 1, np.int64)
    if times.write_timestamps(moments, np.frombuffer(prefix, np.uint8), out, offsets):
        return None
    return out[: offsets[-1]].tobytes(), (offsets[:-1], offsets[1:])


def _write_timestamp(moment: object) -> bytes:
    second, milli = divmod(_millis(moment), 1000)
    if not FIRST_SECOND <= second <= LAST_SECOND:
        raise ValueError(f"expected a time of the years 1 to 9999, found {second * 1000} milliseconds since 1970")
    return _numbers(second, milli * NANOS_PER_MILLI)


def _write_date(moment: object) -> bytes:
    days, rest = divmod(_millis(moment), MILLISECONDS_PER_DAY)
    if rest:
        raise ValueError(f"a Date has no time of day, found {moment} milliseconds since 1970")
    try:
        day = date(1970, 1, 1) + timedelta(days=days)
    except OverflowError:
        raise ValueError(f"expected a date of the years 1 to 9999, found {moment} milliseconds since 1970") from None
    return _numbers(day.year, day.month, day.day)


def _write_time(moment: object) -> bytes:
    millis = _millis(moment)
    if not 0 <= millis < MILLISECONDS_PER_DAY:
        raise ValueError(f"a Time is within a day, found {moment} milliseconds since 1970")
    seconds, millis = divmod(millis, 1000)
    return _numbers(seconds // 3600, seconds // 60 % 60, seconds % 60, millis * NANOS_PER_MILLI)


def _write_decimal(value: object) -> bytes:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise ValueError(f"expected a decimal, found {value!r}")
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > LARGEST or abs(exponent) > LARGEST:
        raise ValueError(f"expected a decimal of at most {LARGEST:,} digits")
    number = int(value.scaleb(-exponent, EXACT))
    unscaled = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    return delimited(b"\x0a", unscaled) + _numbers(0, len(digits), -exponent)


def _millis(moment: object) -> int:
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise ValueError(f"expected a time, found {moment!r}")  # noqa: TRY004 - reported like every other error here
    return int(moment)


def _numbers(*numbers: int) -> bytes:
    """Encode a message whose fields 1, 2, … are these numbers, without those that are 0."""
    return b"".join(bytes((number << 3,)) + signed_varint(value) for number, value in enumerate(numbers, 1) if value)


WRITERS: Final[Mapping[str, Callable[[object], bytes]]] = {
    TIMESTAMP: _write_timestamp,
    DATE: _write_date,
    TIME_OF_DAY: _write_time,
    DECIMAL: _write_decimal,
}
"""Full name of the message → its bytes; raises `ValueError` with the expected form."""
