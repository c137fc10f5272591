"""Matching of messages with the subscriptions of a segment: one loop for one message and for many.

A message is its values: texts, each of a key. A *fact* derives texts from the values of a key (the value, its first
characters, its words), and a text that some condition needs is a *literal*. Literals find *entries*, by themselves or
two together; an entry is a subscription and a *program* of checks that remain. Literals, pairs and members of sets are
found by open addressing; parts of texts by a filter of the runs of bytes that one of them has; numbers by the nodes of
a tree of intervals.

What the loop leaves undecided it *asks*: whether a test holds that is carried out elsewhere, the number of a long text,
or the parts of a text that compares too often. A row that asks has no matches yet. It is matched again with the
answers, which are *given* with the message.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final, NamedTuple

from turnout.loops.compiled import (
    ByteBuffer,
    Bytes,
    Float64Buffer,
    Float64s,
    Int32Buffer,
    Int32Buffer2D,
    Int32s,
    Int64Buffer,
    Int64s,
    compiled,
    inlined,
)
from turnout.loops.texts import are_equal, glob_matches, hash_of_text, mixed, number_in

EQUAL: Final = 0
ONE_OF: Final = 1
LIMITS: Final = 2
MANY: Final = 3
HOLDS: Final = 4
TREE: Final = 5
GROUP: Final = 6
JUST_ONE: Final = 7

WHOLE, FIRST, LAST, RUNS, HAS, PART, NODES, GIVEN = range(8)
"""Kinds of facts: what is derived from a value. The literals of the last one are given with a message."""

(
    FACT_KEY,
    FACT_KIND,
    FACT_LENGTH,
    FACT_FOLDS,
    FACT_WORDS,
    FACT_MANY,
    FACT_FIRST,
    FACT_SIZE,
    FACT_BEGIN,
    FACT_END,
) = range(10)
"""Columns of facts: the key, the kind, the number of characters, whether it folds, takes words, and gives many texts;
of nodes the first one in the array, and the number of cells; the range of their shifts. Of parts `FACT_SIZE` has a bit
for each width of runs."""

VALUE_KEY, VALUE_BEGIN, VALUE_END, VALUE_VARIANT = range(4)
"""Columns of values; a value without letters beyond ASCII has no variant (-1)."""

FOLDED, WORDS, FOLDED_WORDS = 0, 2, 4
"""Columns of variants, each with the end of the text behind it."""

NODE_OP, NODE_A, NODE_B, NODE_DEPTH, NODE_END, NODE_CHILDREN = range(6)
"""Columns of the nodes of trees; the last two are written by `index_trees`."""

PART_POSITION, PART_LITERAL, PART_NEXT = range(3)
"""Columns of parts: the position of its run in it, its literal, and the next part with the run."""

FACT, VALUE, VARIANT, NODE, PART_COLUMNS, GIVEN_COLUMNS, ASKED_COLUMNS = 10, 4, 6, 6, 3, 3, 3
"""Numbers of columns."""

ASK_LITERALS, ASK_TEST, ASK_NUMBER = range(3)
"""Questions, and kinds of what is given: the literals of a fact, whether a test holds, the number of a value."""

DONE, FULL_FOUND, FULL_RANGES, FULL_MATCHES, FULL_ASKED, STALE = range(6)
"""Ends of a call: all rows, or a buffer that has to grow, or stamps that have to be cleared, before the next row."""

BEGIN, END = 0xFF, 0xFE
"""Marks around a value in which parts are looked for; no UTF-8 has them."""

ROWS, VALUES, VARIANTS, GIVEN_AT, GIVEN_ANSWERS = range(5)
"""Positions of the starts in `Messages.at`."""

SEGMENT_ARRAYS: Final = {
    "ints": (
        "literal_fact",
        "entries_at",
        "ways_at",
        "way_fact",
        "entry_subscription",
        "entry_program",
        "checks_at",
        "check_a",
        "check_b",
        "cuts_at",
        "tree_at",
    ),
    "longs": ("literal_text.offsets", "pair_key", "set_key", "set_bits", "test_text.offsets"),
    "bytes": ("literal_text.data", "check_op"),
    "floats": ("limit_low", "limit_high", "cuts"),
    "own": ("facts", "probed_at", "probed", "node_literals", "node_shifts", "tree_nodes", "parts"),
    "slots": ("literal_slots", "pair_slots", "set_slots", "part_slots", "part_at"),
    "own_bytes": ("part_bits", "part_data", "test_form", "test_data"),
}
"""Arrays of a segment by the field of `SegmentArrays` that they are in, in the order of the constants below."""

(
    LITERAL_FACT,
    ENTRIES_AT,
    WAYS_AT,
    WAY_FACT,
    ENTRY_SUBSCRIPTION,
    ENTRY_PROGRAM,
    CHECKS_AT,
    CHECK_A,
    CHECK_B,
    CUTS_AT,
    TREE_AT,
    LITERAL_AT,
    PAIR_KEY,
    SET_KEY,
    SET_BITS,
    TEST_AT,
    LITERAL_DATA,
    CHECK_OP,
    LIMIT_LOW,
    LIMIT_HIGH,
    CUTS,
    FACTS,
    PROBED_AT,
    PROBED,
    NODE_LITERALS,
    NODE_SHIFTS,
    TREE_NODES,
    PARTS,
    LITERAL_SLOTS,
    PAIR_SLOTS,
    SET_SLOTS,
    PART_SLOTS,
    PART_AT,
    PART_BITS,
    PART_DATA,
    TEST_FORM,
    TEST_DATA,
    LITERAL_MASK,
    PAIR_MASK,
    SET_MASK,
    PART_MASK,
    BIT_MASK,
    WAYS,
    PAIRS,
    ALWAYS_ENTRY,
    PAIRED_ENTRY,
) = range(46)
"""Positions in `SegmentArrays.at`: the start of each array, the lengths of tables less one, and some numbers."""

SEGMENT_POSITIONS: Final = 46

(
    EPOCH,
    FOUND,
    RANGES,
    MATCHED,
    ASKED,
    FOUND_ROOM,
    RANGES_ROOM,
    MATCHED_ROOM,
    ASKED_ROOM,
    S_FACTS,
    S_KEYS,
    S_NEXT_VALUE,
    S_SEEN,
    S_SUBSCRIPTIONS,
    S_TESTS,
    S_FOUND,
    S_RANGES,
    S_COUNTS,
    S_ASKED,
    _ROW,
    _FIRST_VALUE,
    _END_VALUE,
    _ANY,
    STATE,
) = range(24)
"""Positions in `Scratch.state`: the row's stamp, numbers of elements, room for these, and the starts within cells."""

