"""Arrays of a segment, of messages and of a call that the loop of matching reads, and loops that fill them."""

from __future__ import annotations

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
from turnout.loops.json import _nested_end, _space_end, _word_end
from turnout.loops.texts import (
    _HIGH_BITS,
    _code_of,
    _digits_end,
    _is_text,
    _plain_end,
    are_equal,
    hash_of_text,
    mixed,
    word_at,
)

EQUAL: Final = 0
ONE_OF: Final = 1
LIMITS: Final = 2
MANY: Final = 3
HOLDS: Final = 4
TREE: Final = 5
GROUP: Final = 6
JUST_ONE: Final = 7

WHOLE, FIRST, LAST, RUNS, HAS, PART, NODES, NETWORK = range(8)
"""Kinds of facts: what is derived from a value; of a network it is the first bits of an IP address."""

ADDRESS_ROOM: Final = 64
"""Bytes of scratch for the text of these bits, and for the address."""

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

NEEDS_VARIANTS: Final = -2
"""Variant of the first value of a message some of whose values have such letters, and no variants yet."""

FOLDED, WORDS, FOLDED_WORDS = 0, 2, 4
"""Columns of variants, each with the end of the text behind it."""

NODE_OP, NODE_A, NODE_B, NODE_DEPTH, NODE_END, NODE_CHILDREN = range(6)
"""Columns of the nodes of trees; the last two are written by `index_trees`."""

PART_POSITION, PART_LITERAL, PART_NEXT = range(3)
"""Columns of parts: the position of its run in it, its literal, and the next part with the run."""

FACT, VALUE, VARIANT, NODE, PART_COLUMNS, GIVEN_COLUMNS, ASKED_COLUMNS = 10, 4, 6, 6, 3, 3, 3
"""Numbers of columns."""

ASK_LITERALS, ASK_TEST, ASK_NUMBER, ASK_VARIANTS = range(4)
"""Questions, and kinds of what is given: the literals of a fact, whether a test holds, the number of a value.

The variants of a message's values are not given: with them it is matched as another message.
"""

DONE, FULL_FOUND, FULL_RANGES, FULL_MATCHES, FULL_ASKED, STALE = range(6)
"""Ends of a call: all rows, or a buffer that has to grow, or stamps that have to be cleared, before the next row."""

IS_LEFT, IS_ASKING = -1, -2
"""Results of a call for objects of JSON that has not found the matches of all."""

BEHIND_OBJECT: Final = 17
"""Bytes behind an object of JSON: a separator, and zeros that the loop may read."""

LEAST_MEMBER: Final = 5
"""Bytes of a name and a value of an object of JSON, at least, and what is between two: ``"":1,``."""

BEYOND_ASCII: Final = 128
"""The first byte of letters that are not ASCII, and the first of no value."""

BEGIN, END = 0xFF, 0xFE
"""Marks around a value in which parts are looked for; no UTF-8 has them."""

ROWS, VALUES, VARIANTS, GIVEN_AT, GIVEN_ANSWERS = range(5)
"""Positions of the starts in `Messages.numbers`."""

STARTS: Final = 5
"""Number of these: rows come behind them."""

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
    "own": ("facts", "probed_at", "probed", "node_literals", "node_shifts", "tree_nodes", "parts", "test_other"),
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
    TEST_OTHER,
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
) = range(47)
"""Positions in `SegmentArrays.at`: the start of each array, the lengths of tables less one, and some numbers."""

SEGMENT_POSITIONS: Final = 47

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
    ROW,
    FIRST_VALUE,
    END_VALUE,
    ANY,
    STATE,
) = range(24)
"""Positions in `Scratch.state`: the row's stamp, numbers of elements, room for these, and the starts within cells."""

FACT_STATE: Final = 4
STAMP, CHAIN, SINGLE, HASH = range(4)
"""Columns of a fact's state; the single one is the only literal, 0 for none, or -1 if there may be several."""

