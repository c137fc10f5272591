"""Loops over Avro values: where the fields of records are in their bytes, each of which is checked, and their numbers.

A type is four numbers, its node: what it is, and what that needs. Nodes of inner types are listed in *inner*.
`turnout.codecs.avro.reading` is the same for one value.
"""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int64Buffer, Int64s, compiled
from turnout.loops.texts import _is_text, _varint

# What a node is, and its second and third number.
NULL: Final = 0
BOOLEAN: Final = 1
INT: Final = 2
LONG: Final = 3
FIXED: Final = 4
"""Number of bytes."""
BYTES: Final = 5
"""The most bytes; -1 for any number."""
STRING: Final = 6
ENUM: Final = 7
"""Number of symbols."""
RECORD: Final = 8
"""Index of the first field in *inner*; number of fields."""
UNION: Final = 9
"""Likewise, of branches."""
ARRAY: Final = 10
"""Node of the items; the fewest bytes of one."""
MAP: Final = 11
"""Node of the values; the fewest bytes of a key with its value."""
NODE_FIELDS: Final = 4

STACK_FIELDS: Final = 3
"""Numbers of the stack for each type that is inside of others."""

MAX_EMPTY_ITEMS: Final = 1024
"""Most items of an array whose items take no bytes."""

_63_BITS: Final = 2**63 - 1
_SMALLEST: Final = -(2**63)
_INT_BOUND: Final = 2**31


