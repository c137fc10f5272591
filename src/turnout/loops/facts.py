"""Facts of a message: the literals, numbers and nodes that its values give, for the loop of matching."""

from __future__ import annotations

from math import inf, nan

from turnout.loops.compiled import ByteBuffer, Bytes, Int32Buffer, Int64Buffer, Int64s, compiled, inlined
from turnout.loops.segment_arrays import (
    ANY,
    ASK_LITERALS,
    ASK_NUMBER,
    ASKED,
    ASKED_COLUMNS,
    ASKED_ROOM,
    BEGIN,
    BIT_MASK,
    CHAIN,
    CUTS,
    CUTS_AT,
    END,
    END_VALUE,
    EPOCH,
    FACT,
    FACT_BEGIN,
    FACT_END,
    FACT_FIRST,
    FACT_FOLDS,
    FACT_KEY,
    FACT_KIND,
    FACT_LENGTH,
    FACT_MANY,
    FACT_SIZE,
    FACT_STATE,
    FACT_WORDS,
    FACTS,
    FIRST,
    FOLDED,
    FOLDED_WORDS,
    FOUND,
    FOUND_ROOM,
    GIVEN_ANSWERS,
    GIVEN_AT,
    GIVEN_COLUMNS,
    HAS,
    KEY_COUNT,
    KEY_FIRST,
    KEY_NUMBERS,
    KEY_STAMP,
    KEY_STATE,
    LAST,
    LITERAL_AT,
    LITERAL_DATA,
    LITERAL_FACT,
    LITERAL_MASK,
    LITERAL_SLOTS,
    LOW_32,
    NODE_LITERALS,
    NODE_SHIFTS,
    NODES,
    PART,
    PART_AT,
    PART_BITS,
    PART_COLUMNS,
    PART_DATA,
    PART_LITERAL,
    PART_MASK,
    PART_NEXT,
    PART_POSITION,
    PART_SLOTS,
    PARTS,
    ROW,
    RUNS,
    S_ASKED,
    S_FACTS,
    S_FOUND,
    S_KEYS,
    S_NEXT_VALUE,
    S_SEEN,
    SINGLE,
    STAMP,
    STEPS_OF_BYTE,
    VALUE,
    VALUE_BEGIN,
    VALUE_END,
    VALUE_VARIANT,
    VALUES,
    VARIANT,
    VARIANTS,
    WORDS,
    Messages,
    Scratch,
    SegmentArrays,
)
from turnout.loops.texts import are_equal, hash_of_text, mixed, number_in


@inlined
def _position_of(
    keys: Int64s, first_key: int, slots: Int64s, first_slot: int, mask: int, upper: int, lower: int
) -> int:
    """Return the first position of a key of two halves; -1 for none."""
    value = mixed(mixed(upper) ^ lower)
    slot = value & mask
    key = (upper << 32) | lower
    while slots[first_slot + slot] != 0:
        if slots[first_slot + slot] >> 32 == value:
            position = (slots[first_slot + slot] & LOW_32) - 1
            if keys[first_key + position] == key:
                return position
        slot = (slot + 1) & mask
    return -1


@inlined
def _literal_of(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays) -> int:
    """Return the literal that a text of a fact is; 0 for none."""
    at, ints, longs, slots = segment.at, segment.ints, segment.longs, segment.slots
    value = hash_of_text(source, begin, end, fact)
    slot = value & at[LITERAL_MASK]
    while slots[at[LITERAL_SLOTS] + slot] != 0:
        found = slots[at[LITERAL_SLOTS] + slot]
        if found >> 32 == value:
            literal = found & LOW_32
            first, last = longs[at[LITERAL_AT] + literal - 1], longs[at[LITERAL_AT] + literal]
            if (
                ints[at[LITERAL_FACT] + literal - 1] == fact
                and last - first == end - begin
                and are_equal(source, begin, segment.bytes, at[LITERAL_DATA] + first, end - begin)
            ):
                return literal
        slot = (slot + 1) & at[LITERAL_MASK]
    return 0


