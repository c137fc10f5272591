"""Loops over subjects (ADR-30): the first source that matches, and the destination written out.

Subjects and results are lines of bytes, each with a line feed behind it. Sources are in groups of one shape (the number
of tokens, and which of them are no wildcards); each group is a hash table with open addressing over the fixed tokens.
A destination is a sequence of operations.
"""

from __future__ import annotations

from turnout.loops.compiled import ByteBuffer, Bytes, Int64Buffer, Int64s, compiled, wrapped
from turnout.loops.texts import _copy, are_equal

UNMATCHED = -1
"""Among sources: none matches. Among targets: the subject is kept."""
LOST = -2
"""Among targets: the line stays empty."""

SHAPE_WIDTH = 7
"""Numbers of a shape: its tokens without ``>``, whether ``>`` follows, its smallest source, where its fixed indices
begin and end, where its slots begin, and their number less one."""
SLOT_WIDTH = 3
"""Numbers of a slot: its source or -1, and where its key begins and ends."""
PROGRAM_WIDTH = 3
"""Numbers of a target: its first operation, and for its longest text the fixed bytes and how many tokens are copied."""
OPERATION_WIDTH = 4
"""Numbers of an operation: its code and three operands."""

TEXT, TOKEN, LEFT, RIGHT, SPLIT_LEFT, SPLIT_RIGHT, SLICE_LEFT, SLICE_RIGHT, SPLIT, PARTITION, RANDOM, TAIL = range(12)
"""Codes. Operands: of a text, its start and end; of the cuts, token and number; of a split, token and the delimiter's
start and end; of a partition, buckets and the start and end of the indices in *reads*; of random, its number and the
index of its token; of the tail, the first token."""

_DOT, _STAR, _FULL, _LINE_FEED, _ZERO = 46, 42, 62, 10, 48
_OFFSET, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF
_SEED = 42
_PRIME_1 = 0x9E3779B185EBCA87 - 2**64
_PRIME_2 = 0xC2B2AE3D27D4EB4F - 2**64
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63 - 2**64
_PRIME_5 = 0x27D4EB2F165667C5


@compiled
def _split(data: Bytes, width: int, starts: Int64Buffer, counts: Int64Buffer) -> int:
    """Write where tokens start and how many a subject has, negative if one is empty or a wildcard.

    Returns:
        The number of lines, or one more than there is room for.
    """
    row = base = start = count = 0
    sign = 1
    starts[0] = 0
    if len(counts) == 0:
        return 0
    # One pass from the first byte to the last: an index that begins at 0 needs no check for being negative.
    for at in range(len(data)):
        byte = data[at]
        if byte > _DOT or (byte != _DOT and byte != _LINE_FEED):
            continue
        if at < start + 2 and (at == start or data[start] == _STAR or data[start] == _FULL):
            sign = -1
        count += 1
        start = at + 1
        if count < width:
            starts[base + count] = start
        if byte == _LINE_FEED:
            counts[row] = sign * count
            row += 1
            base += width
            starts[base] = start
            if row == len(counts):
                return row if start == len(data) else row + 1
            count = 0
            sign = 1
    return row


@compiled
def _hash_bytes(data: Bytes, begin: int, end: int, state: int) -> int:
    """Continue FNV-1a with 32 bits."""
    for at in range(begin, end):
        state = ((state ^ data[at]) * _PRIME) & _MASK
    return state


@compiled
def _has_key(data: Bytes, starts: Int64Buffer, base: int, index: Int64s, shape: int, keys: Bytes, slot: int) -> bool:
    """Return whether a subject's fixed tokens, each with a dot, are the key of a slot."""
    at, end = index[slot + 1], index[slot + 2]
    for number in range(index[shape + 3], index[shape + 4]):
        token = base + index[number]
        start = starts[token]
        size = starts[token + 1] - 1 - start
        if at + size >= end or keys[at + size] != _DOT:
            return False
        for offset in range(size):
            if data[start + offset] != keys[at + offset]:
                return False
        at += size + 1
    return bool(at == end)


@compiled
def _first_slot(data: Bytes, starts: Int64Buffer, base: int, index: Int64s, shape: int) -> int:
    """Return the slot where the search for a subject's fixed tokens begins."""
    state = _OFFSET
    for number in range(index[shape + 3], index[shape + 4]):
        token = base + index[number]
        state = _hash_bytes(data, starts[token], starts[token + 1] - 1, state)
        state = ((state ^ _DOT) * _PRIME) & _MASK
    return int(state & index[shape + 6])


@compiled
def _is_covered(data: Bytes, begin: int, end: int, count: int) -> bool:
    """Return whether the first tokens are neither empty nor ``>``."""
    start = begin
    for at in range(begin, end + 1):
        if data[at] == _DOT or at == end:
            if at == start:
                return False
            if at == start + 1 and data[start] == _FULL:
                return False
            start = at + 1
            count -= 1
            if count == 0:
                break
    return True


