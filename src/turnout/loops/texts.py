"""Loops over the bytes of texts: hashes, numbers, UTF-8, and patterns with stars.

Texts are UTF-8. A hash has 31 bits, so that neither compiled nor interpreted numbers ever wrap.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int32s, Int64Buffer, Int64s, compiled, inlined, wrapped

_FACTOR: Final = 0x5BD1E995
_31_BITS: Final = 0x7FFFFFFF
_32_BITS: Final = 0xFFFFFFFF
_EXACT: Final = 1 << 53
_EXACT_POWER: Final = 22
"""Ten to this power, and each smaller one, is a float exactly."""

_MOST_POWER: Final = 10_000
_MAX_VARINT: Final = 10
_SMALLEST: Final = -(2**63)

_ONES: Final = 0x0101010101010101
_HIGH_BITS: Final = -0x7F7F7F7F7F7F7F80
"""The highest bit of each byte, as a number with a sign."""

ASTERISK, QUESTION_MARK, BACKSLASH = 42, 63, 92


def word_at(data: Bytes, at: int) -> int:
    """Return the eight bytes at an offset, the first of them lowest."""
    return int.from_bytes(data[at : at + 8], "little", signed=True)


def lowest_byte(word: int) -> int:
    """Return the number of the lowest byte that is not zero, of a word that is not."""
    return ((word & -word).bit_length() - 1) // 8


def prefetch(numbers: Int32s | Int64s, at: int) -> None:
    """Ask for the memory of an element of any array, which is read a little later."""


def prefetch_at(address: int) -> None:
    """Ask for the memory at an address, such as that of an object of Python."""


@inlined
def mixed(number: int) -> int:
    """Return a hash of a number of up to 32 bits."""
    product = (number & _32_BITS) * _FACTOR
    return (product ^ (product >> 29)) & _31_BITS


@inlined
def hash_of_text(data: Bytes, begin: int, end: int, seed: int) -> int:
    """Return a hash of the bytes between two offsets."""
    value = (seed * 31 + end - begin) & _32_BITS
    at = begin
    while at + 4 <= end:
        word = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (data[at + 3] << 24)
        product = (value ^ word) * _FACTOR
        value = (product ^ (product >> 31)) & _32_BITS
        at += 4
    word = shift = 0
    while at < end:
        word |= data[at] << shift
        shift += 8
        at += 1
    product = (value ^ word) * _FACTOR
    product = ((product ^ (product >> 31)) & _32_BITS) * _FACTOR
    return (product ^ (product >> 29)) & _31_BITS


@compiled
def _copy(data: Bytes, begin: int, end: int, output: ByteBuffer, at: int) -> int:
    """Copy the bytes between two offsets, and return the offset behind the copy."""
    source, target = data[begin:end], output[at : at + end - begin]
    for index in range(len(source)):
        target[index] = source[index]
    return at + end - begin


def _copy_slice(data: Bytes, begin: int, end: int, output: ByteBuffer, at: int) -> int:
    """Do what `_copy` does."""
    output[at : at + end - begin] = data[begin:end]
    return at + end - begin


_copy.plain = _copy_slice


@compiled
def weave(data: Bytes, begins: Int64s, ends: Int64s, out: ByteBuffer, offsets: Int64Buffer) -> None:
    """Join pieces of columns value by value.

    Args:
        data: bytes that contain the pieces.
        begins: begin of each piece of the first column, of the second, and so on.
        ends: end of each.
        out: gets the joined bytes, for which there is room.
        offsets: gets the offset of each value, and of the one that would follow the last.
    """
    count = len(offsets) - 1
    at = 0
    for row in range(count):
        offsets[row] = at
        for piece in range(row, len(begins), count):
            at = _copy(data, begins[piece], ends[piece], out, at)
    offsets[count] = at


@inlined
def are_equal(data: Bytes, begin: int, other: Bytes, first: int, size: int) -> bool:
    """Return True if so many bytes at two offsets are the same."""
    index = 0
    while index + 8 <= size:
        if word_at(data, begin + index) != word_at(other, first + index):
            return False
        index += 8
    while index < size:
        if data[begin + index] != other[first + index]:
            return False
        index += 1
    return True


@inlined
def _is_name(data: Bytes, at: int, names: Bytes, begin: int, size: int) -> bool:
    """Return True if a name is at an offset; both arrays have eight bytes more."""
    while size >= 8:
        if word_at(data, at) != word_at(names, begin):
            return False
        at += 8
        begin += 8
        size -= 8
    return (word_at(data, at) ^ word_at(names, begin)) & ((1 << (size * 8)) - 1) == 0


@inlined
def _plain_end(data: Bytes, at: int) -> int:
    """Return the index of the first quote, backslash or control character."""
    while True:
        word = word_at(data, at)
        quote, slash = word ^ 0x2222222222222222, word ^ 0x5C5C5C5C5C5C5C5C
        # The lowest bit of these is that of the first such byte: a difference borrows from higher bytes alone.
        found = (quote - _ONES) & ~quote | (slash - _ONES) & ~slash | (word - 32 * _ONES) & ~word
        found = wrapped(found & _HIGH_BITS)
        if found != 0:
            return at + lowest_byte(found)
        at += 8


@inlined
def _digits_end(data: Bytes, at: int) -> int:
    """Return the index of the first byte that is no digit."""
    while True:
        word = word_at(data, at) ^ 0x3030303030303030
        found = wrapped((word | word + 0x7676767676767676) & _HIGH_BITS)
        if found != 0:
            return at + lowest_byte(found)
        at += 8


@compiled
def number_in(data: Bytes, begin: int, end: int) -> float:
    """Return the number that a text is: NaN for other texts, and infinity for one that is left to `float`.

    Those are numbers whose digits or powers of ten are no floats.
    """
    at = begin
    negative = at < end and data[at] == 45
    if at < end and (data[at] == 45 or data[at] == 43):
        at += 1
    mantissa = digits = decimals = power = 0
    exact = True
    while at < end and 48 <= data[at] <= 57:
        if mantissa < _EXACT:
            mantissa = mantissa * 10 + data[at] - 48
        else:
            exact = False
        digits += 1
        at += 1
    if at < end and data[at] == 46:
        at += 1
        while at < end and 48 <= data[at] <= 57:
            if mantissa < _EXACT:
                mantissa = mantissa * 10 + data[at] - 48
            else:
                exact = False
            digits += 1
            decimals += 1
            at += 1
    if digits == 0:
        return nan
    if at < end and (data[at] == 69 or data[at] == 101):
        at += 1
        below = at < end and data[at] == 45
        if at < end and (data[at] == 45 or data[at] == 43):
            at += 1
        first = at
        while at < end and 48 <= data[at] <= 57:
            if power < _MOST_POWER:
                power = power * 10 + data[at] - 48
            at += 1
        if at == first:
            return nan
        if below:
            power = -power
    if at < end:
        return nan
    power -= decimals
    if not exact or mantissa > _EXACT or power > _EXACT_POWER or power < -_EXACT_POWER:
        return inf
    scale = 1.0
    for _ in range(power if power >= 0 else -power):
        scale *= 10.0
    number = mantissa * scale if power >= 0 else mantissa / scale
    return -number if negative else number


@compiled
def glob_matches(pattern: Bytes, first: int, last: int, data: Bytes, begin: int, end: int, steps: int) -> int:
    r"""Return 1 if a text matches a pattern of ``*``, ``?`` and ``\``, and 0 if not; -1 if that takes too many steps.

    Args:
        pattern: the bytes of the pattern.
        first: its first byte.
        last: the position behind it.
        data: the bytes of the text.
        begin: its first byte.
        end: the position behind it.
        steps: greatest number of bytes to compare.
    """
    at, position = begin, first
    star, tried = -1, begin
    while steps > 0:
        steps -= 1
        is_star = position < last and pattern[position] == ASTERISK
        if is_star:
            star, tried = position, at
            position += 1
            if position == last:
                return 1
            continue
        if at == end and position == last:
            return 1
        matches = False
        if at < end and position < last:
            if pattern[position] == QUESTION_MARK:
                at += 1
                while at < end and (data[at] & 0xC0) == 0x80:
                    at += 1
                position += 1
                matches = True
            else:
                size = 2 if pattern[position] == BACKSLASH else 1
                if pattern[position + size - 1] == data[at]:
                    at += 1
                    position += size
                    matches = True
        if matches:
            continue
        if star < 0 or tried >= end:
            return 0
        # Further on by a character: its other bytes begin none.
        tried += 1
        while tried < end and (data[tried] & 0xC0) == 0x80:
            tried += 1
        at, position = tried, star + 1
    return -1


@inlined
def _digit_of(byte: int) -> int:
    """Return the value of a hexadecimal digit; a large number for other bytes."""
    if 48 <= byte <= 57:
        return byte - 48
    return (byte & 7) + 9 if 65 <= byte <= 70 or 97 <= byte <= 102 else 256


@compiled
def _code_of(data: Bytes, at: int) -> int:
    """Return the character of four hexadecimal digits; -1 if they are none, and for surrogates, which come in pairs."""
    code = 0
    for index in range(at, at + 4):
        digit = _digit_of(data[index])
        if digit > 15:
            return -1
        code = code * 16 + digit
    return -1 if 0xD800 <= code <= 0xDFFF else code


@compiled
def _octets(data: Bytes, at: int, end: int, output: ByteBuffer, first: int) -> bool:
    """Write the four bytes of an address of IPv4; return False for other texts."""
    for index in range(first, first + 4):
        begin, value = at, 0
        while at < end and at < begin + 3 and 48 <= data[at] <= 57:
            value = value * 10 + data[at] - 48
            at += 1
        if at == begin or value > 255 or (data[begin] == 48 and at > begin + 1):
            return False
        output[index] = value
        if index < first + 3:
            if at == end or data[at] != 46:
                return False
            at += 1
    return at == end


@compiled
def address_in(data: Bytes, begin: int, end: int, output: ByteBuffer) -> int:
    """Write the bytes of an IP address, at most 16; return how many they are, 0 for other texts."""
    if _octets(data, begin, end, output, 0):
        return 4
    at, size, gap = begin, 0, -1
    if at + 1 < end and data[at] == 58 and data[at + 1] == 58:
        at, gap = at + 2, 0
    while at < end:
        first, value = at, 0
        while at < end and at < first + 4 and _digit_of(data[at]) < 16:
            value = value * 16 + _digit_of(data[at])
            at += 1
        if at < end and data[at] == 46:
            # Its last four bytes may be an address of IPv4.
            if size > 12 or not _octets(data, first, end, output, size):
                return 0
            size += 4
            break
        if at == first or size == 16:
            return 0
        output[size], output[size + 1] = value >> 8, value & 255
        size += 2
        if at == end:
            break
        if data[at] != 58 or at + 1 == end:
            return 0
        at += 1
        if data[at] == 58:
            if gap >= 0:
                return 0
            gap = size
            at += 1
    if gap < 0:
        return size if size == 16 else 0
    if size > 14:
        return 0
    for index in range(15, gap - 1, -1):
        moved = index - 16 + size
        output[index] = output[moved] if moved >= gap else 0
    return 16


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number of 64 bits, as one with a sign, that a varint of Avro and Protobuf at an offset is.

    Args:
        data: the bytes.
        at: offset of the varint.
        end: offset behind the last byte that it may have.

    Returns:
        The number, and the offset behind it: -1 where there is no varint of 64 bits.
    """
    if at < end and data[at] < 0x80:
        return int(data[at]), at + 1
    number = shift = 0
    for index in range(_MAX_VARINT):
        if at + index >= end:
            return 0, -1
        byte = data[at + index]
        if index == _MAX_VARINT - 1:
            # Its one bit is that of the sign.
            return (number + _SMALLEST if byte else number, at + index + 1) if byte <= 1 else (0, -1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + index + 1
        shift += 7
    return 0, -1


@compiled
def _follow(data: Bytes, at: int, count: int, end: int) -> bool:
    """Return True if so many continuation bytes of UTF-8 are at an offset."""
    if at + count > end:
        return False
    for index in range(at, at + count):  # noqa: SIM110 - a loop has no generators
        if data[index] & 0xC0 != 0x80:
            return False
    return True


@compiled
def _is_text(data: Bytes, at: int, end: int) -> bool:
    """Return True if the bytes between two offsets are UTF-8, in its shortest form and without surrogates."""
    while at < end:
        byte = data[at]
        if byte < 0x80:
            at += 8 if at + 8 <= end and word_at(data, at) & _HIGH_BITS == 0 else 1
            continue
        if byte < 0xC2 or byte > 0xF4:
            return False
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        if not _follow(data, at + 1, more, end):
            return False
        second = data[at + 1]
        if (
            (byte == 0xE0 and second < 0xA0)
            or (byte == 0xED and second > 0x9F)
            or (byte == 0xF0 and second < 0x90)
            or (byte == 0xF4 and second > 0x8F)
        ):
            return False
        at += 1 + more
    return True