FACT_STATE: Final = 3
_STAMP, _CHAIN, _SINGLE = range(3)
"""Columns of a fact's state; the single one is the only literal, 0 for none, or -1 if there may be several."""

KEY_STATE: Final = 5
_KEY_STAMP, _KEY_FIRST, _KEY_LAST, _KEY_COUNT, _KEY_NUMBERS = range(5)

MOST_EPOCH: Final = 1 << 29
_UNKNOWN, _ASKED = 2, 3
_GLOB: Final = 4
_LOW_32: Final = 0xFFFFFFFF
_STEPS_OF_BYTE: Final = 64
"""Comparisons for each byte of a value, from which on another way takes less time."""


class Messages(NamedTuple):
    """Values of messages, by row. Arrays of several columns are flat.

    Attributes:
        data: texts of values and variants.
        numbers: the first value of each row and the one behind its last; values, see `VALUE_KEY`; variants, see
            `FOLDED`; the first answer of each row; and answers: kind; fact, test or value; and literal (0 for none) or
            verdict.
        at: start of each of these.
        given_numbers: the number of each answer.
        key_of: the segment's number of each key; -1 for none.
    """

    data: Bytes
    numbers: Int64s
    at: Int64s
    given_numbers: Float64s
    key_of: Int32s


class SegmentArrays(NamedTuple):
    """Arrays of a segment; see `turnout.subscriptions.index.arrays`. Those of one type are one: calls take less time.

    Attributes:
        at: see `LITERAL_FACT` and those behind it.
        ints: arrays of the segment's file, as the next three.
        longs: of 64 bits.
        bytes: of bytes.
        floats: of floats.
        own: what is made of them: facts; the facts that entries are
            found by, by key; the literals of nodes; the nodes of trees; parts.
        slots: tables of hashes.
        own_bytes: the filter of runs, parts, and tests, folded where they fold.
    """

    at: Int64s
    ints: Int32s
    longs: Int64s
    bytes: Bytes
    floats: Float64s
    own: Int32s
    slots: Int64s
    own_bytes: Bytes