@compiled
def find(
    data: Bytes,
    only_literal: bool,
    shapes: int,
    index: Int64s,
    keys: Bytes,
    width: int,
    starts: Int64Buffer,
    sources: Int64Buffer,
) -> bool:
    """Write the first source that matches each subject, or `UNMATCHED`, and where the subject's tokens start.

    Args:
        data: the subjects as lines.
        only_literal: whether subjects with empty tokens or wildcards match nothing, as a transform has it; otherwise
            a wildcard matches one, as a table of mappings has it.
        shapes: how many shapes there are.
        index: numbers of each shape, in the order of their smallest source; then fixed indices and slots.
        keys: fixed tokens of the sources, each with a dot.
        width: how many starts of tokens are kept of a subject; one more than any source or destination reads.
        starts: the starts of tokens; behind the last row, the end.
        sources: the result.

    Returns:
        Whether there are as many lines as there is room for.
    """
    if _split(data, width, starts, sources) != len(sources):
        return False
    for row in range(len(sources)):
        base = row * width
        is_literal = sources[row] > 0
        count = abs(sources[row])
        found = UNMATCHED
        for number in range(shapes if is_literal or not only_literal else 0):
            shape = number * SHAPE_WIDTH
            if found != UNMATCHED and found < index[shape + 2]:
                break
            tokens = index[shape]
            if count < tokens + index[shape + 1] or (count > tokens and index[shape + 1] == 0):
                continue
            mask = index[shape + 6]
            first = _first_slot(data, starts, base, index, shape) if mask > 0 else 0
            for step in range(mask + 1):
                slot = index[shape + 5] + ((first + step) & mask) * SLOT_WIDTH
                source = index[slot]
                if source < 0:
                    break
                if _has_key(data, starts, base, index, shape, keys, slot):
                    # The fixed tokens are equal, which are neither empty nor wildcards; the others need a look.
                    if (found == UNMATCHED or source < found) and (
                        is_literal or tokens == 0 or _is_covered(data, starts[base], starts[base + width] - 1, tokens)
                    ):
                        found = source
                    break
        sources[row] = found
    return True


@compiled
def _slices(data: Bytes, begin: int, end: int, head: int, size: int, output: ByteBuffer, at: int) -> int:
    """Write a first piece of *head* bytes and then pieces of *size*, with dots between them."""
    left = head
    for index in range(begin, end):
        if left == 0:
            output[at] = _DOT
            at += 1
            left = size
        output[at] = data[index]
        at += 1
        left -= 1
    return at


@compiled
def _cut(data: Bytes, begin: int, end: int, code: int, number: int, output: ByteBuffer, at: int) -> int:
    """Write a token that is cut by one of the functions with a number; a shorter one stays whole."""
    length = end - begin
    if code == TOKEN or length <= number:
        return _copy(data, begin, end, output, at)
    if code == LEFT:
        return _copy(data, begin, begin + number, output, at)
    if code == RIGHT:
        return _copy(data, end - number, end, output, at)
    if code == SPLIT_LEFT:
        return _slices(data, begin, end, number, length, output, at)
    if code == SPLIT_RIGHT:
        return _slices(data, begin, end, length - number, length, output, at)
    if code == SLICE_LEFT or length % number == 0:
        return _slices(data, begin, end, number, number, output, at)
    return _slices(data, begin, end, length % number, number, output, at)


@compiled
def _is_next(data: Bytes, at: int, end: int, low: int, high: int) -> bool:
    return at < end and low <= data[at] <= high


@compiled
def _character(data: Bytes, at: int, end: int) -> int:
    """Return the length of the UTF-8 sequence that starts here; 1 for a byte that is in none."""
    lead = data[at]
    if lead < 0xC2 or lead > 0xF4:
        return 1
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if not _is_next(data, at + 1, end, low, high):
        return 1
    if lead < 0xE0:
        return 2
    if not _is_next(data, at + 2, end, 0x80, 0xBF):
        return 1
    if lead < 0xF0:
        return 3
    return 4 if _is_next(data, at + 3, end, 0x80, 0xBF) else 1


@compiled
def _characters(data: Bytes, begin: int, end: int, output: ByteBuffer, at: int) -> int:
    index = begin
    while index < end:
        if index > begin:
            output[at] = _DOT
            at += 1
        size = _character(data, index, end)
        at = _copy(data, index, index + size, output, at)
        index += size
    return at