@inlined
def _add_literal(literal: int, fact: int, scratch: Scratch) -> None:
    """Add a literal, 0 for none, to those of the row."""
    if literal == 0:
        return
    state, cells = scratch.state, scratch.cells
    own, seen = state[S_FACTS] + fact * FACT_STATE, state[S_SEEN] + literal
    if cells[own + SINGLE] >= 0:
        cells[own + SINGLE] = literal
    elif cells[seen] == state[EPOCH]:
        return
    else:
        cells[seen] = state[EPOCH]
    number = state[FOUND]
    state[FOUND] = number + 1
    if number < state[FOUND_ROOM]:
        cells[state[S_FOUND] + 2 * number] = literal
        cells[state[S_FOUND] + 2 * number + 1] = cells[own + CHAIN]
        cells[own + CHAIN] = number


@compiled
def _ask(kind: int, number: int, scratch: Scratch) -> None:
    """Add a question about the row."""
    state, cells = scratch.state, scratch.cells
    position = state[ASKED]
    state[ASKED] = position + 1
    if position < state[ASKED_ROOM]:
        first = state[S_ASKED] + ASKED_COLUMNS * position
        cells[first] = state[ROW]
        cells[first + 1] = kind
        cells[first + 2] = number


@inlined
def _add_text(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literal of one text: of all of it, its first or its last characters."""
    first = segment.at[FACTS] + fact * FACT
    kind, length = segment.own[first + FACT_KIND], segment.own[first + FACT_LENGTH]
    if kind == FIRST:
        position = begin
        while position < end and length > 0:
            position += 1
            while position < end and (source[position] & 0xC0) == 0x80:
                position += 1
            length -= 1
        end = position
    elif kind == LAST:
        position = end
        while position > begin and length > 0:
            position -= 1
            while position > begin and (source[position] & 0xC0) == 0x80:
                position -= 1
            length -= 1
        begin = position
    elif kind == HAS:
        end = begin
    _add_literal(_literal_of(source, begin, end, fact, segment), fact, scratch)


@inlined
def _is_of_word(byte: int) -> bool:
    # What is beyond ASCII comes as words with spaces between them.
    return byte >= 128 or 97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57 or byte == 95


@compiled
def _add_words(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literals of the words of a text."""
    position = begin
    while position < end:
        first = position
        while position < end and _is_of_word(source[position]):
            position += 1
        if position > first:
            _add_text(source, first, position, fact, segment, scratch)
        position += 1


@compiled
def _add_runs(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literals of the runs of three characters of a text."""
    first = second = third = position = begin
    count = 0
    while position < end:
        position += 1
        while position < end and (source[position] & 0xC0) == 0x80:
            position += 1
        count += 1
        # Positions behind the last three characters, the oldest one first: the run begins behind the one before them.
        if count >= 3:
            _add_literal(_literal_of(source, first, position, fact, segment), fact, scratch)
            first = second
        second, third = third, position
        if count == 1:
            second = position
        elif count == 2:
            first = begin


@compiled
def _add_parts(size: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literals of the parts that the scratch text has."""
    at, own, slots, bits = segment.at, segment.own, segment.slots, segment.own_bytes
    text, state, cells = scratch.text, scratch.state, scratch.cells
    steps = STEPS_OF_BYTE * (size + STEPS_OF_BYTE)
    widths = own[at[FACTS] + fact * FACT + FACT_SIZE]
    for width in range(3):
        if (widths >> width) & 1 == 0:
            continue
        salt = mixed(fact * 4 + width)
        length = 4 if width == 0 else 2 if width == 1 else 1
        run = 0
        for position in range(size):
            run = (run >> 8) | (text[position] << ((length - 1) * 8))
            value = mixed(run ^ salt)
            if (bits[at[PART_BITS] + ((value & at[BIT_MASK]) >> 3)] >> (value & 7)) & 1 == 0 or position < length - 1:
                continue
            slot = value & at[PART_MASK]
            while slots[at[PART_SLOTS] + slot] != 0 and slots[at[PART_SLOTS] + slot] >> 32 != value:
                slot = (slot + 1) & at[PART_MASK]
            number = (slots[at[PART_SLOTS] + slot] & LOW_32) - 1
            while number >= 0:
                part = at[PARTS] + number * PART_COLUMNS
                literal = own[part + PART_LITERAL]
                first, last = slots[at[PART_AT] + number], slots[at[PART_AT] + number + 1]
                begin = position - length + 1 - own[part + PART_POSITION]
                steps -= 1
                if (
                    begin >= 0
                    and begin + last - first <= size
                    and cells[state[S_SEEN] + literal] != state[EPOCH]
                    and segment.ints[at[LITERAL_FACT] + literal - 1] == fact
                ):
                    steps -= (last - first) >> 2
                    if are_equal(text, begin, bits, at[PART_DATA] + first, last - first):
                        _add_literal(literal, fact, scratch)
                number = own[part + PART_NEXT]
            if steps < 0:
                _ask(ASK_LITERALS, fact, scratch)
                return


@inlined
def _copy(source: Bytes, begin: int, end: int, folds: int, target: ByteBuffer, first: int) -> None:
    """Copy bytes; with *folds* large letters of ASCII become small ones."""
    for index in range(end - begin):
        byte = source[begin + index]
        target[first + index] = byte + 32 if folds and 65 <= byte <= 90 else byte


@inlined
def _next_value(value: int, key: int, state: Int64Buffer, cells: Int32Buffer) -> int:
    """Return the next value of a key; -1 after the last one."""
    if key == state[ANY]:
        return value + 1 if value + 1 < state[END_VALUE] else -1
    return cells[state[S_NEXT_VALUE] + value]


@inlined
def _number_of(value: int, messages: Messages, scratch: Scratch) -> float:
    """Return the number that a value is; NaN for none, and for one that is asked for."""
    numbers, state = messages.numbers, scratch.state
    first = numbers[VALUES] + value * VALUE
    number = number_in(messages.data, numbers[first + VALUE_BEGIN], numbers[first + VALUE_END])
    if number != inf:
        return number
    for position in range(numbers[numbers[GIVEN_AT] + state[ROW]], numbers[numbers[GIVEN_AT] + state[ROW] + 1]):
        given = numbers[GIVEN_ANSWERS] + position * GIVEN_COLUMNS
        if numbers[given] == ASK_NUMBER and numbers[given + 1] == value:
            return messages.given_numbers[position]
    _ask(ASK_NUMBER, value, scratch)
    return nan


@compiled
def _read_numbers(key: int, messages: Messages, scratch: Scratch) -> None:
    """Read the numbers among the values of a key, unless they are read already."""
    state, cells = scratch.state, scratch.cells
    own = state[S_KEYS] + key * KEY_STATE
    if cells[own + KEY_NUMBERS] == state[EPOCH]:
        return
    least, most = nan, nan
    value = cells[own + KEY_FIRST]
    while value >= 0:
        number = _number_of(value, messages, scratch)
        if number == number:
            # The first one replaces NaN.
            least = least if least <= number else number
            most = most if most >= number else number
        value = _next_value(value, key, state, cells)
    cells[own + KEY_NUMBERS] = state[EPOCH]
    scratch.numbers[2 * key] = least
    scratch.numbers[2 * key + 1] = most


@inlined
def _cell_of(number: float, key: int, segment: SegmentArrays) -> int:
    """Return the cell of a number: how many cuts of the key are not above it."""
    at, floats = segment.at, segment.floats
    first = segment.ints[at[CUTS_AT] + key]
    low, high = first, segment.ints[at[CUTS_AT] + key + 1]
    while low < high:
        middle = (low + high) >> 1
        if floats[at[CUTS] + middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low - first


@compiled
def _add_nodes_between(low: int, high: int, fact: int, key: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literals of the nodes that two cells, or cells between them, are in.

    An interval between two numbers has one above its lower bound, and one below its upper bound. A cell of a single
    number is no such interval: it stands for being equal to the number.
    """
    at, own, floats = segment.at, segment.own, segment.floats
    first = at[FACTS] + fact * FACT
    size, base = own[first + FACT_SIZE], at[NODE_LITERALS] + own[first + FACT_FIRST]
    begin = segment.ints[at[CUTS_AT] + key]
    count = segment.ints[at[CUTS_AT] + key + 1] - begin
    cuts = at[CUTS] + begin
    for position in range(own[first + FACT_BEGIN], own[first + FACT_END]):
        shift = own[at[NODE_SHIFTS] + position]
        for node in range((low + size) >> shift, ((high + size) >> shift) + 1):
            cell = node - size
            if (
                shift == 0
                and low < cell < high
                and 0 < cell < count
                and _is_next(floats[cuts + cell - 1], floats[cuts + cell])
            ):
                continue
            _add_literal(own[base + node], fact, scratch)


@inlined
def _is_next(number: float, above: float) -> bool:
    """Return True if no number is between two."""
    middle = number / 2.0 + above / 2.0
    return middle <= number or middle >= above


@compiled
def _add_nodes(fact: int, key: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literals of the nodes that the numbers of a key are in, and of those between the first and the last."""
    _read_numbers(key, messages, scratch)
    state, cells = scratch.state, scratch.cells
    least, most = scratch.numbers[2 * key], scratch.numbers[2 * key + 1]
    if least != least:
        return
    first, last = _cell_of(least, key, segment), _cell_of(most, key, segment)
    _add_nodes_between(first, last, fact, key, segment, scratch)
    if first == last:
        return
    value = cells[state[S_KEYS] + key * KEY_STATE + KEY_FIRST]
    while value >= 0:
        number = _number_of(value, messages, scratch)
        if number == number:
            cell = _cell_of(number, key, segment)
            _add_nodes_between(cell, cell, fact, key, segment, scratch)
        value = _next_value(value, key, state, cells)


@compiled
def _read_fact(fact: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Read the literals of a fact of the row."""
    state, cells, own, numbers = scratch.state, scratch.cells, segment.own, messages.numbers
    mine = state[S_FACTS] + fact * FACT_STATE
    cells[mine + STAMP] = state[EPOCH]
    cells[mine + CHAIN] = -1
    cells[mine + SINGLE] = 0
    first = segment.at[FACTS] + fact * FACT
    key, kind = own[first + FACT_KEY], own[first + FACT_KIND]
    of_key = state[S_KEYS] + key * KEY_STATE
    if cells[of_key + KEY_STAMP] != state[EPOCH]:
        return
    if own[first + FACT_MANY] or cells[of_key + KEY_COUNT] > 1:
        cells[mine + SINGLE] = -1
    if kind == NODES:
        _add_nodes(fact, key, messages, segment, scratch)
    value = cells[of_key + KEY_FIRST] if kind < NODES else -1
    words = own[first + FACT_WORDS]
    while value >= 0:
        folds = own[first + FACT_FOLDS]
        position = numbers[VALUES] + value * VALUE
        begin, end, variant = (
            numbers[position + VALUE_BEGIN],
            numbers[position + VALUE_END],
            numbers[position + VALUE_VARIANT],
        )
        if variant >= 0 and folds + words > 0:
            column = FOLDED if words == 0 else FOLDED_WORDS if folds else WORDS
            position = numbers[VARIANTS] + variant * VARIANT + column
            begin, end, folds = numbers[position], numbers[position + 1], 0
        if kind == PART:
            scratch.text[0] = BEGIN
            _copy(messages.data, begin, end, folds, scratch.text, 1)
            scratch.text[end - begin + 1] = END
            _add_parts(end - begin + 2, fact, segment, scratch)
        else:
            # Of many kinds one position reads all: what is compiled is small.
            _copy(messages.data, begin, end, folds, scratch.text, 0)
            if words:
                _add_words(scratch.text, 0, end - begin, fact, segment, scratch)
            elif kind == RUNS:
                _add_runs(scratch.text, 0, end - begin, fact, segment, scratch)
            else:
                _add_text(scratch.text, 0, end - begin, fact, segment, scratch)
        value = _next_value(value, key, state, cells)