class Scratch(NamedTuple):
    """Buffers of a call, which are its caller's.

    Attributes:
        state: see `EPOCH` and those behind it.
        cells: the states of facts and keys; the next value of each value's key, -1 for none; the stamp of the row that
            has each literal, of the one that each subscription matched last, and of each test; found literals, each
            with the position of the next one of its fact; ranges of entries; by depth of a tree its group, and how many
            children are true and false; and questions: row, kind, and fact, test or value.
        numbers: by key: the least and the greatest number of its values.
        text: as many bytes as the longest value, and more.
        matches: row and subscription of each match.
    """

    state: Int64Buffer
    cells: Int32Buffer
    numbers: Float64Buffer
    text: ByteBuffer
    matches: Int64Buffer


@compiled
def index_literals(data: Bytes, at: Int64s, facts: Int32s, slots: Int64Buffer) -> None:
    """Fill a table of literals, whose length is a power of two; each slot is a hash above a literal from 1."""
    mask = len(slots) - 1
    for number in range(len(facts)):
        value = hash_of_text(data, at[number], at[number + 1], facts[number])
        slot = value & mask
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = (value << 32) | (number + 1)


@compiled
def index_keys(keys: Int64s, slots: Int64Buffer) -> None:
    """Fill a table of numbers of which equal ones are together; each slot is a hash above the first position from 1."""
    mask = len(slots) - 1
    for number in range(len(keys)):
        if number > 0 and keys[number - 1] == keys[number]:
            continue
        value = mixed(mixed(keys[number] >> 32) ^ (keys[number] & _LOW_32))
        slot = value & mask
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = (value << 32) | (number + 1)


@compiled
def index_parts(
    data: Bytes, at: Int64s, literal_fact: Int32s, parts: Int32Buffer2D, bits: ByteBuffer, slots: Int64Buffer
) -> None:
    """Fill the table of runs of parts, and its filter, by the positions of the runs in them."""
    mask = len(slots) - 1
    bit_mask = len(bits) * 8 - 1
    for number in range(len(parts)):
        fact = literal_fact[parts[number, 1] - 1]
        size = at[number + 1] - at[number]
        begin = at[number] + parts[number, 0]
        width = 0 if size >= 4 else 1 if size >= 2 else 2
        run = data[begin]
        if width < 2:
            run = run | (data[begin + 1] << 8)
        if width == 0:
            run = run | (data[begin + 2] << 16) | (data[begin + 3] << 24)
        value = mixed(run ^ mixed(fact * 4 + width))
        bits[(value & bit_mask) >> 3] |= 1 << (value & 7)
        slot = value & mask
        while slots[slot] != 0 and slots[slot] >> 32 != value:
            slot = (slot + 1) & mask
        parts[number, 2] = (slots[slot] & _LOW_32) - 1
        slots[slot] = (value << 32) | (number + 1)


@compiled
def index_trees(tree_at: Int32s, parent: Int32s, nodes: Int32Buffer2D) -> None:
    """Write the end of each node's subtree and the number of its children; nodes come after their parents."""
    for tree in range(len(tree_at) - 1):
        for node in range(tree_at[tree + 1] - 1, tree_at[tree] - 1, -1):
            if nodes[node, NODE_END] == 0:
                nodes[node, NODE_END] = node + 1
            if parent[node] > 0:
                above = node - parent[node]
                nodes[above, NODE_CHILDREN] += 1
                if nodes[above, NODE_END] < nodes[node, NODE_END]:
                    nodes[above, NODE_END] = nodes[node, NODE_END]


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
            position = (slots[first_slot + slot] & _LOW_32) - 1
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
            literal = found & _LOW_32
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
    if cells[own + _SINGLE] >= 0:
        cells[own + _SINGLE] = literal
    elif cells[seen] == state[EPOCH]:
        return
    else:
        cells[seen] = state[EPOCH]
    number = state[FOUND]
    state[FOUND] = number + 1
    if number < state[FOUND_ROOM]:
        cells[state[S_FOUND] + 2 * number] = literal
        cells[state[S_FOUND] + 2 * number + 1] = cells[own + _CHAIN]
        cells[own + _CHAIN] = number


