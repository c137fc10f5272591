"""Times and numbers of JSON: columns of 64 bits read from strings, and written."""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int64Buffer, Int64s, compiled

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
def _put(out: ByteBuffer, begin: int, end: int, number: int, behind: int) -> None:
    """Write the last digits of a number between two offsets, and a byte behind them."""
    out[end] = behind
    for index in range(end - 1, begin - 1, -1):
        out[index] = 48 + number % 10
        number //= 10


@compiled
def read_times(
    data: Bytes, begins: Int64s, ends: Int64s, template: Bytes, times: Int64Buffer, undecided: ByteBuffer
) -> int:
    """Read strings that are as long and as strict as a pattern.

    Args:
        data: bytes that contain the strings.
        begins: begin of each.
        ends: end of each.
        template: each byte that a string has between its quotes; where it is a digit of the year, month, day, hour,
            minute, second or millisecond, a number from 1 to 7.
        times: milliseconds since 1970, by the calendar that is in use since 1583.
        undecided: for each string 0 if it was decided.

    Returns:
        The number of undecided strings.
    """
    left = 0
    size = len(template)
    for index in range(len(begins)):
        at = begins[index] + 1
        fits = ends[index] - at == size + 1 and data[at - 1] == 34
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
