"""Times and numbers of JSON: columns of 64 bits read from strings, and written."""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int64Buffer, Int64s, compiled
from turnout.loops.texts import _copy

MAX_NUMBER: Final = 26
"""Number of bytes of the longest text of a number or time."""

_LEAST: Final = -(2**63)
_DAY: Final = 86_400_000
_ERA: Final = 146_097
_TO_1970: Final = 719_468
"""Days from the first of March of the year 0 to 1970, and those of 400 years."""

_FIRST_MILLI: Final = -62_135_596_800_000
_LAST_MILLI: Final = 253_402_300_800_000
_FIRST_YEAR: Final = 1583
"""The year from which on Java's calendar is that of ISO 8601; and what years have four digits, from 1 to 9999."""

_MAX_DIGITS: Final = 18

MAX_VARINT: Final = 10
"""Number of bytes of the longest number of 64 bits."""

MAX_TIMESTAMP: Final = 18
"""Number of bytes of the longest Timestamp with its length."""

_62_BITS: Final = 2**62 - 1
_63_BITS: Final = 2**63 - 1


@compiled
def write_numbers(numbers: Int64s, are_times: bool, out: ByteBuffer, spans: Int64Buffer) -> int:
    """Write integers, or times as strings of ISO 8601.

    Args:
        numbers: the integers, or milliseconds since 1970.
        are_times: whether they are times.
        out: their texts, one behind another: `MAX_NUMBER` bytes for each.
        spans: begin of each text; in the other half its end.

    Returns:
        The number of bytes; -1 if one is undecided: a year that has not four digits, and the least number.
    """
    count = len(numbers)
    at = 0
    for index in range(count):
        spans[index] = at
        number = numbers[index]
        if are_times:
            if not _FIRST_MILLI <= number < _LAST_MILLI:
                return -1
            days = number // _DAY
            milli = number - days * _DAY
            days += _TO_1970
            era = days // _ERA
            days -= era * _ERA
            year = (days - days // 1460 + days // 36524 - days // 146096) // 365
            days -= 365 * year + year // 4 - year // 100
            month = (5 * days + 2) // 153
            days -= (153 * month + 2) // 5
            month += 3 if month < 10 else -9
            year += era * 400 + (1 if month <= 2 else 0)
            out[at] = 34
            _put(out, at + 1, at + 5, year, 45)
            _put(out, at + 6, at + 8, month, 45)
            _put(out, at + 9, at + 11, days + 1, 84)
            _put(out, at + 12, at + 14, milli // 3_600_000, 58)
            _put(out, at + 15, at + 17, milli // 60_000 % 60, 58)
            _put(out, at + 18, at + 20, milli // 1000 % 60, 46)
            _put(out, at + 21, at + 24, milli % 1000, 90)
            out[at + 25] = 34
            at += MAX_NUMBER
        else:
            if number == _LEAST:
                return -1
            if number < 0:
                out[at] = 45
                at += 1
                number = -number
            size = 1
            power = 10
            while size < _MAX_DIGITS + 1 and number >= power:
                size += 1
                power *= 10 if size <= _MAX_DIGITS else 1
            _put(out, at, at + size, number, 0)
            at += size
        spans[count + index] = at
    return at


@compiled
def write_varints(numbers: Int64s, prefix: Bytes, out: ByteBuffer, offsets: Int64Buffer) -> None:
    """Write integers as Avro does: in zigzag, as varints.

    Args:
        numbers: the integers.
        prefix: bytes before each.
        out: gets the bytes: those of the prefix and `MAX_VARINT` for each.
        offsets: gets the offset of each, and of the one that would follow the last.
    """
    at = 0
    for index in range(len(numbers)):
        offsets[index] = at
        at = _copy(prefix, 0, len(prefix), out, at)
        number = numbers[index]
        folded = -number - 1 if number < 0 else number
        # Doubled, it would not fit into 64 bits with a sign.
        at = _put_varint((folded & _62_BITS) * 2 + (1 if number < 0 else 0), folded >> 62, out, at)
    offsets[len(numbers)] = at


@compiled
def write_timestamps(moments: Int64s, prefix: Bytes, out: ByteBuffer, offsets: Int64Buffer) -> int:
    """Write times as Protobuf's Timestamps, each behind its length.

    Args:
        moments: milliseconds since 1970.
        prefix: bytes before each.
        out: gets the bytes: those of the prefix and `MAX_TIMESTAMP` for each.
        offsets: gets the offset of each, and of the one that would follow the last.

    Returns:
        The number of times of other years than 1 to 9999, of which nothing is written.
    """
    at = left = 0
    for index in range(len(moments)):
        offsets[index] = at
        moment = moments[index]
        if not _FIRST_MILLI <= moment < _LAST_MILLI:
            left += 1
            continue
        second = moment // 1000
        nanos = (moment - second * 1000) * 1_000_000
        at = _copy(prefix, 0, len(prefix), out, at)
        length = at
        at += 1
        if second != 0:
            out[at] = 8
            at = _put_varint(second & _63_BITS, 1 if second < 0 else 0, out, at + 1)
        if nanos != 0:
            out[at] = 16
            at = _put_varint(nanos, 0, out, at + 1)
        out[length] = at - length - 1
    offsets[len(moments)] = at
    return left


@compiled
def _put_varint(number: int, top: int, out: ByteBuffer, at: int) -> int:
    """Write a number of 63 bits, and a bit above these, as a varint; return the offset behind it."""
    size = 1
    while number >= 128 or top > 0:
        if size == MAX_VARINT - 1:
            # Nine bytes have the lower 63 bits.
            break
        out[at] = number & 127 | 128
        number >>= 7
        at += 1
        size += 1
    if size == MAX_VARINT - 1 and top > 0:
        out[at] = number & 127 | 128
        out[at + 1] = 1
        return at + 2
    out[at] = number & 127
    return at + 1


@compiled
def _put(out: ByteBuffer, begin: int, end: int, number: int, behind: int) -> None:
    """Write the last digits of a number between two offsets, and a byte behind them."""
    out[end] = behind
    for index in range(end - 1, begin - 1, -1):
        out[index] = 48 + number % 10
        number //= 10


@compiled
def read_times(
    data: Bytes, begins: Int64s, ends: Int64s, quotes: int, template: Bytes, times: Int64Buffer, undecided: ByteBuffer
) -> int:
    """Read texts that are as long and as strict as a pattern.

    Args:
        data: bytes that contain the strings.
        begins: begin of each.
        ends: end of each.
        quotes: 1 if each is a string of JSON, whose first byte may show that it is none; 0 for texts.
        template: each byte that a text has; where it is a digit of the year, month, day, hour,
            minute, second or millisecond, a number from 1 to 7.
        times: milliseconds since 1970, by the calendar that is in use since 1583.
        undecided: for each string 0 if it was decided.

    Returns:
        The number of undecided strings.
    """
    left = 0
    size = len(template)
    for index in range(len(begins)):
        at = begins[index] + quotes
        fits = ends[index] - at == size + quotes and (quotes == 0 or data[at - 1] == 34)
        year = month = day = hour = minute = second = milli = 0
        position = 0
        while fits and position < size:
            part = template[position]
            byte = data[at + position]
            digit = byte - 48
            if part > 7:
                fits = byte == part
            elif not 48 <= byte <= 57:
                fits = False
            elif part == 1:
                year = year * 10 + digit
            elif part == 2:
                month = month * 10 + digit
            elif part == 3:
                day = day * 10 + digit
            elif part == 4:
                hour = hour * 10 + digit
            elif part == 5:
                minute = minute * 10 + digit
            elif part == 6:
                second = second * 10 + digit
            else:
                milli = milli * 10 + digit
            position += 1
        if fits and year >= _FIRST_YEAR and 1 <= month <= 12:
            # A year of this count begins in March.
            month += -3 if month > 2 else 9
            year -= 1 if month > 9 else 0
            days = year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - _TO_1970
            times[index] = days * _DAY + ((hour * 60 + minute) * 60 + second) * 1000 + milli
            undecided[index] = 0
        else:
            undecided[index] = 1
            left += 1
    return left