MOST_PLAIN: Final = 256
"""Facts of a row that are looked up together."""

KEY_STATE: Final = 5
KEY_STAMP, KEY_FIRST, KEY_LAST, KEY_COUNT, KEY_NUMBERS = range(5)

MOST_EPOCH: Final = 1 << 29
UNKNOWN, ROW_ASKED = 2, 3
GLOB, FIELD = 4, 15
"""Forms of the tests that a loop carries out."""

IS_LESS, IS_SAME, IS_MORE = 1, 2, 4
"""Bits of how two values compare where a test of two keys holds; texts are the same or differ, and have no order."""

LOW_32: Final = 0xFFFFFFFF
STEPS_OF_BYTE: Final = 64
"""Comparisons for each byte of a value, from which on another way takes less time."""


class Messages(NamedTuple):
    """Values of messages, by row. Arrays of several columns are flat.

    Attributes:
        data: texts of values and variants.
        numbers: the start of each of these: the first value of each row and the one behind its last; values, see
            `VALUE_KEY`; variants, see `FOLDED`; the first answer of each row; and answers: kind; fact, test or value;
            and literal (0 for none) or verdict.
        given_numbers: the number of each answer.
        key_of: the segment's number of each key; -1 for none.
    """

    data: ByteBuffer
    numbers: Int64Buffer
    given_numbers: Float64Buffer
    key_of: Int32s


class Keys(NamedTuple):
    """Known keys of messages.

    Attributes:
        texts: one after another.
        at: start of each of them, and the end of the last one.
        numbers: number of each of them.
        slots: table of them, see `index_literals`; their facts are 0.
    """

    texts: Bytes
    at: Int64s
    numbers: Int32s
    slots: Int64s


class SegmentArrays(NamedTuple):
    """Arrays of a segment; see `turnout.subscriptions.index.arrays`. Those of one type are one: calls take less time.

    Attributes:
        at: see `LITERAL_FACT` and those behind it.
        ints: arrays of the segment's file, as the next three.
        longs: of 64 bits.
        bytes: of bytes.
        floats: of floats.
        own: what is made of them: facts; the facts that entries are
            found by, by key; the literals of nodes; the nodes of trees; parts; for each test of two keys the second
            one, times eight, with the bits of `IS_LESS` and the others.
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
        matches: the subscription of each match, and from `MATCHED_ROOM` on the row of each.
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
        value = mixed(mixed(keys[number] >> 32) ^ (keys[number] & LOW_32))
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
        parts[number, 2] = (slots[slot] & LOW_32) - 1
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


_QUOTE: Final = 34
_BACKSLASH: Final = 92
_LETTER_U: Final = 117
_MOST_DIGITS: Final = 15
"""Digits of a number with a point of which each is in the number's shortest text."""

_MOST_WHOLE_DIGITS: Final = 7

OTHER_KEYS: Final = 64
"""Most unknown keys of an object: with more, a repeated one is not looked for, and the object is left."""

MOST_VALUES: Final = 1_000
"""Values of a message of which all count under the key of any; see `turnout.base.multivalued.MAX_VALUES`."""


@compiled
def _unescaped(data: ByteBuffer, at: int) -> tuple[int, int]:
    """Resolve the escapes from one on, in place; return the end of the text, and the offset behind its quote.

    That is -1 if the text is not valid, and for surrogates.
    """
    end = at
    while data[at] != _QUOTE:
        byte = data[at]
        if byte < 32:
            return end, -1
        if byte == _BACKSLASH:
            at += 1
            byte = data[at]
            if byte == _LETTER_U:
                code = _code_of(data, at + 1)
                if code < 0:
                    return end, -1
                at += 4
                if code >= 0x800:
                    data[end] = 0xE0 | (code >> 12)
                    data[end + 1] = 0x80 | ((code >> 6) & 63)
                    end += 2
                elif code >= 0x80:
                    data[end] = 0xC0 | (code >> 6)
                    end += 1
                byte = code if code < 0x80 else 0x80 | (code & 63)
            elif byte == 98 or byte == 116 or byte == 110:
                byte = 8 if byte == 98 else 9 if byte == 116 else 10
            elif byte == 102 or byte == 114:
                byte = 12 if byte == 102 else 13
            elif byte != _QUOTE and byte != _BACKSLASH and byte != 47:
                return end, -1
        data[end] = byte
        end += 1
        at += 1
    return end, at + 1