@compiled
def _ask(kind: int, number: int, scratch: Scratch) -> None:
    """Add a question about the row."""
    state, cells = scratch.state, scratch.cells
    position = state[ASKED]
    state[ASKED] = position + 1
    if position < state[ASKED_ROOM]:
        first = state[S_ASKED] + ASKED_COLUMNS * position
        cells[first] = state[_ROW]
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
    steps = _STEPS_OF_BYTE * (size + _STEPS_OF_BYTE)
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
            number = (slots[at[PART_SLOTS] + slot] & _LOW_32) - 1
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
    if key == state[_ANY]:
        return value + 1 if value + 1 < state[_END_VALUE] else -1
    return cells[state[S_NEXT_VALUE] + value]


@inlined
def _number_of(value: int, messages: Messages, scratch: Scratch) -> float:
    """Return the number that a value is; NaN for none, and for one that is asked for."""
    at, numbers, state = messages.at, messages.numbers, scratch.state
    first = at[VALUES] + value * VALUE
    number = number_in(messages.data, numbers[first + VALUE_BEGIN], numbers[first + VALUE_END])
    if number != inf:
        return number
    for position in range(numbers[at[GIVEN_AT] + state[_ROW]], numbers[at[GIVEN_AT] + state[_ROW] + 1]):
        given = at[GIVEN_ANSWERS] + position * GIVEN_COLUMNS
        if numbers[given] == ASK_NUMBER and numbers[given + 1] == value:
            return messages.given_numbers[position]
    _ask(ASK_NUMBER, value, scratch)
    return nan


@compiled
def _read_numbers(key: int, messages: Messages, scratch: Scratch) -> None:
    """Read the numbers among the values of a key, unless they are read already."""
    state, cells = scratch.state, scratch.cells
    own = state[S_KEYS] + key * KEY_STATE
    if cells[own + _KEY_NUMBERS] == state[EPOCH]:
        return
    least, most = nan, nan
    value = cells[own + _KEY_FIRST]
    while value >= 0:
        number = _number_of(value, messages, scratch)
        if number == number:
            # The first one replaces NaN.
            least = least if least <= number else number
            most = most if most >= number else number
        value = _next_value(value, key, state, cells)
    cells[own + _KEY_NUMBERS] = state[EPOCH]
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
    value = cells[state[S_KEYS] + key * KEY_STATE + _KEY_FIRST]
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
    cells[mine + _STAMP] = state[EPOCH]
    cells[mine + _CHAIN] = -1
    cells[mine + _SINGLE] = 0
    first = segment.at[FACTS] + fact * FACT
    key, kind = own[first + FACT_KEY], own[first + FACT_KIND]
    of_key = state[S_KEYS] + key * KEY_STATE
    if cells[of_key + _KEY_STAMP] != state[EPOCH]:
        return
    if own[first + FACT_MANY] or cells[of_key + _KEY_COUNT] > 1:
        cells[mine + _SINGLE] = -1
    if kind == NODES:
        _add_nodes(fact, key, messages, segment, scratch)
    value = cells[of_key + _KEY_FIRST] if kind < NODES else -1
    words = own[first + FACT_WORDS]
    while value >= 0:
        folds = own[first + FACT_FOLDS]
        position = messages.at[VALUES] + value * VALUE
        begin, end, variant = (
            numbers[position + VALUE_BEGIN],
            numbers[position + VALUE_END],
            numbers[position + VALUE_VARIANT],
        )
        if variant >= 0 and folds + words > 0:
            column = FOLDED if words == 0 else FOLDED_WORDS if folds else WORDS
            position = messages.at[VARIANTS] + variant * VARIANT + column
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


