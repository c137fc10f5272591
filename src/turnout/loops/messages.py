"""Messages as an array of JSON objects whose values are texts: their keys and values, for the loop of matching.

The objects come from an encoder that writes neither blanks nor escapes beyond those that JSON asks for.
"""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int32s, Int64Buffer, Int64s, compiled, inlined
from turnout.loops.segment_arrays import (
    GIVEN_ANSWERS,
    GIVEN_AT,
    LOW_32,
    ROWS,
    STARTS,
    VALUE,
    VALUE_BEGIN,
    VALUE_END,
    VALUE_KEY,
    VALUE_VARIANT,
    VALUES,
    VARIANTS,
)
from turnout.loops.texts import are_equal, hash_of_text

_QUOTE: Final = 34
_COMMA: Final = 44
_BACKSLASH: Final = 92
_LETTER_U: Final = 117
_CLOSING_BRACE: Final = 125


@inlined
def _digit(byte: int) -> int:
    """Return the value of a hexadecimal digit."""
    return byte - 48 if byte < 58 else (byte & 31) + 9


@compiled
def _unescape(data: ByteBuffer, at: int, size: int) -> tuple[int, int]:
    """Resolve the escapes from one on, in place; return the end of the text, and the offset behind its quote."""
    end = at
    while at < size and data[at] != _QUOTE:
        byte = data[at]
        if byte == _BACKSLASH:
            byte = data[at + 1]
            at += 1
            if byte == _LETTER_U:
                # Others than those of control characters are written as they are.
                byte = (_digit(data[at + 3]) << 4 | _digit(data[at + 4])) & 127
                at += 4
            elif byte == 98 or byte == 116 or byte == 110:
                byte = 8 if byte == 98 else 9 if byte == 116 else 10
            elif byte == 102 or byte == 114:
                byte = 12 if byte == 102 else 13
        data[end] = byte
        end += 1
        at += 1
    return end, at + 1


@inlined
def _read_text(data: ByteBuffer, at: int, size: int) -> tuple[int, int]:
    """Return the end of the text that begins at an offset, and the offset behind its quote."""
    while at < size and data[at] != _QUOTE and data[at] != _BACKSLASH:
        at += 1
    if at >= size or data[at] == _QUOTE:
        return at, at + 1
    return _unescape(data, at, size)


@inlined
def _key_of(
    data: ByteBuffer, begin: int, end: int, keys: Bytes, key_at: Int64s, key_numbers: Int32s, slots: Int64s
) -> int:
    """Return the number of a key; -1 for one that is not known."""
    mask = len(slots) - 1
    value = hash_of_text(data, begin, end, 0)
    slot = value & mask
    while slots[slot] != 0:
        if slots[slot] >> 32 == value:
            position = (slots[slot] & LOW_32) - 1
            first = key_at[position]
            if key_at[position + 1] - first == end - begin and are_equal(data, begin, keys, first, end - begin):
                return key_numbers[position]
        slot = (slot + 1) & mask
    return -1


@compiled
def read_messages(
    data: ByteBuffer,
    size: int,
    rows: int,
    keys: Bytes,
    key_at: Int64s,
    key_numbers: Int32s,
    slots: Int64s,
    unknown: int,
    numbers: Int64Buffer,
) -> tuple[int, int, int]:
    """Read messages; see `turnout.loops.segment_arrays.Messages`.

    Args:
        data: the array of objects, with some bytes behind it; escapes are resolved in it.
        size: bytes of the array.
        rows: how many messages there are.
        keys: texts of the known keys.
        key_at: start of each of them, and the end of the last one.
        key_numbers: number of each of them.
        slots: table of them, see `turnout.loops.segment_arrays.index_literals`; their facts are 0.
        unknown: number of the values of other keys; -1 to leave these out.
        numbers: receives the starts, rows and values.

    Returns:
        The number of values, or -1 if they are no such objects; the bytes of the longest one; and a number from 128 on
        if one of them has letters beyond ASCII.
    """
    first = STARTS + 2 * rows
    room = len(numbers) - rows - 1 - VALUE
    position, longest, letters, index = first, 0, 0, 1
    for row in range(rows):
        numbers[STARTS + 2 * row] = (position - first) // VALUE
        index += 1
        while index < size and data[index] != _CLOSING_BRACE:
            begin = index + 2 if data[index] == _COMMA else index + 1
            end, index = _read_text(data, begin, size)
            number = _key_of(data, begin, end, keys, key_at, key_numbers, slots) if end <= size else -1
            begin = index + 2
            end, index = _read_text(data, begin, size)
            if number < 0:
                number = unknown
            if number < 0:
                continue
            if position > room or end > size or begin > end:
                return -1, longest, letters
            for byte in range(begin, end):
                letters |= data[byte]
            longest = max(longest, end - begin)
            numbers[position + VALUE_KEY] = number
            numbers[position + VALUE_BEGIN] = begin
            numbers[position + VALUE_END] = end
            numbers[position + VALUE_VARIANT] = -1
            position += VALUE
        index += 2
        numbers[STARTS + 2 * row + 1] = (position - first) // VALUE
    numbers[ROWS], numbers[VALUES], numbers[VARIANTS], numbers[GIVEN_AT] = STARTS, first, position, position
    numbers[GIVEN_ANSWERS] = position + rows + 1
    for row in range(rows + 1):
        numbers[position + row] = 0
    return (position - first) // VALUE, longest, letters
