"""Blocks of NATS headers in a buffer: where their names and values are.

`turnout.nats.protocol.headers.parse` is the same for one block.
"""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import Bytes, Int64Buffer2D, compiled
from turnout.loops.frames import BODY, PAYLOAD

# Rows of a table of headers, with a column for each header: offsets in the buffer.
NAME: Final = 0
NAME_END: Final = 1
VALUE: Final = 2
VALUE_END: Final = 3
HEADER_FIELDS: Final = 4

# Rows of edges, with a column for each message.
FIRST: Final = 0
KEY: Final = 1
EDGES: Final = 2


@compiled
def _has_name(data: Bytes, begin: int, end: int, name: Bytes) -> bool:
    if end - begin != len(name):
        return False
    for index in range(len(name)):  # noqa: SIM110 - no generator in a loop
        if data[begin + index] != name[index]:
            return False
    return True


@compiled
def _read_block(data: Bytes, begin: int, end: int, table: Int64Buffer2D, count: int) -> int:
    """Write the headers of a block behind the first *count*; return how many there are, also beyond the table."""
    room = table.shape[1]
    at = begin
    while at < end and data[at] != 10:
        at += 1
    # The version line is over.
    at += 1
    while at < end:
        name, colon = at, -1
        while at < end and data[at] != 10:
            if colon < 0 and data[at] == 58:
                colon = at
            at += 1
        if colon > name:
            if count < room:
                value_end = at - 1 if data[at - 1] == 13 else at
                value = colon + 1
                while value < value_end and (data[value] == 32 or data[value] == 9):
                    value += 1
                table[NAME, count] = name
                table[NAME_END, count] = colon
                table[VALUE, count] = value
                table[VALUE_END, count] = value_end
            count += 1
        at += 1
    return count


@compiled
def read_headers(
    data: Bytes, frames: Int64Buffer2D, count: int, key: Bytes, table: Int64Buffer2D, edges: Int64Buffer2D
) -> int:
    """Read the header blocks of messages.

    Args:
        data: the buffer.
        frames: frames of `turnout.loops.frames.find_frames`.
        count: how many messages there are.
        key: name of the header that keys are in.
        table: rows as above, a column for each header.
        edges: receives in one row the number of headers before each message, then of all; in the other the first
            header of that name of each message, -1 where it has none.

    Returns:
        How many headers there are. If they are more than columns, the results are no use.
    """
    room = table.shape[1]
    total = 0
    edges[FIRST, 0] = 0
    for row in range(count):
        edges[KEY, row] = -1
        if frames[BODY, row] < frames[PAYLOAD, row]:
            first = total
            total = _read_block(data, frames[BODY, row], frames[PAYLOAD, row], table, total)
            for header in range(first, min(total, room)):
                if _has_name(data, table[NAME, header], table[NAME_END, header], key):
                    edges[KEY, row] = header
                    break
        edges[FIRST, row + 1] = total
    return total