@compiled
def _pieces(data: Bytes, begin: int, end: int, texts: Bytes, first: int, last: int, output: ByteBuffer, at: int) -> int:
    """Write the pieces between the delimiters: a dot before each that is not empty.

    There is none before the first, nor before the second if the first is empty: the server's rule.
    """
    size = last - first
    start = index = begin
    number = 0
    begins_empty = False
    while True:
        if index < end and (index + size > end or not are_equal(data, index, texts, first, last - first)):
            index += 1
            continue
        if index > start:
            if number > 1 or (number == 1 and not begins_empty):
                output[at] = _DOT
                at += 1
            at = _copy(data, start, index, output, at)
        elif number == 0:
            begins_empty = True
        if index == end:
            return at
        number += 1
        index += size
        start = index


@compiled
def _digits(value: int, output: ByteBuffer, at: int) -> int:
    """Write a number that is not negative."""
    end = at + 1
    rest = value // 10
    while rest > 0:
        rest //= 10
        end += 1
    for index in range(end - 1, at - 1, -1):
        output[index] = _ZERO + value % 10
        value //= 10
    return end


@compiled
def _rotated(value: int, by: int) -> int:
    return wrapped(value << by) | ((value >> (64 - by)) & ((1 << by) - 1))


@compiled
def _hash_long(value: int, seed: int) -> int:
    """Return the XXH64 of the 8 bytes of a number, as Spark's ``xxhash64`` has it."""
    state = wrapped(seed + _PRIME_5 + 8) ^ wrapped(_rotated(wrapped(value * _PRIME_2), 31) * _PRIME_1)
    state = wrapped(_rotated(state, 27) * _PRIME_1 + _PRIME_4)
    state = wrapped((state ^ ((state >> 33) & 0x7FFFFFFF)) * _PRIME_2)
    state = wrapped((state ^ ((state >> 29) & 0x7FFFFFFFF)) * _PRIME_3)
    return state ^ ((state >> 32) & 0xFFFFFFFF)


@compiled
def hash_longs(values: Int64s, seeds: Int64s, hashes: Int64Buffer) -> None:
    """Write the XXH64 of each number, with a seed for each."""
    for index in range(len(values)):
        hashes[index] = _hash_long(values[index], seeds[index])


@compiled
def render(
    data: Bytes,
    starts: Int64s,
    width: int,
    targets: Int64s,
    draws: Int64s,
    texts: Bytes,
    programs: Int64s,
    operations: Int64s,
    reads: Int64s,
    first: int,
    at: int,
    output: ByteBuffer,
) -> tuple[int, int]:
    """Write the destination of each subject from row *first* on, while there is room.

    Args:
        data: the subjects.
        starts: the starts of their tokens, as `find` writes them.
        width: how many there are of each.
        targets: the destination of each, `UNMATCHED` or `LOST`.
        draws: 53 random bits for each, if a destination asks for some.
        texts: literal texts and delimiters.
        programs: numbers of each destination, and the end of the last.
        operations: numbers of the operations.
        reads: indices of tokens.
        first: the row to begin with.
        at: where its result begins.
        output: the results.

    Returns:
        The row that has not been written, because its longest result might be too long, and where it begins.
    """
    for row in range(first, len(targets)):
        base = row * width
        begin, end, target = starts[base], starts[base + width] - 1, targets[row]
        if target < 0:
            if at + end - begin >= len(output):
                return row, at
            if target == UNMATCHED:
                at = _copy(data, begin, end, output, at)
        else:
            program = target * PROGRAM_WIDTH
            if at + programs[program + 1] + programs[program + 2] * 2 * (end - begin) >= len(output):
                return row, at
            for index in range(programs[program], programs[program + PROGRAM_WIDTH], OPERATION_WIDTH):
                code, operand = operations[index], operations[index + 1]
                second, third = operations[index + 2], operations[index + 3]
                if code == TEXT:
                    at = _copy(texts, operand, second, output, at)
                elif code <= SLICE_RIGHT:
                    token = base + operand
                    at = _cut(data, starts[token], starts[token + 1] - 1, code, second, output, at)
                elif code == TAIL:
                    at = _copy(data, starts[base + operand], end, output, at)
                elif code == SPLIT:
                    token = base + operand
                    if second == third:
                        at = _characters(data, starts[token], starts[token + 1] - 1, output, at)
                    else:
                        at = _pieces(data, starts[token], starts[token + 1] - 1, texts, second, third, output, at)
                elif code == PARTITION:
                    state = _OFFSET
                    if second == third:
                        state = _hash_bytes(data, begin, end, state)
                    for read in range(second, third):
                        token = base + reads[read]
                        state = _hash_bytes(data, starts[token], starts[token + 1] - 1, state)
                    at = _digits(state % operand, output, at)
                else:
                    at = _digits(_hash_long(second, _hash_long(draws[row], _SEED)) % operand, output, at)
        output[at] = _LINE_FEED
        at += 1
    return len(targets), at
