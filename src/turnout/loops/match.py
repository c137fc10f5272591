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

from math import nan

from turnout.loops.compiled import (
    ByteBuffer,
    Bytes,
    Float64Buffer,
    Float64s,
    Int32Buffer,
    Int32s,
    Int64Buffer,
    Int64s,
    compiled,
    inlined,
)
from turnout.loops.facts import (
    _add_literal,
    _ask,
    _copy,
    _next_value,
    _number_of,
    _position_of,
    _read_fact,
    _read_numbers,
)
from turnout.loops.segment_arrays import (
    ALWAYS_ENTRY,
    ANY,
    ASK_LITERALS,
    ASK_TEST,
    ASKED,
    ASKED_ROOM,
    CHAIN,
    CHECK_A,
    CHECK_B,
    CHECK_OP,
    CHECKS_AT,
    DONE,
    END_VALUE,
    ENTRIES_AT,
    ENTRY_PROGRAM,
    ENTRY_SUBSCRIPTION,
    EPOCH,
    EQUAL,
    FACT_STATE,
    FIELD,
    FIRST_VALUE,
    FOLDED,
    FOUND,
    FOUND_ROOM,
    FULL_ASKED,
    FULL_FOUND,
    FULL_MATCHES,
    FULL_RANGES,
    GIVEN_ANSWERS,
    GIVEN_AT,
    GIVEN_COLUMNS,
    GLOB,
    GROUP,
    HOLDS,
    IS_LESS,
    IS_MORE,
    IS_SAME,
    KEY_COUNT,
    KEY_FIRST,
    KEY_LAST,
    KEY_NUMBERS,
    KEY_STAMP,
    KEY_STATE,
    LIMIT_HIGH,
    LIMIT_LOW,
    LIMITS,
    MANY,
    MATCHED,
    MATCHED_ROOM,
    MOST_EPOCH,
    NODE,
    NODE_A,
    NODE_B,
    NODE_CHILDREN,
    NODE_DEPTH,
    NODE_END,
    NODE_OP,
    ONE_OF,
    PAIR_KEY,
    PAIR_MASK,
    PAIR_SLOTS,
    PAIRED_ENTRY,
    PAIRS,
    PROBED,
    PROBED_AT,
    RANGES,
    RANGES_ROOM,
    ROW,
    ROW_ASKED,
    ROWS,
    S_COUNTS,
    S_FACTS,
    S_FOUND,
    S_KEYS,
    S_NEXT_VALUE,
    S_RANGES,
    S_SEEN,
    S_SUBSCRIPTIONS,
    S_TESTS,
    SET_BITS,
    SET_KEY,
    SET_MASK,
    SET_SLOTS,
    SINGLE,
    STALE,
    STAMP,
    STEPS_OF_BYTE,
    TEST_AT,
    TEST_DATA,
    TEST_FORM,
    TEST_OTHER,
    TREE,
    TREE_AT,
    TREE_NODES,
    UNKNOWN,
    VALUE,
    VALUE_BEGIN,
    VALUE_END,
    VALUE_KEY,
    VALUE_VARIANT,
    VALUES,
    VARIANT,
    VARIANTS,
    WAY_FACT,
    WAYS,
    WAYS_AT,
    Messages,
    Scratch,
    SegmentArrays,
)
from turnout.loops.texts import glob_matches


