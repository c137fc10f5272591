"""Facts of a message: the literals, numbers and nodes that its values give, for the loop of matching."""

from __future__ import annotations

from math import inf, nan

from turnout.loops import segment_arrays as layout
from turnout.loops.compiled import ByteBuffer, Bytes, Int32Buffer, Int64Buffer, Int64s, compiled, inlined
from turnout.loops.segment_arrays import Messages, Scratch, SegmentArrays
from turnout.loops.texts import address_in, are_equal, hash_of_text, mixed, number_in, prefetch


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
            position = (slots[first_slot + slot] & layout.LOW_32) - 1
            if keys[first_key + position] == key:
                return position
        slot = (slot + 1) & mask
    return -1


@inlined
def _literal_of(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays) -> int:
    """Return the literal that a text of a fact is; 0 for none."""
    return _literal_with(hash_of_text(source, begin, end, fact), source, begin, end, fact, segment)


@inlined
def _literal_with(value: int, source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays) -> int:
    """Return the literal that a text of a fact is, given its hash; 0 for none."""
    at, ints, longs, slots = segment.at, segment.ints, segment.longs, segment.slots
    slot = value & at[layout.LITERAL_MASK]
    while slots[at[layout.LITERAL_SLOTS] + slot] != 0:
        found = slots[at[layout.LITERAL_SLOTS] + slot]
        if found >> 32 == value:
            literal = found & layout.LOW_32
            first, last = longs[at[layout.LITERAL_AT] + literal - 1], longs[at[layout.LITERAL_AT] + literal]
            if (
                ints[at[layout.LITERAL_FACT] + literal - 1] == fact
                and last - first == end - begin
                and are_equal(source, begin, segment.bytes, at[layout.LITERAL_DATA] + first, end - begin)
            ):
                return literal
        slot = (slot + 1) & at[layout.LITERAL_MASK]
    return 0


@inlined
def _add_literal(literal: int, fact: int, scratch: Scratch) -> None:
    """Add a literal, 0 for none, to those of the row."""
    if literal == 0:
        return
    state, cells = scratch.state, scratch.cells
    own, seen = state[layout.S_FACTS] + fact * layout.FACT_STATE, state[layout.S_SEEN] + literal
    if cells[own + layout.SINGLE] >= 0:
        cells[own + layout.SINGLE] = literal
    elif cells[seen] == state[layout.EPOCH]:
        return
    else:
        cells[seen] = state[layout.EPOCH]
    number = state[layout.FOUND]
    state[layout.FOUND] = number + 1
    if number < state[layout.FOUND_ROOM]:
        cells[state[layout.S_FOUND] + 2 * number] = literal
        cells[state[layout.S_FOUND] + 2 * number + 1] = cells[own + layout.CHAIN]
        cells[own + layout.CHAIN] = number


@compiled
def _ask(kind: int, number: int, scratch: Scratch) -> None:
    """Add a question about the row."""
    state, cells = scratch.state, scratch.cells
    position = state[layout.ASKED]
    state[layout.ASKED] = position + 1
    if position < state[layout.ASKED_ROOM]:
        first = state[layout.S_ASKED] + layout.ASKED_COLUMNS * position
        cells[first] = state[layout.ROW]
        cells[first + 1] = kind
        cells[first + 2] = number


