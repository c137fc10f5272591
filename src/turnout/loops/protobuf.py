"""Loops over Protobuf messages: where their fields are in the bytes, each of which is checked, and their values.

Serializers write fields in the order of their numbers. Messages of which that is not true, with fields that the schema
does not know, and damaged ones are left to the ``protobuf`` library, which is the reference.
"""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int64Buffer, Int64s, compiled
from turnout.loops.texts import _is_text, _varint, are_equal

# What the values of a field are. Of other numbers they have so many bytes.
VARINT: Final = 0
BYTES: Final = 1
TEXT: Final = 2
TIMESTAMP: Final = 3
"""A Timestamp of whole milliseconds: of a finer one Connect's value has other bytes."""

FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799
"""Of the years 1 to 9999, which a Timestamp may have."""

NANOS_PER_MILLI: Final = 1_000_000
_MILLIS: Final = 1000
_SECONDS_TAG: Final = 8
_NANOS_TAG: Final = 16


@compiled
def _millis(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Return the milliseconds of the Timestamp between two offsets, and whether it is one of whole milliseconds."""
    seconds = nanos = 0
    if at < end and data[at] == _SECONDS_TAG:
        seconds, at = _varint(data, at + 1, end)
    if 0 <= at < end and data[at] == _NANOS_TAG:
        nanos, at = _varint(data, at + 1, end)
    if at != end or seconds < FIRST_SECOND or seconds > LAST_SECOND or nanos < 0 or nanos >= _MILLIS * NANOS_PER_MILLI:
        return 0, False
    return seconds * _MILLIS + nanos // NANOS_PER_MILLI, nanos % NANOS_PER_MILLI == 0


@compiled
def _value_end(data: Bytes, at: int, end: int, kind: int) -> int:
    """Return the offset behind a value; -1 where there is none of its kind."""
    if kind > TIMESTAMP:
        return at + kind if kind <= end - at else -1
    number, at = _varint(data, at, end)
    if at < 0 or kind == VARINT:
        return at
    if number < 0 or number > end - at:
        return -1
    behind = at + number
    if kind == TEXT and not _is_text(data, at, behind):
        return -1
    if kind == TIMESTAMP:
        _, is_whole = _millis(data, at, behind)
        return behind if is_whole else -1
    return behind


@compiled
def find_fields(
    data: Bytes, starts: Int64s, ends: Int64s, tags: Bytes, edges: Int64s, kinds: Int64s, offsets: Int64Buffer,
    failed: ByteBuffer,
) -> int:  # fmt: skip
    """Find the fields of messages, and check all their bytes.

    Args:
        data: the bytes.
        starts: offset of each message.
        ends: end of each message.
        tags: tags of the fields, in the order of their numbers.
        edges: offset of each tag in *tags*, and of their end.
        kinds: kind of each field.
        offsets: gets the offset of the first field of all messages, with its tag, of the second, and so on, and behind
            the last one the end of it. A field that a message does not have is empty.
        failed: gets 1 for each message that is not whole, whose offsets are arbitrary ones of it.

    Returns:
        The number of messages that are not whole.
    """
    count, wrong = len(starts), 0
    for row in range(count):
        at, end = starts[row], ends[row]
        for field in range(len(kinds)):
            offsets[field * count + row] = at
            first = edges[field]
            size = edges[field + 1] - first
            if failed[row] == 0 and at + size <= end and are_equal(data, at, tags, first, size):
                behind = _value_end(data, at + size, end, kinds[field])
                if behind < 0:
                    failed[row] = 1
                else:
                    at = behind
        offsets[len(kinds) * count + row] = at
        if at != end:
            failed[row] = 1
        wrong += failed[row]
    return wrong


@compiled
def read_values(data: Bytes, begins: Int64s, ends: Int64s, head: int, kind: int, numbers: Int64Buffer) -> None:
    """Read values that were checked, each behind its tag.

    Args:
        data: the bytes.
        begins: offset of each field, which is not empty.
        ends: end of each field.
        head: number of bytes of the tag.
        kind: kind of the values.
        numbers: gets the numbers; of a Timestamp the milliseconds since 1970; else the offset of each content.
    """
    for row in range(len(begins)):
        at, end = begins[row] + head, ends[row]
        if kind > TIMESTAMP:
            numbers[row] = at
            continue
        number, at = _varint(data, at, end)
        if kind == TIMESTAMP:
            number, _ = _millis(data, at, end)
        numbers[row] = number if kind in (VARINT, TIMESTAMP) else at