@compiled
def _is_own_text(data: ByteBuffer, begin: int, end: int) -> bool:
    """Return True if a number of JSON is the text that conditions see of it, see `turnout.records.text.text_of`."""
    first = begin + 1 if data[begin] == 45 else begin
    at = _digits_end(data, first)
    whole = at - first
    if at == end:
        return whole <= _MOST_DIGITS and (data[first] != 48 or first == begin)
    if data[at] != 46 or _digits_end(data, at + 1) != end or whole > _MOST_WHOLE_DIGITS or end - first > _MOST_DIGITS:
        return False
    if data[end - 1] == 48:
        return end == at + 2
    # Below a thousandth it has an exponent.
    return not (data[first] == 48 and data[at + 1] == 48 and data[at + 2] == 48 and data[at + 3] == 48)


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
def fill_values(bounds: Int64s, keys: Int32s, rows: int, numbers: Int64Buffer) -> tuple[int, int]:
    """Write the values of columns message by message; see `Messages`.

    Args:
        bounds: begin of each value of the first column, of the second, and so on; then the end of each, which comes
            before the begin where a message has none.
        keys: number of each column's key.
        rows: how many messages there are.
        numbers: receives the starts, rows and values, with zeros behind them.

    Returns:
        The number of values, and the bytes of the longest one.
    """
    first = at = STARTS + 2 * rows
    ends, longest = len(keys) * rows, 0
    for row in range(rows):
        numbers[STARTS + 2 * row] = (at - first) // VALUE
        for column in range(len(keys)):
            begin, end = bounds[column * rows + row], bounds[ends + column * rows + row]
            if end >= begin:
                numbers[at + VALUE_KEY] = keys[column]
                numbers[at + VALUE_BEGIN] = begin
                numbers[at + VALUE_END] = end
                numbers[at + VALUE_VARIANT] = -1
                at += VALUE
                longest = max(longest, end - begin)
        numbers[STARTS + 2 * row + 1] = (at - first) // VALUE
    for index in range(at, len(numbers)):
        numbers[index] = 0
    numbers[ROWS], numbers[VALUES], numbers[VARIANTS], numbers[GIVEN_AT] = STARTS, first, at, at
    numbers[GIVEN_ANSWERS] = at + rows + 1
    return (at - first) // VALUE, longest