@inlined
def _add_text(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literal of one text: of all of it, its first or its last characters."""
    first = segment.at[layout.FACTS] + fact * layout.FACT
    kind, length = segment.own[first + layout.FACT_KIND], segment.own[first + layout.FACT_LENGTH]
    if kind == layout.FIRST:
        position = begin
        while position < end and length > 0:
            position += 1
            while position < end and (source[position] & 0xC0) == 0x80:
                position += 1
            length -= 1
        end = position
    elif kind == layout.LAST:
        position = end
        while position > begin and length > 0:
            position -= 1
            while position > begin and (source[position] & 0xC0) == 0x80:
                position -= 1
            length -= 1
        begin = position
    elif kind == layout.HAS:
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
    steps = layout.STEPS_OF_BYTE * (size + layout.STEPS_OF_BYTE)
    widths = own[at[layout.FACTS] + fact * layout.FACT + layout.FACT_SIZE]
    for width in range(3):
        if (widths >> width) & 1 == 0:
            continue
        salt = mixed(fact * 4 + width)
        length = 4 if width == 0 else 2 if width == 1 else 1
        run = 0
        for position in range(size):
            run = (run >> 8) | (text[position] << ((length - 1) * 8))
            value = mixed(run ^ salt)
            if (
                bits[at[layout.PART_BITS] + ((value & at[layout.BIT_MASK]) >> 3)] >> (value & 7)
            ) & 1 == 0 or position < length - 1:
                continue
            slot = value & at[layout.PART_MASK]
            while slots[at[layout.PART_SLOTS] + slot] != 0 and slots[at[layout.PART_SLOTS] + slot] >> 32 != value:
                slot = (slot + 1) & at[layout.PART_MASK]
            number = (slots[at[layout.PART_SLOTS] + slot] & layout.LOW_32) - 1
            while number >= 0:
                part = at[layout.PARTS] + number * layout.PART_COLUMNS
                literal = own[part + layout.PART_LITERAL]
                first, last = slots[at[layout.PART_AT] + number], slots[at[layout.PART_AT] + number + 1]
                begin = position - length + 1 - own[part + layout.PART_POSITION]
                steps -= 1
                if (
                    begin >= 0
                    and begin + last - first <= size
                    and cells[state[layout.S_SEEN] + literal] != state[layout.EPOCH]
                    and segment.ints[at[layout.LITERAL_FACT] + literal - 1] == fact
                ):
                    steps -= (last - first) >> 2
                    if are_equal(text, begin, bits, at[layout.PART_DATA] + first, last - first):
                        _add_literal(literal, fact, scratch)
                number = own[part + layout.PART_NEXT]
            if steps < 0:
                _ask(layout.ASK_LITERALS, fact, scratch)
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
    if key == state[layout.ANY]:
        return value + 1 if value + 1 < state[layout.END_VALUE] else -1
    return cells[state[layout.S_NEXT_VALUE] + value]


@inlined
def _number_of(value: int, messages: Messages, scratch: Scratch) -> float:
    """Return the number that a value is; NaN for none, and for one that is asked for."""
    numbers, state = messages.numbers, scratch.state
    first = numbers[layout.VALUES] + value * layout.VALUE
    number = number_in(messages.data, numbers[first + layout.VALUE_BEGIN], numbers[first + layout.VALUE_END])
    if number != inf:
        return number
    for position in range(
        numbers[numbers[layout.GIVEN_AT] + state[layout.ROW]], numbers[numbers[layout.GIVEN_AT] + state[layout.ROW] + 1]
    ):
        given = numbers[layout.GIVEN_ANSWERS] + position * layout.GIVEN_COLUMNS
        if numbers[given] == layout.ASK_NUMBER and numbers[given + 1] == value:
            return messages.given_numbers[position]
    _ask(layout.ASK_NUMBER, value, scratch)
    return nan


@compiled
def _read_numbers(key: int, messages: Messages, scratch: Scratch) -> None:
    """Read the numbers among the values of a key, unless they are read already."""
    state, cells = scratch.state, scratch.cells
    own = state[layout.S_KEYS] + key * layout.KEY_STATE
    if cells[own + layout.KEY_NUMBERS] == state[layout.EPOCH]:
        return
    least, most = nan, nan
    value = cells[own + layout.KEY_FIRST]
    while value >= 0:
        number = _number_of(value, messages, scratch)
        if number == number:
            # The first one replaces NaN.
            least = least if least <= number else number
            most = most if most >= number else number
        value = _next_value(value, key, state, cells)
    cells[own + layout.KEY_NUMBERS] = state[layout.EPOCH]
    scratch.numbers[2 * key] = least
    scratch.numbers[2 * key + 1] = most


@inlined
def _cell_of(number: float, key: int, segment: SegmentArrays) -> int:
    """Return the cell of a number: how many cuts of the key are not above it."""
    at, floats = segment.at, segment.floats
    first = segment.ints[at[layout.CUTS_AT] + key]
    low, high = first, segment.ints[at[layout.CUTS_AT] + key + 1]
    while low < high:
        middle = (low + high) >> 1
        if floats[at[layout.CUTS] + middle] <= number:
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
    first = at[layout.FACTS] + fact * layout.FACT
    size, base = own[first + layout.FACT_SIZE], at[layout.NODE_LITERALS] + own[first + layout.FACT_FIRST]
    begin = segment.ints[at[layout.CUTS_AT] + key]
    count = segment.ints[at[layout.CUTS_AT] + key + 1] - begin
    cuts = at[layout.CUTS] + begin
    for position in range(own[first + layout.FACT_BEGIN], own[first + layout.FACT_END]):
        shift = own[at[layout.NODE_SHIFTS] + position]
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
    value = cells[state[layout.S_KEYS] + key * layout.KEY_STATE + layout.KEY_FIRST]
    while value >= 0:
        number = _number_of(value, messages, scratch)
        if number == number:
            cell = _cell_of(number, key, segment)
            _add_nodes_between(cell, cell, fact, key, segment, scratch)
        value = _next_value(value, key, state, cells)


@compiled
def _add_network(source: Bytes, begin: int, end: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> None:
    """Add the literal of the first bits of an IP address, as `turnout.conditions.anchor.address_prefix` writes them."""
    text, bits = scratch.text, segment.own[segment.at[layout.FACTS] + fact * layout.FACT + layout.FACT_LENGTH]
    size = address_in(source, begin, end, text)
    if size == 0 or size * 8 < bits:
        return
    text[16], text[17] = 52 if size == 4 else 54, 58
    first = behind = 18
    for number in range(max(1, (bits + 3) // 4) - 1, -1, -1):
        digit = 0
        for bit in range(bits - 4 * number - 4, bits - 4 * number):
            digit = digit * 2 + ((text[bit >> 3] >> (7 - (bit & 7))) & 1 if bit >= 0 else 0)
        if digit or number == 0 or behind > first:
            text[behind] = digit + 48 if digit < 10 else digit + 87
            behind += 1
    _add_literal(_literal_of(text, 16, behind, fact, segment), fact, scratch)


@compiled
def _read_fact(fact: int, messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Read the literals of a fact of the row."""
    state, cells, own, numbers = scratch.state, scratch.cells, segment.own, messages.numbers
    mine = state[layout.S_FACTS] + fact * layout.FACT_STATE
    cells[mine + layout.STAMP] = state[layout.EPOCH]
    cells[mine + layout.CHAIN] = -1
    cells[mine + layout.SINGLE] = 0
    first = segment.at[layout.FACTS] + fact * layout.FACT
    key, kind = own[first + layout.FACT_KEY], own[first + layout.FACT_KIND]
    of_key = state[layout.S_KEYS] + key * layout.KEY_STATE
    if cells[of_key + layout.KEY_STAMP] != state[layout.EPOCH]:
        return
    if own[first + layout.FACT_MANY] or cells[of_key + layout.KEY_COUNT] > 1:
        cells[mine + layout.SINGLE] = -1
    if kind == layout.NODES:
        _add_nodes(fact, key, messages, segment, scratch)
    value = cells[of_key + layout.KEY_FIRST] if kind != layout.NODES else -1
    words = own[first + layout.FACT_WORDS]
    while value >= 0:
        folds = own[first + layout.FACT_FOLDS]
        position = numbers[layout.VALUES] + value * layout.VALUE
        begin, end, variant = (
            numbers[position + layout.VALUE_BEGIN],
            numbers[position + layout.VALUE_END],
            numbers[position + layout.VALUE_VARIANT],
        )
        if variant >= 0 and folds + words > 0:
            column = layout.FOLDED if words == 0 else layout.FOLDED_WORDS if folds else layout.WORDS
            position = numbers[layout.VARIANTS] + variant * layout.VARIANT + column
            begin, end, folds = numbers[position], numbers[position + 1], 0
        if kind == layout.PART:
            scratch.text[0] = layout.BEGIN
            _copy(messages.data, begin, end, folds, scratch.text, 1)
            scratch.text[end - begin + 1] = layout.END
            _add_parts(end - begin + 2, fact, segment, scratch)
        elif kind == layout.NETWORK:
            _add_network(messages.data, begin, end, fact, segment, scratch)
        else:
            # Of many kinds one position reads all: what is compiled is small.
            _copy(messages.data, begin, end, folds, scratch.text, 0)
            if words:
                _add_words(scratch.text, 0, end - begin, fact, segment, scratch)
            elif kind == layout.RUNS:
                _add_runs(scratch.text, 0, end - begin, fact, segment, scratch)
            else:
                _add_text(scratch.text, 0, end - begin, fact, segment, scratch)
        value = _next_value(value, key, state, cells)


@inlined
def _plain_value(key: int, fact: int, segment: SegmentArrays, scratch: Scratch) -> int:
    """Return the only value of a key, of which a fact needs the whole text as it is; -1 if that is otherwise."""
    state, cells, own, first = scratch.state, scratch.cells, segment.own, segment.at[layout.FACTS] + fact * layout.FACT
    of_key = state[layout.S_KEYS] + key * layout.KEY_STATE
    is_plain = (
        own[first + layout.FACT_KIND] == layout.WHOLE
        and own[first + layout.FACT_FOLDS] + own[first + layout.FACT_WORDS] == 0
    )
    # The key of all values is read for rows without any, too.
    is_single = cells[of_key + layout.KEY_STAMP] == state[layout.EPOCH] and cells[of_key + layout.KEY_COUNT] == 1
    return int(cells[of_key + layout.KEY_FIRST]) if is_plain and is_single else -1


@inlined
def _read_probed(messages: Messages, segment: SegmentArrays, scratch: Scratch) -> None:
    """Read the facts of the row's keys that entries are found by.

    Tables are larger than caches: whole texts are hashed first, and looked up while memory is on its way.
    """
    state, cells, at, own, numbers = scratch.state, scratch.cells, segment.at, segment.own, messages.numbers
    slots, plain = segment.slots, 0
    # The last one is for the key whose values are those of all keys.
    for value in range(state[layout.FIRST_VALUE], state[layout.END_VALUE] + 1):
        key = state[layout.ANY]
        if value < state[layout.END_VALUE]:
            key = messages.key_of[numbers[numbers[layout.VALUES] + value * layout.VALUE + layout.VALUE_KEY]]
            if key >= 0 and cells[state[layout.S_KEYS] + key * layout.KEY_STATE + layout.KEY_FIRST] != value:
                key = -1
        if key >= 0:
            for position in range(own[at[layout.PROBED_AT] + key], own[at[layout.PROBED_AT] + key + 1]):
                fact = own[at[layout.PROBED] + position]
                mine = state[layout.S_FACTS] + fact * layout.FACT_STATE
                if cells[mine + layout.STAMP] == state[layout.EPOCH]:
                    continue
                whole = _plain_value(key, fact, segment, scratch)
                if whole < 0 or plain == layout.MOST_PLAIN:
                    _read_fact(fact, messages, segment, scratch)
                    continue
                first = numbers[layout.VALUES] + whole * layout.VALUE
                hashed = hash_of_text(
                    messages.data, numbers[first + layout.VALUE_BEGIN], numbers[first + layout.VALUE_END], fact
                )
                prefetch(slots, at[layout.LITERAL_SLOTS] + (hashed & at[layout.LITERAL_MASK]))
                cells[mine + layout.HASH] = hashed
                cells[state[layout.S_COUNTS] + 2 * plain] = fact
                cells[state[layout.S_COUNTS] + 2 * plain + 1] = whole
                plain += 1
    for number in range(plain):
        hashed = cells[
            state[layout.S_FACTS] + cells[state[layout.S_COUNTS] + 2 * number] * layout.FACT_STATE + layout.HASH
        ]
        found = slots[at[layout.LITERAL_SLOTS] + (hashed & at[layout.LITERAL_MASK])]
        if found >> 32 == hashed and found != 0:
            literal = found & layout.LOW_32
            prefetch(segment.ints, at[layout.LITERAL_FACT] + literal - 1)
            prefetch(segment.longs, at[layout.LITERAL_AT] + literal - 1)
            prefetch(segment.ints, at[layout.ENTRIES_AT] + literal)
            prefetch(segment.ints, at[layout.WAYS_AT] + literal)
    for number in range(plain):
        fact, whole = cells[state[layout.S_COUNTS] + 2 * number], cells[state[layout.S_COUNTS] + 2 * number + 1]
        mine, first = state[layout.S_FACTS] + fact * layout.FACT_STATE, numbers[layout.VALUES] + whole * layout.VALUE
        begin, end = numbers[first + layout.VALUE_BEGIN], numbers[first + layout.VALUE_END]
        cells[mine + layout.STAMP], cells[mine + layout.CHAIN], cells[mine + layout.SINGLE] = state[layout.EPOCH], -1, 0
        literal = _literal_with(cells[mine + layout.HASH], messages.data, begin, end, fact, segment)
        _add_literal(literal, fact, scratch)