@inlined
def _is_within(key: int, limits: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if each limit holds for a number of a key; equal limits are a number to be equal to."""
    state, cells = scratch.state, scratch.cells
    own = state[S_KEYS] + key * KEY_STATE
    if cells[own + _KEY_STAMP] != state[EPOCH]:
        return 0
    if cells[own + _KEY_NUMBERS] != state[EPOCH]:
        _read_numbers(key, messages, scratch)
    low, high = segment.floats[segment.at[LIMIT_LOW] + limits], segment.floats[segment.at[LIMIT_HIGH] + limits]
    if low < high or cells[own + _KEY_COUNT] == 1:
        return 1 if low <= scratch.numbers[2 * key + 1] and scratch.numbers[2 * key] <= high else 0
    value = cells[own + _KEY_FIRST]
    while value >= 0:
        if _number_of(value, messages, scratch) == low:
            return 1
        value = _next_value(value, key, state, cells)
    return 0


@compiled
def _holds(key: int, test: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if a test holds for a value of a key, 0 if not, and more if that is not known."""
    state, cells, at, numbers = scratch.state, scratch.cells, segment.at, messages.numbers
    own, mine = state[S_KEYS] + key * KEY_STATE, state[S_TESTS] + test
    if cells[own + _KEY_STAMP] != state[EPOCH]:
        return 0
    if cells[mine] >> 2 == state[EPOCH]:
        return cells[mine] & 3
    form = segment.own_bytes[at[TEST_FORM] + test]
    result = _UNKNOWN
    if form & 31 == _GLOB:
        result = 0
        pattern, behind = segment.longs[at[TEST_AT] + test], segment.longs[at[TEST_AT] + test + 1]
        value = cells[own + _KEY_FIRST]
        while value >= 0 and result == 0:
            position = messages.at[VALUES] + value * VALUE
            begin, end, variant = (
                numbers[position + VALUE_BEGIN],
                numbers[position + VALUE_END],
                numbers[position + VALUE_VARIANT],
            )
            folds = form >> 5
            if folds and variant >= 0:
                position = messages.at[VARIANTS] + variant * VARIANT + FOLDED
                begin, end, folds = numbers[position], numbers[position + 1], 0
            _copy(messages.data, begin, end, folds, scratch.text, 0)
            steps = _STEPS_OF_BYTE * (end - begin + behind - pattern + 1)
            first = at[TEST_DATA]
            result = glob_matches(
                segment.own_bytes, first + pattern, first + behind, scratch.text, 0, end - begin, steps
            )
            value = _next_value(value, key, state, cells)
        if result < 0:
            result = _UNKNOWN
    cells[mine] = (state[EPOCH] << 2) | result
    return result


@compiled
def _ask_test(key: int, test: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Ask whether a test holds, once for a row."""
    if _holds(key, test, messages, segment, scratch) == _UNKNOWN:
        _ask(ASK_TEST, test, scratch)
        scratch.cells[scratch.state[S_TESTS] + test] = (scratch.state[EPOCH] << 2) | _ASKED


@inlined
def _is_true(kind: int, a: int, b: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if a check without its negation is true, 0 if not, and more if that is not known."""
    if kind == LIMITS:
        return _is_within(a, b, messages, segment, scratch)
    if kind == HOLDS:
        return _holds(a, b, messages, segment, scratch)
    if scratch.cells[scratch.state[S_FACTS] + a * FACT_STATE + _STAMP] != scratch.state[EPOCH]:
        _read_fact(a, messages, segment, scratch)
    state, cells, at, longs, slots = scratch.state, scratch.cells, segment.at, segment.longs, segment.slots
    own = state[S_FACTS] + a * FACT_STATE
    if kind in (EQUAL, MANY):
        if cells[own + _SINGLE] >= 0:
            return 1 if cells[own + _SINGLE] == b else 0
        return 1 if cells[state[S_SEEN] + b] == state[EPOCH] else 0
    bits, count = longs[at[SET_BITS] + b], 0
    position = cells[own + _CHAIN]
    while position >= 0:
        literal = cells[state[S_FOUND] + 2 * position]
        if (bits >> (literal & 63)) & 1 and (
            _position_of(longs, at[SET_KEY], slots, at[SET_SLOTS], at[SET_MASK], b, literal) >= 0
        ):
            if kind == ONE_OF:
                return 1
            count += 1
        position = cells[state[S_FOUND] + 2 * position + 1]
    return 1 if count == 1 else 0


@inlined
def _verify(program: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if all checks of a program are true, 0 if not, and more if that is not known.

    Trees are read in the order of their nodes, and what cannot change a group any more is passed over.
    """
    at, ints, own, state, cells = segment.at, segment.ints, segment.own, scratch.state, scratch.cells
    unknown = 0
    for check in range(ints[at[CHECKS_AT] + program], ints[at[CHECKS_AT] + program + 1]):
        op, a, b = segment.bytes[at[CHECK_OP] + check], ints[at[CHECK_A] + check], ints[at[CHECK_B] + check]
        in_tree = op >> 1 == TREE
        node = ints[at[TREE_AT] + b] if in_tree else 0
        end = ints[at[TREE_AT] + b + 1] if in_tree else 1
        negated = op & 1
        truth = 0
        while node < end:
            depth = 0
            first = at[TREE_NODES] + node * NODE
            if in_tree:
                op, a, b, depth = (
                    own[first + NODE_OP],
                    own[first + NODE_A],
                    own[first + NODE_B],
                    own[first + NODE_DEPTH],
                )
                if op >> 1 == GROUP:
                    group = state[S_COUNTS] + 3 * depth
                    cells[group], cells[group + 1], cells[group + 2] = node, 0, 0
                    if own[first + NODE_CHILDREN] > 0:
                        node += 1
                        continue
            node += 1
            if op >> 1 == GROUP:
                truth = 1 if a <= 0 <= b else 0
            else:
                truth = _is_true(op >> 1, a, b, messages, segment, scratch)
            if truth > 1:
                unknown = 1
                break
            if not in_tree:
                break
            truth ^= op & 1
            while depth > 0:
                depth -= 1
                group = state[S_COUNTS] + 3 * depth
                above = at[TREE_NODES] + cells[group] * NODE
                cells[group + 2 - truth] += 1
                true, false, children = cells[group + 1], cells[group + 2], own[above + NODE_CHILDREN]
                least, most = own[above + NODE_A], own[above + NODE_B]
                if true > most or children - false < least:
                    truth = 0
                elif (true >= least and most >= children) or true + false == children:
                    truth = 1
                else:
                    depth = -1
                    break
                truth ^= own[above + NODE_OP] & 1
                node = own[above + NODE_END]
        if truth == negated:
            return 0
    return 1 if unknown == 0 else _UNKNOWN


@compiled
def _ask_of(program: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Ask about all tests of a program."""
    at, ints, own = segment.at, segment.ints, segment.own
    for check in range(ints[at[CHECKS_AT] + program], ints[at[CHECKS_AT] + program + 1]):
        kind, b = segment.bytes[at[CHECK_OP] + check] >> 1, ints[at[CHECK_B] + check]
        in_tree = kind == TREE
        for node in range(ints[at[TREE_AT] + b] if in_tree else 0, ints[at[TREE_AT] + b + 1] if in_tree else 1):
            first = at[TREE_NODES] + node * NODE
            if in_tree and own[first + NODE_OP] >> 1 == HOLDS:
                _ask_test(own[first + NODE_A], own[first + NODE_B], messages, segment, scratch)
            elif kind == HOLDS:
                _ask_test(ints[at[CHECK_A] + check], b, messages, segment, scratch)


@inlined
def _read_row(messages: Messages, scratch: Scratch) -> int:
    """Put the values of a row and what is given for it into position; return 1 if a key has several values."""
    state, cells, at, numbers = scratch.state, scratch.cells, messages.at, messages.numbers
    first, last = numbers[at[ROWS] + 2 * state[_ROW]], numbers[at[ROWS] + 2 * state[_ROW] + 1]
    state[_FIRST_VALUE], state[_END_VALUE] = first, last
    several = 0
    for value in range(first, last):
        key = messages.key_of[numbers[at[VALUES] + value * VALUE + VALUE_KEY]]
        if key < 0:
            continue
        own = state[S_KEYS] + key * KEY_STATE
        cells[state[S_NEXT_VALUE] + value] = -1
        if cells[own + _KEY_STAMP] == state[EPOCH]:
            cells[state[S_NEXT_VALUE] + cells[own + _KEY_LAST]] = value
            cells[own + _KEY_COUNT] += 1
            several = 1
        else:
            cells[own + _KEY_STAMP], cells[own + _KEY_FIRST], cells[own + _KEY_COUNT] = state[EPOCH], value, 1
        cells[own + _KEY_LAST] = value
    if state[_ANY] >= 0 and last > first:
        own = state[S_KEYS] + state[_ANY] * KEY_STATE
        cells[own + _KEY_STAMP], cells[own + _KEY_FIRST], cells[own + _KEY_COUNT] = state[EPOCH], first, last - first
        several = 1
    for position in range(numbers[at[GIVEN_AT] + state[_ROW]], numbers[at[GIVEN_AT] + state[_ROW] + 1]):
        given = at[GIVEN_ANSWERS] + position * GIVEN_COLUMNS
        kind, number, answer = numbers[given], numbers[given + 1], numbers[given + 2]
        if kind == ASK_TEST:
            cells[state[S_TESTS] + number] = (state[EPOCH] << 2) | answer
        elif kind == ASK_LITERALS:
            own = state[S_FACTS] + number * FACT_STATE
            if cells[own + _STAMP] != state[EPOCH]:
                cells[own + _STAMP], cells[own + _CHAIN], cells[own + _SINGLE] = state[EPOCH], -1, -1
            _add_literal(answer, number, scratch)
    return several


@inlined
def _add_range(begin: int, end: int, scratch: Scratch) -> None:
    """Add entries to verify."""
    state, cells = scratch.state, scratch.cells
    number = state[RANGES]
    if begin < end:
        state[RANGES] = number + 1
        if number < state[RANGES_ROOM]:
            cells[state[S_RANGES] + 2 * number] = begin
            cells[state[S_RANGES] + 2 * number + 1] = end


@inlined
def _find_entries(messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the ranges of entries that the row's literals find, by themselves and two together."""
    state, cells, at, ints, longs = scratch.state, scratch.cells, segment.at, segment.ints, segment.longs
    _add_range(at[ALWAYS_ENTRY], at[PAIRED_ENTRY], scratch)
    top = min(state[FOUND], state[FOUND_ROOM])
    for number in range(top):
        literal = cells[state[S_FOUND] + 2 * number]
        _add_range(ints[at[ENTRIES_AT] + literal], ints[at[ENTRIES_AT] + literal + 1], scratch)
        first = ints[at[WAYS_AT] + literal] if at[WAYS] else 0
        last = ints[at[WAYS_AT] + literal + 1] if at[WAYS] else 0
        for way in range(first, last):
            fact = ints[at[WAY_FACT] + way]
            if cells[state[S_FACTS] + fact * FACT_STATE + _STAMP] != state[EPOCH]:
                _read_fact(fact, messages, segment, scratch)
            position = cells[state[S_FACTS] + fact * FACT_STATE + _CHAIN]
            while position >= 0:
                second = cells[state[S_FOUND] + 2 * position]
                pair = _position_of(longs, at[PAIR_KEY], segment.slots, at[PAIR_SLOTS], at[PAIR_MASK], way, second)
                if pair >= 0:
                    behind = pair + 1
                    while behind < at[PAIRS] and longs[at[PAIR_KEY] + behind] == longs[at[PAIR_KEY] + pair]:
                        behind += 1
                    _add_range(at[PAIRED_ENTRY] + pair, at[PAIRED_ENTRY] + behind, scratch)
                position = cells[state[S_FOUND] + 2 * position + 1]


@inlined
def _read_probed(messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Read the facts of the row's keys that entries are found by."""
    state, cells, at, own = scratch.state, scratch.cells, segment.at, segment.own
    # The last one is for the key whose values are those of all keys.
    for value in range(state[_FIRST_VALUE], state[_END_VALUE] + 1):
        key = state[_ANY]
        if value < state[_END_VALUE]:
            key = messages.key_of[messages.numbers[messages.at[VALUES] + value * VALUE + VALUE_KEY]]
            if key >= 0 and cells[state[S_KEYS] + key * KEY_STATE + _KEY_FIRST] != value:
                key = -1
        if key >= 0:
            for position in range(own[at[PROBED_AT] + key], own[at[PROBED_AT] + key + 1]):
                fact = own[at[PROBED] + position]
                if cells[state[S_FACTS] + fact * FACT_STATE + _STAMP] != state[EPOCH]:
                    _read_fact(fact, messages, segment, scratch)


@inlined
def _match_row(distinct: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the matches of the row, or what it asks."""
    state, cells, at, ints = scratch.state, scratch.cells, segment.at, segment.ints
    state[FOUND], state[RANGES] = 0, 0
    distinct = distinct | _read_row(messages, scratch)
    _read_probed(messages, segment, scratch)
    _find_entries(messages, segment, scratch)
    last, verdict = -1, 0
    for number in range(min(state[RANGES], state[RANGES_ROOM])):
        first = cells[state[S_RANGES] + 2 * number]
        for entry in range(first, cells[state[S_RANGES] + 2 * number + 1]):
            program = ints[at[ENTRY_PROGRAM] + entry]
            if program != last:
                last, verdict = program, _verify(program, messages, segment, scratch)
                if verdict > 1:
                    _ask_of(program, messages, segment, scratch)
            if verdict != 1:
                continue
            subscription = ints[at[ENTRY_SUBSCRIPTION] + entry]
            if distinct:
                if cells[state[S_SUBSCRIPTIONS] + subscription] == state[EPOCH]:
                    continue
                cells[state[S_SUBSCRIPTIONS] + subscription] = state[EPOCH]
            position = state[MATCHED]
            state[MATCHED] = position + 1
            if position < state[MATCHED_ROOM]:
                scratch.matches[2 * position] = state[_ROW]
                scratch.matches[2 * position + 1] = subscription


@compiled
def match(
    data: Bytes,
    values: Int64s,
    values_at: Int64s,
    given_numbers: Float64s,
    key_of: Int32s,
    at: Int64s,
    ints: Int32s,
    longs: Int64s,
    bytes_: Bytes,
    floats: Float64s,
    own: Int32s,
    slots: Int64s,
    own_bytes: Bytes,
    state: Int64Buffer,
    cells: Int32Buffer,
    numbers: Float64Buffer,
    text: ByteBuffer,
    matches: Int64Buffer,
    first: int,
    last: int,
    any_key: int,
    distinct: int,
) -> tuple[int, int]:
    """Match rows from the first one on, and return the next row and why it is not done.

    The arrays are those of `Messages`, `SegmentArrays` and `Scratch`: an array takes less time to pass than a tuple.
    Rows are matched up to, and without, the last one. *any_key* is the key whose values are those of all keys, -1 for
    none; *distinct* is 1 if a row may find a subscription several times.
    """
    messages = Messages(data, values, values_at, given_numbers, key_of)
    segment = SegmentArrays(at, ints, longs, bytes_, floats, own, slots, own_bytes)
    scratch = Scratch(state, cells, numbers, text, matches)
    state[_ANY] = any_key
    for row in range(first, last):
        if state[EPOCH] >= MOST_EPOCH - 1:
            return row, STALE
        matched, asked = state[MATCHED], state[ASKED]
        state[EPOCH] += 1
        state[_ROW] = row
        _match_row(distinct, messages, segment, scratch)
        full = DONE
        if state[FOUND] > state[FOUND_ROOM]:
            full = FULL_FOUND
        elif state[RANGES] > state[RANGES_ROOM]:
            full = FULL_RANGES
        elif state[MATCHED] > state[MATCHED_ROOM]:
            full = FULL_MATCHES
        elif state[ASKED] > state[ASKED_ROOM]:
            full = FULL_ASKED
        if full != DONE or state[ASKED] > asked:
            state[MATCHED] = matched
        if full != DONE:
            state[ASKED] = asked
            return row, full
    return last, DONE