@compiled
def read_objects(
    data: ByteBuffer,
    size: int,
    rows: int,
    separator: int,
    keys: Bytes,
    key_at: Int64s,
    key_numbers: Int32s,
    slots: Int64s,
    unknown: int,
    numbers: Int64Buffer,
) -> tuple[int, int, int]:
    """Read messages, which are objects of JSON; see `Messages`.

    Args:
        data: the objects, each with the separator behind it, and 16 zeros; escapes are resolved in it.
        size: bytes without the zeros.
        rows: how many messages there are.
        separator: a newline behind each object of an encoder; or 0 between objects of anyone, with blanks around.
        keys: see `Keys`, and the next three too.
        key_at: see there.
        key_numbers: see there.
        slots: see there.
        unknown: number of the values of other keys; -1 to leave these out.
        numbers: receives the starts, rows and values; and as many numbers more as there are known keys, and
            `OTHER_KEYS`, and one.

    Returns:
        The number of values, or -1 if the objects are left to the reference: not valid, a key twice, a value whose text
        is not as it is written, too many keys or values; the bytes of the longest one; and a number from 128 on if one
        of them has letters beyond ASCII.
    """
    first, others = STARTS + 2 * rows, len(numbers) - OTHER_KEYS
    stamps = others - len(key_numbers)
    room = stamps - rows - 1 - VALUE
    position, longest, letters, at, seen = first, 0, 0, 0, 0
    for index in range(0, size, 8):
        seen |= word_at(data, index)
    has_letters = seen & _HIGH_BITS != 0
    if has_letters and separator == 0 and not _is_text(data, 0, size):
        return -1, longest, letters
    for index in range(stamps, others):
        numbers[index] = 0
    for row in range(rows):
        begun, other_keys = position, 0
        numbers[STARTS + 2 * row] = (position - first) // VALUE
        at = _space_end(data, at)
        if data[at] != 123:
            return -1, longest, letters
        at = _space_end(data, at + 1)
        more = data[at] != 125
        while more:
            if data[at] != _QUOTE:
                return -1, longest, letters
            begin = at + 1
            end = _plain_end(data, begin)
            at = end + 1
            if data[end] != _QUOTE:
                end, at = _unescaped(data, end)
            number = _key_of(data, begin, end, keys, key_at, key_numbers, slots)
            if at < 0 or (number >= 0 and numbers[stamps + number] == row + 1):
                return -1, longest, letters
            if number >= 0:
                numbers[stamps + number] = row + 1
            elif unknown >= 0 and separator == 0:
                hashed = hash_of_text(data, begin, end, 0)
                if other_keys == OTHER_KEYS:
                    return -1, longest, letters
                for index in range(others, others + other_keys):
                    if numbers[index] == hashed:
                        return -1, longest, letters
                numbers[others + other_keys] = hashed
                other_keys += 1
            number = number if number >= 0 else unknown
            if data[at] <= 32:
                at = _space_end(data, at)
            if data[at] != 58:
                return -1, longest, letters
            at += 1
            if data[at] <= 32:
                at = _space_end(data, at)
            begin = at
            may_have_letters = has_letters
            byte = data[at]
            if byte == _QUOTE:
                begin += 1
                end = _plain_end(data, begin)
                at = end + 1
                if data[end] != _QUOTE:
                    end, at = _unescaped(data, end)
                    may_have_letters = True
            elif byte == 123 or byte == 91:
                end = at = -1 if number >= 0 else _nested_end(data, at)
            else:
                end = at = _word_end(data, at)
                if byte == 110:
                    number = -1
                elif byte < 58 and number >= 0 and at > 0 and not _is_own_text(data, begin, end):
                    at = -1
            if at < 0 or position > room:
                return -1, longest, letters
            if number >= 0:
                if may_have_letters:
                    for index in range(begin, end):
                        letters |= data[index]
                longest = max(longest, end - begin)
                numbers[position + VALUE_KEY] = number
                numbers[position + VALUE_BEGIN] = begin
                numbers[position + VALUE_END] = end
                numbers[position + VALUE_VARIANT] = -1
                position += VALUE
            if data[at] <= 32:
                at = _space_end(data, at)
            more = data[at] == 44
            if more:
                at = _space_end(data, at + 1)
            elif data[at] != 125:
                return -1, longest, letters
        at += 1
        if data[at] != separator:
            at = _space_end(data, at)
        if data[at] != separator or (unknown >= 0 and position - begun > MOST_VALUES * VALUE):
            return -1, longest, letters
        at += 1
        numbers[STARTS + 2 * row + 1] = (position - first) // VALUE
    if at != size:
        return -1, longest, letters
    numbers[ROWS], numbers[VALUES], numbers[VARIANTS], numbers[GIVEN_AT] = STARTS, first, position, position
    numbers[GIVEN_ANSWERS] = position + rows + 1
    for row in range(rows + 1):
        numbers[position + row] = 0
    return (position - first) // VALUE, longest, letters