@inlined
def _is_within(key: int, limits: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if each limit holds for a number of a key; equal limits are a number to be equal to."""
    state, cells = scratch.state, scratch.cells
    own = state[S_KEYS] + key * KEY_STATE
    if cells[own + KEY_STAMP] != state[EPOCH]:
        return 0
    if cells[own + KEY_NUMBERS] != state[EPOCH]:
        _read_numbers(key, messages, scratch)
    low, high = segment.floats[segment.at[LIMIT_LOW] + limits], segment.floats[segment.at[LIMIT_HIGH] + limits]
    if low < high or cells[own + KEY_COUNT] == 1:
        return 1 if low <= scratch.numbers[2 * key + 1] and scratch.numbers[2 * key] <= high else 0
    value = cells[own + KEY_FIRST]
    while value >= 0:
        if _number_of(value, messages, scratch) == low:
            return 1
        value = _next_value(value, key, state, cells)
    return 0


@compiled
def _compares(value: int, other: int, wanted: int, folds: int, messages: Messages, scratch: Scratch) -> int:
    """Return 1 if two values compare as is *wanted*, see `IS_LESS`; 0 if not, and more if that is not known."""
    numbers, data = messages.numbers, messages.data
    number, against = _number_of(value, messages, scratch), nan
    if number == number:
        against = _number_of(other, messages, scratch)
    if against == against:
        relation = IS_LESS if number < against else IS_MORE if number > against else IS_SAME
        return 1 if wanted & relation else 0
    if wanted != IS_SAME and wanted != IS_LESS | IS_MORE:
        return 0
    first, second = numbers[VALUES] + value * VALUE, numbers[VALUES] + other * VALUE
    begin, size = numbers[first + VALUE_BEGIN], numbers[first + VALUE_END] - numbers[first + VALUE_BEGIN]
    start, length = numbers[second + VALUE_BEGIN], numbers[second + VALUE_END] - numbers[second + VALUE_BEGIN]
    is_same, index = size == length, 0
    while index < max(size, length) and (folds or is_same):
        byte = data[begin + index] if index < size else 0
        its = data[start + index] if index < length else 0
        if folds and (byte > 127 or its > 127):
            # A letter beyond ASCII may fold to several.
            return UNKNOWN
        alike = byte == its or (folds and byte | 32 == its | 32 and 97 <= byte | 32 <= 122)
        is_same = is_same and alike
        index += 1
    return 1 if is_same == (wanted == IS_SAME) else 0


@compiled
def _are_met(key: int, other: int, folds: int, messages: Messages, scratch: Scratch) -> int:
    """Return 1 if a value of a key compares with one of another as it should, 0 if not, and more if that is not known.

    The number of the other key is above the three bits of `IS_LESS`.
    """
    state, cells = scratch.state, scratch.cells
    other_key, result = other >> 3, 0
    own = state[S_KEYS] + other_key * KEY_STATE
    value = cells[state[S_KEYS] + key * KEY_STATE + KEY_FIRST]
    while value >= 0 and cells[own + KEY_STAMP] == state[EPOCH]:
        second = cells[own + KEY_FIRST]
        while second >= 0 and result != 1:
            verdict = _compares(value, second, other & 7, folds, messages, scratch)
            result = verdict if verdict != 0 else result
            second = _next_value(second, other_key, state, cells)
        value = _next_value(value, key, state, cells)
    return result


@compiled
def _holds(key: int, test: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if a test holds for a value of a key, 0 if not, and more if that is not known."""
    state, cells, at, numbers = scratch.state, scratch.cells, segment.at, messages.numbers
    own, mine = state[S_KEYS] + key * KEY_STATE, state[S_TESTS] + test
    if cells[own + KEY_STAMP] != state[EPOCH]:
        return 0
    if cells[mine] >> 2 == state[EPOCH]:
        return cells[mine] & 3
    form = segment.own_bytes[at[TEST_FORM] + test]
    result = UNKNOWN
    if form & 31 == GLOB:
        result = 0
        pattern, behind = segment.longs[at[TEST_AT] + test], segment.longs[at[TEST_AT] + test + 1]
        value = cells[own + KEY_FIRST]
        while value >= 0 and result == 0:
            position = numbers[VALUES] + value * VALUE
            begin, end, variant = (
                numbers[position + VALUE_BEGIN],
                numbers[position + VALUE_END],
                numbers[position + VALUE_VARIANT],
            )
            folds = form >> 5
            if folds and variant >= 0:
                position = numbers[VARIANTS] + variant * VARIANT + FOLDED
                begin, end, folds = numbers[position], numbers[position + 1], 0
            _copy(messages.data, begin, end, folds, scratch.text, 0)
            steps = STEPS_OF_BYTE * (end - begin + behind - pattern + 1)
            first = at[TEST_DATA]
            result = glob_matches(
                segment.own_bytes, first + pattern, first + behind, scratch.text, 0, end - begin, steps
            )
            value = _next_value(value, key, state, cells)
        if result < 0:
            result = UNKNOWN
    elif form & 31 == FIELD:
        result = _are_met(key, segment.own[at[TEST_OTHER] + test], form >> 5, messages, scratch)
    cells[mine] = (state[EPOCH] << 2) | result
    return result


@compiled
def _ask_test(key: int, test: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Ask whether a test holds, once for a row."""
    if _holds(key, test, messages, segment, scratch) == UNKNOWN:
        _ask(ASK_TEST, test, scratch)
        scratch.cells[scratch.state[S_TESTS] + test] = (scratch.state[EPOCH] << 2) | ROW_ASKED


@inlined
def _is_true(kind: int, a: int, b: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if a check without its negation is true, 0 if not, and more if that is not known."""
    if kind == LIMITS:
        return _is_within(a, b, messages, segment, scratch)
    if kind == HOLDS:
        return _holds(a, b, messages, segment, scratch)
    if scratch.cells[scratch.state[S_FACTS] + a * FACT_STATE + STAMP] != scratch.state[EPOCH]:
        _read_fact(a, messages, segment, scratch)
    state, cells, at, longs, slots = scratch.state, scratch.cells, segment.at, segment.longs, segment.slots
    own = state[S_FACTS] + a * FACT_STATE
    if kind in (EQUAL, MANY):
        if cells[own + SINGLE] >= 0:
            return 1 if cells[own + SINGLE] == b else 0
        return 1 if cells[state[S_SEEN] + b] == state[EPOCH] else 0
    bits, count = longs[at[SET_BITS] + b], 0
    position = cells[own + CHAIN]
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
    return 1 if unknown == 0 else UNKNOWN


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
    state, cells, numbers = scratch.state, scratch.cells, messages.numbers
    first, last = numbers[numbers[ROWS] + 2 * state[ROW]], numbers[numbers[ROWS] + 2 * state[ROW] + 1]
    state[FIRST_VALUE], state[END_VALUE] = first, last
    several = 0
    for value in range(first, last):
        key = messages.key_of[numbers[numbers[VALUES] + value * VALUE + VALUE_KEY]]
        if key < 0:
            continue
        own = state[S_KEYS] + key * KEY_STATE
        cells[state[S_NEXT_VALUE] + value] = -1
        if cells[own + KEY_STAMP] == state[EPOCH]:
            cells[state[S_NEXT_VALUE] + cells[own + KEY_LAST]] = value
            cells[own + KEY_COUNT] += 1
            several = 1
        else:
            cells[own + KEY_STAMP], cells[own + KEY_FIRST], cells[own + KEY_COUNT] = state[EPOCH], value, 1
        cells[own + KEY_LAST] = value
    if state[ANY] >= 0 and last > first:
        own = state[S_KEYS] + state[ANY] * KEY_STATE
        cells[own + KEY_STAMP], cells[own + KEY_FIRST], cells[own + KEY_COUNT] = state[EPOCH], first, last - first
        several = 1
    for position in range(numbers[numbers[GIVEN_AT] + state[ROW]], numbers[numbers[GIVEN_AT] + state[ROW] + 1]):
        given = numbers[GIVEN_ANSWERS] + position * GIVEN_COLUMNS
        kind, number, answer = numbers[given], numbers[given + 1], numbers[given + 2]
        if kind == ASK_TEST:
            cells[state[S_TESTS] + number] = (state[EPOCH] << 2) | answer
        elif kind == ASK_LITERALS:
            own = state[S_FACTS] + number * FACT_STATE
            if cells[own + STAMP] != state[EPOCH]:
                cells[own + STAMP], cells[own + CHAIN], cells[own + SINGLE] = state[EPOCH], -1, -1
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
            if cells[state[S_FACTS] + fact * FACT_STATE + STAMP] != state[EPOCH]:
                _read_fact(fact, messages, segment, scratch)
            position = cells[state[S_FACTS] + fact * FACT_STATE + CHAIN]
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
    state, cells, at, own, numbers = scratch.state, scratch.cells, segment.at, segment.own, messages.numbers
    # The last one is for the key whose values are those of all keys.
    for value in range(state[FIRST_VALUE], state[END_VALUE] + 1):
        key = state[ANY]
        if value < state[END_VALUE]:
            key = messages.key_of[numbers[numbers[VALUES] + value * VALUE + VALUE_KEY]]
            if key >= 0 and cells[state[S_KEYS] + key * KEY_STATE + KEY_FIRST] != value:
                key = -1
        if key >= 0:
            for position in range(own[at[PROBED_AT] + key], own[at[PROBED_AT] + key + 1]):
                fact = own[at[PROBED] + position]
                if cells[state[S_FACTS] + fact * FACT_STATE + STAMP] != state[EPOCH]:
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
                scratch.matches[2 * position] = state[ROW]
                scratch.matches[2 * position + 1] = subscription


@compiled
def match(
    data: ByteBuffer,
    values: Int64Buffer,
    given_numbers: Float64Buffer,
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
) -> tuple[int, int, int, int]:
    """Match rows from the first one on; return the next row, why it is not done, and how much was matched and asked.

    The arrays are those of `Messages`, `SegmentArrays` and `Scratch`: an array takes less time to pass than a tuple.
    Rows are matched up to, and without, the last one. *any_key* is the key whose values are those of all keys, -1 for
    none; *distinct* is 1 if a row may find a subscription several times.
    """
    messages = Messages(data, values, given_numbers, key_of)
    segment = SegmentArrays(at, ints, longs, bytes_, floats, own, slots, own_bytes)
    scratch = Scratch(state, cells, numbers, text, matches)
    state[ANY], state[MATCHED], state[ASKED] = any_key, 0, 0
    for row in range(first, last):
        if state[EPOCH] >= MOST_EPOCH - 1:
            return row, STALE, state[MATCHED], state[ASKED]
        matched, asked = state[MATCHED], state[ASKED]
        state[EPOCH] += 1
        state[ROW] = row
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
            return row, full, state[MATCHED], state[ASKED]
    return last, DONE, state[MATCHED], state[ASKED]
