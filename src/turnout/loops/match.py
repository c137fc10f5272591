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
from typing import NamedTuple

from turnout.loops import segment_arrays as layout
from turnout.loops.compiled import (
    ByteBuffer,
    Float64Buffer,
    Int32s,
    Int64Buffer,
    Int64s,
    Packed,
    compiled,
    inlined,
    unpacked,
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
    _read_probed,
)
from turnout.loops.segment_arrays import Keys, Messages, Scratch, SegmentArrays, read_objects
from turnout.loops.texts import glob_matches, prefetch, prefetch_at


@inlined
def _is_within(key: int, limits: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if each limit holds for a number of a key; equal limits are a number to be equal to."""
    state, cells = scratch.state, scratch.cells
    own = state[layout.S_KEYS] + key * layout.KEY_STATE
    if cells[own + layout.KEY_STAMP] != state[layout.EPOCH]:
        return 0
    if cells[own + layout.KEY_NUMBERS] != state[layout.EPOCH]:
        _read_numbers(key, messages, scratch)
    low, high = (
        segment.floats[segment.at[layout.LIMIT_LOW] + limits],
        segment.floats[segment.at[layout.LIMIT_HIGH] + limits],
    )
    if low < high or cells[own + layout.KEY_COUNT] == 1:
        return 1 if low <= scratch.numbers[2 * key + 1] and scratch.numbers[2 * key] <= high else 0
    value = cells[own + layout.KEY_FIRST]
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
        relation = layout.IS_LESS if number < against else layout.IS_MORE if number > against else layout.IS_SAME
        return 1 if wanted & relation else 0
    if wanted != layout.IS_SAME and wanted != layout.IS_LESS | layout.IS_MORE:
        return 0
    first, second = numbers[layout.VALUES] + value * layout.VALUE, numbers[layout.VALUES] + other * layout.VALUE
    begin, size = (
        numbers[first + layout.VALUE_BEGIN],
        numbers[first + layout.VALUE_END] - numbers[first + layout.VALUE_BEGIN],
    )
    start, length = (
        numbers[second + layout.VALUE_BEGIN],
        numbers[second + layout.VALUE_END] - numbers[second + layout.VALUE_BEGIN],
    )
    is_same, index = size == length, 0
    while index < max(size, length) and (folds or is_same):
        byte = data[begin + index] if index < size else 0
        its = data[start + index] if index < length else 0
        if folds and (byte > 127 or its > 127):
            # A letter beyond ASCII may fold to several.
            return layout.UNKNOWN
        alike = byte == its or (folds and byte | 32 == its | 32 and 97 <= byte | 32 <= 122)
        is_same = is_same and alike
        index += 1
    return 1 if is_same == (wanted == layout.IS_SAME) else 0


@compiled
def _are_met(key: int, other: int, folds: int, messages: Messages, scratch: Scratch) -> int:
    """Return 1 if a value of a key compares with one of another as it should, 0 if not, and more if that is not known.

    The number of the other key is above the three bits of `IS_LESS`.
    """
    state, cells = scratch.state, scratch.cells
    other_key, result = other >> 3, 0
    own = state[layout.S_KEYS] + other_key * layout.KEY_STATE
    value = cells[state[layout.S_KEYS] + key * layout.KEY_STATE + layout.KEY_FIRST]
    while value >= 0 and cells[own + layout.KEY_STAMP] == state[layout.EPOCH]:
        second = cells[own + layout.KEY_FIRST]
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
    own, mine = state[layout.S_KEYS] + key * layout.KEY_STATE, state[layout.S_TESTS] + test
    if cells[own + layout.KEY_STAMP] != state[layout.EPOCH]:
        return 0
    if cells[mine] >> 2 == state[layout.EPOCH]:
        return cells[mine] & 3
    form = segment.own_bytes[at[layout.TEST_FORM] + test]
    result = layout.UNKNOWN
    if form & 31 == layout.GLOB:
        result = 0
        pattern, behind = segment.longs[at[layout.TEST_AT] + test], segment.longs[at[layout.TEST_AT] + test + 1]
        value = cells[own + layout.KEY_FIRST]
        while value >= 0 and result == 0:
            position = numbers[layout.VALUES] + value * layout.VALUE
            begin, end, variant = (
                numbers[position + layout.VALUE_BEGIN],
                numbers[position + layout.VALUE_END],
                numbers[position + layout.VALUE_VARIANT],
            )
            folds = form >> 5
            if folds and variant >= 0:
                position = numbers[layout.VARIANTS] + variant * layout.VARIANT + layout.FOLDED
                begin, end, folds = numbers[position], numbers[position + 1], 0
            _copy(messages.data, begin, end, folds, scratch.text, 0)
            steps = layout.STEPS_OF_BYTE * (end - begin + behind - pattern + 1)
            first = at[layout.TEST_DATA]
            result = glob_matches(
                segment.own_bytes, first + pattern, first + behind, scratch.text, 0, end - begin, steps
            )
            value = _next_value(value, key, state, cells)
        if result < 0:
            result = layout.UNKNOWN
    elif form & 31 == layout.FIELD:
        result = _are_met(key, segment.own[at[layout.TEST_OTHER] + test], form >> 5, messages, scratch)
    cells[mine] = (state[layout.EPOCH] << 2) | result
    return result


@compiled
def _ask_test(key: int, test: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Ask whether a test holds, once for a row."""
    if _holds(key, test, messages, segment, scratch) == layout.UNKNOWN:
        _ask(layout.ASK_TEST, test, scratch)
        scratch.cells[scratch.state[layout.S_TESTS] + test] = (scratch.state[layout.EPOCH] << 2) | layout.ROW_ASKED


@inlined
def _is_true(kind: int, a: int, b: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if a check without its negation is true, 0 if not, and more if that is not known."""
    if kind == layout.LIMITS:
        return _is_within(a, b, messages, segment, scratch)
    if kind == layout.HOLDS:
        return _holds(a, b, messages, segment, scratch)
    if (
        scratch.cells[scratch.state[layout.S_FACTS] + a * layout.FACT_STATE + layout.STAMP]
        != scratch.state[layout.EPOCH]
    ):
        _read_fact(a, messages, segment, scratch)
    state, cells, at, longs, slots = scratch.state, scratch.cells, segment.at, segment.longs, segment.slots
    own = state[layout.S_FACTS] + a * layout.FACT_STATE
    if kind in (layout.EQUAL, layout.MANY):
        if cells[own + layout.SINGLE] >= 0:
            return 1 if cells[own + layout.SINGLE] == b else 0
        return 1 if cells[state[layout.S_SEEN] + b] == state[layout.EPOCH] else 0
    bits, count = longs[at[layout.SET_BITS] + b], 0
    position = cells[own + layout.CHAIN]
    while position >= 0:
        literal = cells[state[layout.S_FOUND] + 2 * position]
        if (bits >> (literal & 63)) & 1 and (
            _position_of(longs, at[layout.SET_KEY], slots, at[layout.SET_SLOTS], at[layout.SET_MASK], b, literal) >= 0
        ):
            if kind == layout.ONE_OF:
                return 1
            count += 1
        position = cells[state[layout.S_FOUND] + 2 * position + 1]
    return 1 if count == 1 else 0


@inlined
def _verify(program: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return 1 if all checks of a program are true, 0 if not, and more if that is not known.

    Trees are read in the order of their nodes, and what cannot change a group any more is passed over.
    """
    at, ints, own, state, cells = segment.at, segment.ints, segment.own, scratch.state, scratch.cells
    unknown = 0
    for check in range(ints[at[layout.CHECKS_AT] + program], ints[at[layout.CHECKS_AT] + program + 1]):
        op, a, b = (
            segment.bytes[at[layout.CHECK_OP] + check],
            ints[at[layout.CHECK_A] + check],
            ints[at[layout.CHECK_B] + check],
        )
        in_tree = op >> 1 == layout.TREE
        node = ints[at[layout.TREE_AT] + b] if in_tree else 0
        end = ints[at[layout.TREE_AT] + b + 1] if in_tree else 1
        negated = op & 1
        truth = 0
        while node < end:
            depth = 0
            first = at[layout.TREE_NODES] + node * layout.NODE
            if in_tree:
                op, a, b, depth = (
                    own[first + layout.NODE_OP],
                    own[first + layout.NODE_A],
                    own[first + layout.NODE_B],
                    own[first + layout.NODE_DEPTH],
                )
                if op >> 1 == layout.GROUP:
                    group = state[layout.S_COUNTS] + 3 * depth
                    cells[group], cells[group + 1], cells[group + 2] = node, 0, 0
                    if own[first + layout.NODE_CHILDREN] > 0:
                        node += 1
                        continue
            node += 1
            if op >> 1 == layout.GROUP:
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
                group = state[layout.S_COUNTS] + 3 * depth
                above = at[layout.TREE_NODES] + cells[group] * layout.NODE
                cells[group + 2 - truth] += 1
                true, false, children = cells[group + 1], cells[group + 2], own[above + layout.NODE_CHILDREN]
                least, most = own[above + layout.NODE_A], own[above + layout.NODE_B]
                if true > most or children - false < least:
                    truth = 0
                elif (true >= least and most >= children) or true + false == children:
                    truth = 1
                else:
                    depth = -1
                    break
                truth ^= own[above + layout.NODE_OP] & 1
                node = own[above + layout.NODE_END]
        if truth == negated:
            return 0
    return 1 if unknown == 0 else layout.UNKNOWN


@compiled
def _ask_of(program: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Ask about all tests of a program."""
    at, ints, own = segment.at, segment.ints, segment.own
    for check in range(ints[at[layout.CHECKS_AT] + program], ints[at[layout.CHECKS_AT] + program + 1]):
        kind, b = segment.bytes[at[layout.CHECK_OP] + check] >> 1, ints[at[layout.CHECK_B] + check]
        in_tree = kind == layout.TREE
        for node in range(
            ints[at[layout.TREE_AT] + b] if in_tree else 0, ints[at[layout.TREE_AT] + b + 1] if in_tree else 1
        ):
            first = at[layout.TREE_NODES] + node * layout.NODE
            if in_tree and own[first + layout.NODE_OP] >> 1 == layout.HOLDS:
                _ask_test(own[first + layout.NODE_A], own[first + layout.NODE_B], messages, segment, scratch)
            elif kind == layout.HOLDS:
                _ask_test(ints[at[layout.CHECK_A] + check], b, messages, segment, scratch)


@inlined
def _read_row(messages: Messages, scratch: Scratch) -> int:
    """Put the values of a row and what is given for it into position; return 1 if a key has several values."""
    state, cells, numbers = scratch.state, scratch.cells, messages.numbers
    first, last = (
        numbers[numbers[layout.ROWS] + 2 * state[layout.ROW]],
        numbers[numbers[layout.ROWS] + 2 * state[layout.ROW] + 1],
    )
    state[layout.FIRST_VALUE], state[layout.END_VALUE] = first, last
    several = 0
    for value in range(first, last):
        key = messages.key_of[numbers[numbers[layout.VALUES] + value * layout.VALUE + layout.VALUE_KEY]]
        if key < 0:
            continue
        own = state[layout.S_KEYS] + key * layout.KEY_STATE
        cells[state[layout.S_NEXT_VALUE] + value] = -1
        if cells[own + layout.KEY_STAMP] == state[layout.EPOCH]:
            cells[state[layout.S_NEXT_VALUE] + cells[own + layout.KEY_LAST]] = value
            cells[own + layout.KEY_COUNT] += 1
            several = 1
        else:
            cells[own + layout.KEY_STAMP], cells[own + layout.KEY_FIRST], cells[own + layout.KEY_COUNT] = (
                state[layout.EPOCH],
                value,
                1,
            )
        cells[own + layout.KEY_LAST] = value
    if state[layout.ANY] >= 0 and last > first:
        own = state[layout.S_KEYS] + state[layout.ANY] * layout.KEY_STATE
        cells[own + layout.KEY_STAMP], cells[own + layout.KEY_FIRST], cells[own + layout.KEY_COUNT] = (
            state[layout.EPOCH],
            first,
            last - first,
        )
        several = 1
    for position in range(
        numbers[numbers[layout.GIVEN_AT] + state[layout.ROW]], numbers[numbers[layout.GIVEN_AT] + state[layout.ROW] + 1]
    ):
        given = numbers[layout.GIVEN_ANSWERS] + position * layout.GIVEN_COLUMNS
        kind, number, answer = numbers[given], numbers[given + 1], numbers[given + 2]
        if kind == layout.ASK_TEST:
            cells[state[layout.S_TESTS] + number] = (state[layout.EPOCH] << 2) | answer
        elif kind == layout.ASK_LITERALS:
            own = state[layout.S_FACTS] + number * layout.FACT_STATE
            if cells[own + layout.STAMP] != state[layout.EPOCH]:
                cells[own + layout.STAMP], cells[own + layout.CHAIN], cells[own + layout.SINGLE] = (
                    state[layout.EPOCH],
                    -1,
                    -1,
                )
            _add_literal(answer, number, scratch)
    return several


@inlined
def _add_range(begin: int, end: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add entries to verify."""
    state, cells = scratch.state, scratch.cells
    prefetch(segment.ints, segment.at[layout.ENTRY_PROGRAM] + begin)
    prefetch(segment.ints, segment.at[layout.ENTRY_SUBSCRIPTION] + begin)
    number = state[layout.RANGES]
    if begin < end:
        state[layout.RANGES] = number + 1
        if number < state[layout.RANGES_ROOM]:
            cells[state[layout.S_RANGES] + 2 * number] = begin
            cells[state[layout.S_RANGES] + 2 * number + 1] = end


@inlined
def _find_entries(messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the ranges of entries that the row's literals find, by themselves and two together."""
    state, cells, at, ints, longs = scratch.state, scratch.cells, segment.at, segment.ints, segment.longs
    _add_range(at[layout.ALWAYS_ENTRY], at[layout.PAIRED_ENTRY], segment, scratch)
    top = min(state[layout.FOUND], state[layout.FOUND_ROOM])
    for number in range(top):
        literal = cells[state[layout.S_FOUND] + 2 * number]
        _add_range(ints[at[layout.ENTRIES_AT] + literal], ints[at[layout.ENTRIES_AT] + literal + 1], segment, scratch)
        first = ints[at[layout.WAYS_AT] + literal] if at[layout.WAYS] else 0
        last = ints[at[layout.WAYS_AT] + literal + 1] if at[layout.WAYS] else 0
        for way in range(first, last):
            fact = ints[at[layout.WAY_FACT] + way]
            if cells[state[layout.S_FACTS] + fact * layout.FACT_STATE + layout.STAMP] != state[layout.EPOCH]:
                _read_fact(fact, messages, segment, scratch)
            position = cells[state[layout.S_FACTS] + fact * layout.FACT_STATE + layout.CHAIN]
            while position >= 0:
                second = cells[state[layout.S_FOUND] + 2 * position]
                pair = _position_of(
                    longs, at[layout.PAIR_KEY], segment.slots, at[layout.PAIR_SLOTS], at[layout.PAIR_MASK], way, second
                )
                if pair >= 0:
                    behind = pair + 1
                    while (
                        behind < at[layout.PAIRS]
                        and longs[at[layout.PAIR_KEY] + behind] == longs[at[layout.PAIR_KEY] + pair]
                    ):
                        behind += 1
                    _add_range(at[layout.PAIRED_ENTRY] + pair, at[layout.PAIRED_ENTRY] + behind, segment, scratch)
                position = cells[state[layout.S_FOUND] + 2 * position + 1]


@inlined
def _match_row(distinct: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the matches of the row, or what it asks."""
    state, cells, at, ints = scratch.state, scratch.cells, segment.at, segment.ints
    state[layout.FOUND], state[layout.RANGES] = 0, 0
    distinct = distinct | _read_row(messages, scratch)
    first_value = messages.numbers[layout.VALUES] + state[layout.FIRST_VALUE] * layout.VALUE
    if (
        state[layout.FIRST_VALUE] < state[layout.END_VALUE]
        and messages.numbers[first_value + layout.VALUE_VARIANT] == layout.NEEDS_VARIANTS
    ):
        _ask(layout.ASK_VARIANTS, 0, scratch)
        return
    _read_probed(messages, segment, scratch)
    _find_entries(messages, segment, scratch)
    last, verdict = -1, 0
    for number in range(min(state[layout.RANGES], state[layout.RANGES_ROOM])):
        first = cells[state[layout.S_RANGES] + 2 * number]
        for entry in range(first, cells[state[layout.S_RANGES] + 2 * number + 1]):
            program = ints[at[layout.ENTRY_PROGRAM] + entry]
            if program != last:
                last, verdict = program, _verify(program, messages, segment, scratch)
                if verdict > 1:
                    _ask_of(program, messages, segment, scratch)
            if verdict != 1:
                continue
            subscription = ints[at[layout.ENTRY_SUBSCRIPTION] + entry]
            if distinct:
                if cells[state[layout.S_SUBSCRIPTIONS] + subscription] == state[layout.EPOCH]:
                    continue
                cells[state[layout.S_SUBSCRIPTIONS] + subscription] = state[layout.EPOCH]
            position = state[layout.MATCHED]
            state[layout.MATCHED] = position + 1
            if position < state[layout.MATCHED_ROOM]:
                scratch.matches[position] = subscription
                scratch.matches[state[layout.MATCHED_ROOM] + position] = state[layout.ROW]


@compiled
def _match_rows(
    first: int, last: int, any_key: int, distinct: int, messages: Messages, segment: SegmentArrays, scratch: Scratch
) -> tuple[int, int, int, int]:
    """Match rows; see `match`."""
    state = scratch.state
    state[layout.ANY], state[layout.MATCHED], state[layout.ASKED] = any_key, 0, 0
    for row in range(first, last):
        if state[layout.EPOCH] >= layout.MOST_EPOCH - 1:
            return row, layout.STALE, state[layout.MATCHED], state[layout.ASKED]
        matched, asked = state[layout.MATCHED], state[layout.ASKED]
        state[layout.EPOCH] += 1
        state[layout.ROW] = row
        _match_row(distinct, messages, segment, scratch)
        full = layout.DONE
        if state[layout.FOUND] > state[layout.FOUND_ROOM]:
            full = layout.FULL_FOUND
        elif state[layout.RANGES] > state[layout.RANGES_ROOM]:
            full = layout.FULL_RANGES
        elif state[layout.MATCHED] > state[layout.MATCHED_ROOM]:
            full = layout.FULL_MATCHES
        elif state[layout.ASKED] > state[layout.ASKED_ROOM]:
            full = layout.FULL_ASKED
        if full != layout.DONE or state[layout.ASKED] > asked:
            state[layout.MATCHED] = matched
        if full != layout.DONE:
            state[layout.ASKED] = asked
            return row, full, state[layout.MATCHED], state[layout.ASKED]
    return last, layout.DONE, state[layout.MATCHED], state[layout.ASKED]


class Call(NamedTuple):
    """Arguments that stay the same for the calls with these buffers.

    Attributes:
        keys: known keys.
        messages: buffers of those that are objects of JSON.
        segment: the subscriptions.
        scratch: other buffers.
        ids: address of the id of each subscription; empty if none is needed soon.
        unknown: number of the values of other keys.
        letters: the first byte that a value without variants may not have.
        any_key: the key whose values are those of all keys of the object, -1 for none.
        distinct: 1 if a row may find a subscription several times.
        values: how many values of objects there is room for.
    """

    keys: Keys
    messages: Messages
    segment: SegmentArrays
    scratch: Scratch
    ids: Int64s
    unknown: int
    letters: int
    any_key: int
    distinct: int
    values: int


@compiled
def match(
    data: ByteBuffer,
    values: Int64Buffer,
    given_numbers: Float64Buffer,
    key_of: Int32s,
    packed: Packed,
    first: int,
    last: int,
    any_key: int,
) -> tuple[int, int, int, int]:
    """Match rows from the first one on; return the next row, why it is not done, and how much was matched and asked.

    The arrays are those of `Messages`: an array takes less time to pass than a tuple. Rows are matched up to, and
    without, the last one. *any_key* is the key whose values are those of all keys, -1 for none.
    """
    call = unpacked(packed, Call)
    messages = Messages(data, values, given_numbers, key_of)
    return _match_rows(first, last, any_key, call.distinct, messages, call.segment, call.scratch)


@compiled
def _mark_letters(rows: int, messages: Messages) -> None:
    """Mark the rows with letters beyond ASCII in a value: they need variants."""
    numbers, first = messages.numbers, messages.numbers[layout.VALUES]
    for row in range(rows):
        letters, begin = 0, first + numbers[layout.STARTS + 2 * row] * layout.VALUE
        for at in range(begin, first + numbers[layout.STARTS + 2 * row + 1] * layout.VALUE, layout.VALUE):
            for index in range(numbers[at + layout.VALUE_BEGIN], numbers[at + layout.VALUE_END]):
                letters |= messages.data[index]
        if letters >= layout.BEYOND_ASCII:
            numbers[begin + layout.VALUE_VARIANT] = layout.NEEDS_VARIANTS


@compiled
def match_objects(texts: bytes, rows: int, packed: Packed) -> int:
    """Match messages, which are objects of JSON with a zero between two, in one call; see `read_objects` and `match`.

    Returns:
        The number of matches; `IS_ASKING` if some messages ask, and the others have their matches; `IS_LEFT` if all are
        left to others, or a buffer is too small.
    """
    call = unpacked(packed, Call)
    data, size, matches, ids, keys = call.messages.data, len(texts), call.scratch.matches, call.ids, call.keys
    if size + layout.BEHIND_OBJECT > len(data) or rows > call.values:
        return layout.IS_LEFT
    for index in range(size):
        data[index] = texts[index]
    for index in range(size, size + layout.BEHIND_OBJECT):
        data[index] = 0
    room = layout.STARTS + 3 * rows + 1 + layout.VALUE * call.values + len(keys.numbers) + layout.OTHER_KEYS
    count, _, highest = read_objects(
        data,
        size + 1,
        rows,
        0,
        keys.texts,
        keys.at,
        keys.numbers,
        keys.slots,
        call.unknown,
        call.messages.numbers[:room],
    )
    if count < 0:
        return layout.IS_LEFT
    if highest >= call.letters:
        _mark_letters(rows, call.messages)
    _, end, matched, asked = _match_rows(
        0, rows, call.any_key, call.distinct, call.messages, call.segment, call.scratch
    )
    if end != layout.DONE:
        return layout.IS_LEFT
    if len(ids) > 0:
        for position in range(matched):
            prefetch(ids, matches[position])
        for position in range(matched):
            prefetch_at(ids[matches[position]])
    return layout.IS_ASKING if asked > 0 else matched