@compiled
def _long(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset behind it: -1 where there is none of 64 bits."""
    number, at = _varint(data, at, end)
    half = (number >> 1) & _63_BITS
    return -half - 1 if number & 1 else half, at


@compiled
def _content(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the content behind its length begins and ends; -1 where there is none."""
    size, begin = _long(data, at, end)
    if begin < 0 or size < 0 or size > end - begin:
        return 0, -1
    return begin, begin + size


@compiled
def _simple_end(data: Bytes, at: int, end: int, kind: int, argument: int) -> int:
    """Return the offset behind a value that has no others in it; -1 where there is none of its type."""
    if kind in (INT, LONG, ENUM):
        number, at = _long(data, at, end)
        if kind == INT and (number < -_INT_BOUND or number >= _INT_BOUND):
            return -1
        if kind == ENUM and (number < 0 or number >= argument):
            return -1
        return at
    if kind in (STRING, BYTES):
        begin, at = _content(data, at, end)
        if kind == STRING and at >= 0 and not _is_text(data, begin, at):
            return -1
        if kind == BYTES and 0 <= argument < at - begin:
            return -1
        return at
    if kind == BOOLEAN:
        return at + 1 if at < end and data[at] <= 1 else -1
    if kind == FIXED:
        return at + argument if argument <= end - at else -1
    return at


@compiled
def _block(data: Bytes, at: int, end: int, least: int, earlier: int) -> tuple[int, int]:
    """Return the number of items in a block of an array or a map, and the offset of the first; -1 where there is none.

    Args:
        data: the bytes.
        at: offset of the block.
        end: end of the value.
        least: the fewest bytes of an item.
        earlier: items of the blocks before.
    """
    count, at = _long(data, at, end)
    if at >= 0 and count < 0:
        if count == _SMALLEST:
            return 0, -1
        count = -count
        _, at = _long(data, at, end)
    if at < 0 or count > ((end - at) // least if least else MAX_EMPTY_ITEMS - earlier):
        return 0, -1
    return count, at


@compiled
def _end(data: Bytes, at: int, end: int, nodes: Int64s, inner: Int64s, node: int, stack: Int64Buffer) -> int:
    """Return the offset behind a value; -1 where there is none of its type."""
    depth = 0
    while True:
        base = node * NODE_FIELDS
        kind = nodes[base]
        if kind == UNION:
            number, at = _long(data, at, end)
            if at < 0 or number < 0 or number >= nodes[base + 2]:
                return -1
            node = inner[nodes[base + 1] + number]
            continue
        if kind >= RECORD:
            stack[depth * STACK_FIELDS] = node
            stack[depth * STACK_FIELDS + 1] = 0
            stack[depth * STACK_FIELDS + 2] = 0
            depth += 1
        else:
            at = _simple_end(data, at, end, kind, nodes[base + 1])
            if at < 0:
                return -1
        # Behind a value comes the next one of what it is in.
        while True:
            if depth == 0:
                return at
            top = (depth - 1) * STACK_FIELDS
            base = stack[top] * NODE_FIELDS
            if nodes[base] == RECORD:
                if stack[top + 1] == nodes[base + 2]:
                    depth -= 1
                    continue
                node = inner[nodes[base + 1] + stack[top + 1]]
                stack[top + 1] += 1
                break
            if stack[top + 1] == 0:
                # All items of its block are read, if there was one.
                is_array = nodes[base] == ARRAY
                count, at = _block(data, at, end, nodes[base + 2], stack[top + 2] if is_array else 0)
                if at < 0:
                    return -1
                if count == 0:
                    depth -= 1
                    continue
                stack[top + 1] = count
                stack[top + 2] += count
            stack[top + 1] -= 1
            if nodes[base] == MAP:
                at = _simple_end(data, at, end, STRING, 0)
                if at < 0:
                    return -1
            node = nodes[base + 1]
            break


@compiled
def find_fields(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    nodes: Int64s,
    inner: Int64s,
    fields: Int64s,
    edges: Int64Buffer,
    failed: ByteBuffer,
    stack: Int64Buffer,
) -> int:
    """Find the fields of records, and check all their bytes.

    Args:
        data: the bytes.
        starts: offset of each record.
        ends: end of each record.
        nodes: nodes of all types.
        inner: nodes of inner types.
        fields: node of each field.
        edges: gets the offset of the first field of all records, of the second, and so on, and behind the last one the
            end of it.
        failed: gets 1 for each record that is none of the type; its offsets are arbitrary ones of it.
        stack: scratch, `STACK_FIELDS` for each type inside of another.

    Returns:
        The number of records that are none of the type.
    """
    count, wrong = len(starts), 0
    for row in range(count):
        at, end = starts[row], ends[row]
        for field in range(len(fields)):
            edges[field * count + row] = at
            if failed[row] == 0:
                node = fields[field]
                base = node * NODE_FIELDS
                begin = at
                if nodes[base] == UNION and at < end and data[at] & 1 == 0 and data[at] < min(2 * nodes[base + 2], 128):
                    # Mostly the branch is a single byte, and what follows has no others in it.
                    node = inner[nodes[base + 1] + data[at] // 2]
                    base = node * NODE_FIELDS
                    begin = at + 1
                if nodes[base] < RECORD:
                    behind = _simple_end(data, begin, end, nodes[base], nodes[base + 1])
                else:
                    behind = _end(data, begin, end, nodes, inner, node, stack)
                if behind < 0:
                    failed[row] = 1
                else:
                    at = behind
        edges[len(fields) * count + row] = at
        if at != end:
            failed[row] = 1
        wrong += failed[row]
    return wrong


@compiled
def read_values(
    data: Bytes, begins: Int64s, ends: Int64s, null: int, kind: int, numbers: Int64Buffer, present: ByteBuffer
) -> None:
    """Read values that were checked, each behind its branch if the type is a union with null.

    Args:
        data: the bytes.
        begins: offset of each value.
        ends: end of each value.
        null: the branch of nulls; -1 where the type is no union with it.
        kind: what the values are.
        numbers: gets the numbers, also of symbols; of other kinds the offset of each content; its value ends with it.
        present: gets 1 for each value, and 0 for nulls.
    """
    for row in range(len(begins)):
        at, end = begins[row], ends[row]
        present[row] = 1
        if null >= 0:
            branch, at = _long(data, at, end)
            if branch == null:
                present[row] = 0
                numbers[row] = 0
                continue
        if kind in (INT, LONG, ENUM):
            numbers[row], at = _long(data, at, end)
            continue
        if kind in (STRING, BYTES):
            _, at = _long(data, at, end)
        numbers[row] = at
