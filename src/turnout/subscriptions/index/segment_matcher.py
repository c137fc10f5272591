"""Matching with a segment: its arrays as `turnout.loops.match` reads them, and answers to what the loop asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, groupby
from math import inf
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.base.multivalued import ANY_KEY
from turnout.conditions.anchor import parsed_number
from turnout.conditions.pattern import fold
from turnout.conditions.terms import holds_between
from turnout.loops import compile_in_background, compile_loops, loops_are_compiled
from turnout.loops import match as loop
from turnout.loops import segment_arrays as layout
from turnout.loops.compiled import Packed
from turnout.loops.segment_arrays import Messages, Scratch, SegmentArrays
from turnout.subscriptions.index.arrays import HOLDS, Indices, Ints, Longs, Texts, indices_of
from turnout.subscriptions.index.facts import BEGIN, CELL, END, PART, SPAN, encoded, marked, nodes_by_number
from turnout.subscriptions.index.flat_messages import FlatMessages, KeyNumbers, fixed, metadata_of_json

if TYPE_CHECKING:
    from turnout.subscriptions.index.segment import Segment

_KINDS: Final = {
    "=": layout.WHOLE,
    "^": layout.FIRST,
    "$": layout.LAST,
    "~": layout.RUNS,
    "has": layout.HAS,
    PART.op: layout.PART,
    CELL.op: layout.NODES,
    SPAN.op: layout.NODES,
    "net": layout.NETWORK,
}

_SLOTS_OF_KEY: Final = 2
"""Slots for each key of a hash table, at least."""

_BITS_OF_RUN: Final = 32
"""Bits for each run in the filter of runs."""

_UNDECIDED_TEST: Final = 31
"""Form of a test that the loop leaves to `ValueTests`."""

_INTERPRETED_SECONDS: Final = 1.0
"""Seconds of interpreted loops of a process, after which they are compiled."""

_MANY_LITERALS: Final = 1 << 13
"""Literals of a segment whose tables are not filled by an interpreted loop."""

_RELATIONS: Final = {
    "<": layout.IS_LESS,
    "<=": layout.IS_LESS | layout.IS_SAME,
    "=": layout.IS_SAME,
    "!=": layout.IS_LESS | layout.IS_MORE,
    ">=": layout.IS_SAME | layout.IS_MORE,
    ">": layout.IS_MORE,
}
_NUMBER: Final = 207
"""Bits of a form with the number of its operation: the others are for words and for folded values."""

_DEPTHS: Final = 256
_LEAST_ROOM: Final = 1 << 10


class _Rooms(NamedTuple):
    """Numbers of elements that buffers have room for."""

    values: int = 1 << 8
    found: int = _LEAST_ROOM
    ranges: int = _LEAST_ROOM
    matches: int = _LEAST_ROOM
    asked: int = _LEAST_ROOM
    text: int = _LEAST_ROOM


_FIRST_ROOMS: Final = _Rooms()

_MOST_TEXT: Final = 1 << 16
"""Bytes of objects of JSON up to which buffers for them are kept."""

MOST_OBJECTS: Final = 256
"""Messages that are matched as objects of JSON in these buffers, at most."""


class _Buffers(NamedTuple):
    """Buffers of calls with this room; *packed* are the arguments that stay the same."""

    rooms: _Rooms
    scratch: Scratch
    messages: Messages
    packed: Packed


_GROWN: Final = {
    layout.FULL_FOUND: "found",
    layout.FULL_RANGES: "ranges",
    layout.FULL_MATCHES: "matches",
    layout.FULL_ASKED: "asked",
}


class _Interpreted:
    """Time that interpreted loops took in this process."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def spend(self, seconds: float) -> None:
        """Add a time; compile the loops, on a thread, when it has become long."""
        self._seconds += seconds
        if self._seconds > _INTERPRETED_SECONDS:
            self._seconds = -inf
            compile_in_background()


_interpreted = _Interpreted()


class SegmentMatcher:
    """Matcher of messages with a segment. Thread-safe.

    Args:
        segment: subscriptions to find.
    """

    def __init__(self, segment: Segment) -> None:
        if len(segment.arrays.literal_fact) > _MANY_LITERALS:
            compile_loops()
        self._arrays = _arrays_of(segment)
        self._head, self._columns = segment.head, segment.arrays
        self._tests, self._check = segment.value_tests, segment.check
        if len(segment.arrays.test_form):
            # Now: a message would wait for it.
            self._tests()
        self._count = len(segment)
        self._distinct = int(segment.head.overlapping)
        self._rooms = _FIRST_ROOMS
        self._free: list[_Buffers] = []
        self._key_numbers = KeyNumbers(self._head.keys, segment.varied_keys)
        self._any = self._head.keys.index(ANY_KEY) if ANY_KEY in self._head.keys else -1
        self._key_of = fixed(np.array([*range(len(self._head.keys)), -1], np.int32))
        self._ids = _NO_IDS
        self._part_texts: dict[int, list[tuple[bytes, int]]] = {}
        self._key_of_test: dict[int, int] = {}

    def expect(self, ids: NDArray[np.object_]) -> None:
        """Ask for the memory of these ids, by subscription, where a single message matches: they are read next."""
        self._ids = fixed(np.frombuffer(ids.data, np.int64))
        self._free.clear()

    def matched(self, flat: FlatMessages, key_of: Ints) -> tuple[Indices, Indices]:
        """Return rows and the segment's subscriptions that they match, each pair once, sorted by row.

        Args:
            flat: the messages.
            key_of: the segment's number of each key of them, and of unknown keys (-1) behind these.
        """
        any_key = self._any if flat.any_of_all else -1
        if loops_are_compiled():
            return self._matched(flat, key_of, any_key)
        begun = perf_counter()
        found = self._matched(flat, key_of, any_key)
        _interpreted.spend(perf_counter() - begun)
        return found

    def matched_object(self, text: bytes) -> Sequence[int] | None:
        """Return the subscriptions that an object of JSON matches, by one call; None if it takes `matched`."""
        if len(text) > _MOST_TEXT or not loops_are_compiled():
            return None
        buffers = self._buffers_for(len(text))
        count = loop.match_objects.direct(text, 1, buffers.packed)
        found: list[int] | None = None
        if count >= 0:
            found = buffers.scratch.matches[:count].tolist()
        elif count == layout.IS_ASKING:
            found = self._asked_objects(buffers, (text,))[1].tolist()
        self._free.append(buffers)
        return found

    def matched_objects(self, texts: Sequence[bytes]) -> tuple[Indices, Indices] | None:
        """Return what `matched` does of objects of JSON, by one call; None if they take `matched`."""
        objects = b"\0".join(texts)
        if len(objects) > _MOST_TEXT:
            return None
        buffers = self._buffers_for(len(objects))
        count = loop.match_objects.direct(objects, len(texts), buffers.packed)
        found: tuple[Indices, Indices] | None = None
        if count >= 0:
            found = _pairs(buffers, count)
        elif count == layout.IS_ASKING:
            found = self._asked_objects(buffers, texts)
        self._free.append(buffers)
        return found

    def _buffers_for(self, size: int) -> _Buffers:
        """Return buffers for objects of JSON with so many bytes."""
        if size + layout.BEHIND_OBJECT > self._rooms.text:
            text = 2 * size + layout.BEHIND_OBJECT
            values = max(self._rooms.values, text // layout.LEAST_MEMBER)
            self._rooms = self._rooms._replace(text=text, values=values)
        return self._buffers(self._rooms)

    def _asked_objects(self, buffers: _Buffers, texts: Sequence[bytes]) -> tuple[Indices, Indices]:
        """Return the matches of objects of JSON, of which some ask."""
        data, numbers, *_ = buffers.messages
        longest = buffers.rooms.text - layout.BEHIND_OBJECT
        flat = FlatMessages(None, buffers.rooms.values, data, numbers, len(texts), longest, True)
        state = buffers.scratch.state
        asked = _questions(buffers.scratch, int(state[layout.ASKED]))
        found = _pairs(buffers, int(state[layout.MATCHED]))
        return self._with_asked(flat, self._key_of, self._any, asked, found, texts)

    def _matched(self, flat: FlatMessages, key_of: Ints, any_key: int) -> tuple[Indices, Indices]:
        messages = Messages(flat.data, flat.numbers, _NO_NUMBERS, key_of)
        asked, rows, subscriptions = self._pass(flat, messages, any_key, 0, flat.size)
        found = rows, subscriptions
        return self._with_asked(flat, key_of, any_key, asked, found) if asked else found

    def _with_asked(
        self,
        flat: FlatMessages,
        key_of: Ints,
        any_key: int,
        asked: Sequence[tuple[int, int, int]],
        found: tuple[Indices, Indices],
        texts: Sequence[bytes] = (),
    ) -> tuple[Indices, Indices]:
        """Return the matches of all rows; those that ask have none yet."""
        parts = [found]
        for row, own_questions in groupby(asked, itemgetter(0)):
            questions = list(own_questions)
            if questions[0][1] == layout.ASK_VARIANTS:
                one = self._key_numbers.of_messages((metadata_of_json(texts[row]),))
                own = self.matched(one, self._key_of)[1]
                parts.append((np.full(len(own), row), own))
            else:
                parts.append(self._answered(flat, key_of, any_key, row, questions))
        rows = np.concatenate([own for own, _ in parts])
        order = np.argsort(rows, kind="stable")
        return rows.take(order), np.concatenate([own for _, own in parts]).take(order)

    def _answered(
        self, flat: FlatMessages, key_of: Ints, any_key: int, row: int, asked: list[tuple[int, int, int]]
    ) -> tuple[Indices, Indices]:
        """Answer what a row asks; return it, and its subscriptions."""
        given: list[tuple[int, int, float]] = []
        while asked:
            for _, kind, number in asked:
                given += self._answers(flat, key_of, any_key, row, kind, number)
            messages = _messages_with(flat, key_of, row, given)
            asked, rows, subscriptions = self._pass(flat, messages, any_key, row, row + 1)
        # Another segment begins without answers.
        flat.numbers[flat.numbers[layout.GIVEN_AT] + row + 1] = 0
        return rows, subscriptions

    def _pass(
        self, flat: FlatMessages, messages: Messages, any_key: int, first: int, last: int
    ) -> tuple[list[tuple[int, int, int]], Indices, Indices]:
        """Match rows with what is given; return what they ask, and the matches of those that do not."""
        rooms = self._rooms
        if flat.distinct > rooms.values or flat.longest + 2 > rooms.text:
            values, text = max(rooms.values, 2 * flat.distinct), max(rooms.text, 2 * flat.longest + 2)
            rooms = self._rooms = rooms._replace(values=values, text=text)
        buffers = self._buffers(rooms)
        rooms, scratch = buffers.rooms, buffers.scratch
        parts: list[tuple[Indices, Indices]] = []
        asked: list[tuple[int, int, int]] = []
        while True:
            first, end, matched, count = loop.match.direct(*messages, buffers.packed, first, last, any_key)
            parts.append(_pairs(buffers, matched))
            if count:
                asked += _questions(scratch, count)
            if end == layout.DONE:
                break
            if end != layout.STALE:
                name = _GROWN[end]
                # Others may have grown it meanwhile.
                rooms = rooms._replace(**{name: 2 * getattr(rooms, name)})
                rooms = self._rooms = _Rooms(*map(max, rooms, self._rooms))
            buffers = self._new_buffers(rooms)
            scratch = buffers.scratch
        self._free.append(buffers)
        if len(parts) == 1:
            return asked, *parts[0]
        return asked, np.concatenate([own for own, _ in parts]), np.concatenate([own for _, own in parts])

    def _buffers(self, rooms: _Rooms) -> _Buffers:
        """Return buffers with at least this room, which no other thread uses."""
        while self._free:
            try:
                buffers = self._free.pop()
            except IndexError:
                break
            if buffers.rooms is rooms or all(map(int.__ge__, buffers.rooms, rooms)):
                return buffers
        return self._new_buffers(rooms)

    def _new_buffers(self, rooms: _Rooms) -> _Buffers:
        scratch = _scratch_of(self._sizes, rooms)
        data, numbers, keys, unknown, letters = self._key_numbers.buffers(rooms.values, rooms.text)
        messages = Messages(data, numbers, _NO_NUMBERS, self._key_of)
        settings = unknown, letters, self._any, self._distinct, rooms.values
        call = loop.Call(keys, messages, self._arrays, scratch, self._ids, *settings)
        return _Buffers(rooms, scratch, messages, Packed(call))

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Numbers of facts, keys, literals with that of none, subscriptions and tests."""
        columns = self._columns
        literals = len(columns.literal_fact) + 1
        return len(self._head.facts), len(self._head.keys), literals, self._count, len(columns.test_form)

    def _answers(
        self, flat: FlatMessages, key_of: Ints, any_key: int, row: int, kind: int, number: int
    ) -> list[tuple[int, int, float]]:
        """Return the answers to a question."""
        if kind == layout.ASK_NUMBER:
            parsed = parsed_number(flat.text(number))
            return [(kind, number, np.nan if parsed is None else parsed)]
        key = self._test_key(number) if kind == layout.ASK_TEST else self._head.keys.index(self._head.facts[number][0])
        texts = dict.fromkeys(_texts_of(flat, key_of, row, None if key == any_key else key))
        if kind == layout.ASK_TEST:
            check = self._check(key, number)
            if check.other is None:
                return [(kind, number, self._tests().holds(key, number, texts))]
            other = self._head.keys.index(check.other)
            return [(kind, number, holds_between(check, texts, _texts_of(flat, key_of, row, other)))]
        literals = {literal for text in texts for literal in self._parts_in(number, text)}
        return [(kind, number, literal) for literal in literals or (0,)]

    def _test_key(self, test: int) -> int:
        """Return the key of a test."""
        if not self._key_of_test:
            columns = self._columns
            for op, a, b in (
                (columns.check_op, columns.check_a, columns.check_b),
                (columns.node_op, columns.node_a, columns.node_b),
            ):
                some = indices_of(op >> 1 == HOLDS)
                self._key_of_test.update(zip(b.take(some).tolist(), a.take(some).tolist(), strict=True))
        return self._key_of_test[test]

    def _parts_in(self, fact: int, text: str) -> list[int]:
        """Return the literals of the parts that a text has."""
        own = self._part_texts.get(fact)
        if own is None:
            slots = indices_of(self._columns.literal_fact == fact).tolist()
            own = self._part_texts[fact] = [(marked(self._columns.literal_text.raw(slot)), slot + 1) for slot in slots]
        value = BEGIN + encoded(fold(text) if self._head.facts[fact][1].fold else text) + END
        return [literal for part, literal in own if part in value]


def _texts_of(flat: FlatMessages, key_of: Ints, row: int, key: int | None) -> list[str]:
    """Return the values of a key of the segment, or of all, of a message."""
    first, last = flat.numbers[layout.STARTS + 2 * row : layout.STARTS + 2 * row + 2].tolist()
    at = int(flat.numbers[layout.VALUES])
    keys = flat.numbers[at + first * layout.VALUE + layout.VALUE_KEY : at + last * layout.VALUE : layout.VALUE].tolist()
    return [flat.text(first + index) for index, own in enumerate(keys) if key is None or key_of[own] == key]


def _messages_with(flat: FlatMessages, key_of: Ints, row: int, given: Sequence[tuple[int, int, float]]) -> Messages:
    """Return messages with what is given for one of them."""
    numbers = flat.numbers
    first, size = int(numbers[layout.GIVEN_ANSWERS]), layout.GIVEN_COLUMNS * len(given)
    if first + size > len(numbers):
        numbers = np.concatenate([numbers[:first], np.zeros(size, np.int64)])
    integers = ((kind, number, 0 if kind == layout.ASK_NUMBER else int(answer)) for kind, number, answer in given)
    numbers[first : first + size] = list(chain.from_iterable(integers))
    of_row = int(numbers[layout.GIVEN_AT]) + row
    numbers[of_row], numbers[of_row + 1] = 0, len(given)
    return Messages(flat.data, numbers, np.array([answer for *_, answer in given], np.float64), key_of)


def _pairs(buffers: _Buffers, count: int) -> tuple[Indices, Indices]:
    """Return rows and subscriptions of so many matches of a call."""
    matches, room = buffers.scratch.matches, buffers.rooms.matches
    return matches[room : room + count].copy(), matches[:count].copy()


def _questions(scratch: Scratch, count: int) -> list[tuple[int, int, int]]:
    """Return so many questions of a call: row, kind, and fact, test or value."""
    begin = int(scratch.state[layout.S_ASKED])
    flat = scratch.cells[begin : begin + layout.ASKED_COLUMNS * count].reshape(-1, layout.ASKED_COLUMNS)
    return [(row, kind, number) for row, kind, number in flat.tolist()]


_NO_NUMBERS: Final = np.zeros(1, np.float64)
_NO_IDS: Final = fixed(np.zeros(0, np.int64))


def _scratch_of(sizes: tuple[int, ...], rooms: _Rooms) -> Scratch:
    """Return buffers with this room."""
    facts, keys, literals, subscriptions, tests = sizes
    starts = {
        layout.S_FACTS: facts * layout.FACT_STATE,
        layout.S_KEYS: keys * layout.KEY_STATE,
        layout.S_NEXT_VALUE: rooms.values,
        layout.S_SEEN: literals,
        layout.S_SUBSCRIPTIONS: subscriptions,
        layout.S_TESTS: tests,
        layout.S_FOUND: 2 * rooms.found,
        layout.S_RANGES: 2 * rooms.ranges,
        layout.S_COUNTS: 3 * _DEPTHS,
        layout.S_ASKED: layout.ASKED_COLUMNS * rooms.asked,
    }
    state = np.zeros(layout.STATE, np.int64)
    at = 0
    for position, size in starts.items():
        state[position] = at
        at += size
    state[layout.FOUND_ROOM], state[layout.RANGES_ROOM] = rooms.found, rooms.ranges
    state[layout.MATCHED_ROOM], state[layout.ASKED_ROOM] = rooms.matches, rooms.asked
    return Scratch(
        state,
        np.zeros(at, np.int32),
        np.zeros(2 * keys + 1),
        np.zeros(rooms.text + layout.ADDRESS_ROOM, np.uint8),
        np.zeros(2 * rooms.matches, np.int64),
    )


def _arrays_of(segment: Segment) -> SegmentArrays:
    """Return the arrays of a segment for the loop."""
    arrays, head, image = segment.arrays, segment.head, segment.image
    facts, nodes, shifts = _facts_of(segment)
    by_key: list[list[int]] = [[] for _ in head.keys]
    for fact in head.probed:
        by_key[facts[fact, layout.FACT_KEY]].append(fact)
    trees = _trees_of(segment)
    parts, part_at, part_data, part_bits, part_slots = _parts_of(segment, facts)
    literal_slots = _table(len(arrays.literal_fact))
    text = arrays.literal_text
    layout.index_literals(text.data, text.offsets, arrays.literal_fact, literal_slots)
    pair_slots, set_slots = _table(len(arrays.pair_key)), _table(len(arrays.set_key))
    layout.index_keys(arrays.pair_key, pair_slots)
    layout.index_keys(arrays.set_key, set_slots)
    form, test_data, others = _tests_of(segment)
    own = (
        facts,
        np.cumsum([0, *map(len, by_key)]),
        np.array(list(chain.from_iterable(by_key))),
        nodes,
        shifts,
        trees,
        parts,
        others,
    )
    slots = (literal_slots, pair_slots, set_slots, part_slots, part_at)
    at = np.zeros(layout.SEGMENT_POSITIONS, np.int64)
    views: dict[str, NDArray[Any]] = {"ints": image.view(np.int32), "longs": image.view(np.int64), "bytes": image}
    views["floats"] = image.view(np.float64)
    names: dict[str, Texts] = {"literal_text": arrays.literal_text, "test_text": arrays.test_text}
    position = 0
    for field, view in views.items():
        for name in layout.SEGMENT_ARRAYS[field]:
            owner, _, part = name.partition(".")
            array = getattr(names[owner], part) if part else getattr(arrays, name)
            at[position] = _offset(array, view) if len(array) else 0
            position += 1
    joined: dict[str, NDArray[Any]] = {}
    made: tuple[tuple[str, tuple[NDArray[np.generic], ...], type[np.generic]], ...] = (
        ("own", own, np.int32),
        ("slots", slots, np.int64),
        ("own_bytes", (part_bits, part_data, form, test_data), np.uint8),
    )
    for field, own_parts, dtype in made:
        flat = [np.ascontiguousarray(one, dtype).ravel() for one in own_parts]
        starts = np.cumsum([0, *map(len, flat)])
        at[position : position + len(flat)] = starts[:-1]
        position += len(flat)
        joined[field] = fixed(np.concatenate([*flat, np.zeros(16, dtype)]))
    for offset, table in enumerate((literal_slots, pair_slots, set_slots, part_slots)):
        at[layout.LITERAL_MASK + offset] = len(table) - 1
    at[layout.BIT_MASK] = len(part_bits) * 8 - 1
    at[layout.WAYS], at[layout.PAIRS] = len(arrays.way_fact), len(arrays.pair_key)
    at[layout.ALWAYS_ENTRY], at[layout.PAIRED_ENTRY] = head.always, head.paired
    return SegmentArrays(fixed(at), views["ints"], views["longs"], image, views["floats"], **joined)


def _offset(array: NDArray[np.generic], view: NDArray[np.generic]) -> int:
    """Return the position of an array within a view of all of them."""
    first, base = (one.__array_interface__["data"][0] for one in (array, view))
    return int(first - base) // view.itemsize


def _table(count: int) -> Longs:
    """Return an empty hash table for so many keys."""
    return np.zeros(1 << max(2, (_SLOTS_OF_KEY * count).bit_length()), np.int64)


def _facts_of(segment: Segment) -> tuple[Ints, Ints, Ints]:
    """Return the facts, the literals of nodes by their places, and the shifts from a cell to the nodes it is in."""
    head, arrays = segment.head, segment.arrays
    facts = np.zeros((len(head.facts), layout.FACT), np.int32)
    nodes, shifts = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    node_count = shift_count = 0
    for fact, (_, kind) in enumerate(head.facts):
        key = int(segment.key_of_fact[fact])
        columns = {
            layout.FACT_KEY: key,
            layout.FACT_KIND: _KINDS[kind.op],
            layout.FACT_LENGTH: kind.length,
            layout.FACT_FOLDS: kind.fold,
            layout.FACT_WORDS: kind.lexeme,
            layout.FACT_MANY: segment.many[fact],
        }
        if kind in (CELL, SPAN):
            cuts = arrays.cuts[arrays.cuts_at[key] : arrays.cuts_at[key + 1]]
            slots = indices_of(arrays.literal_fact == fact)
            numbers = np.array(list(map(arrays.literal_text.text, slots.tolist())), np.int64)
            size, literals, own_shifts = nodes_by_number(cuts, numbers, (slots + 1).astype(np.int32))
            nodes.append(literals)
            shifts.append(own_shifts)
            columns |= {layout.FACT_FIRST: node_count, layout.FACT_SIZE: size, layout.FACT_BEGIN: shift_count}
            node_count, shift_count = node_count + len(literals), shift_count + len(own_shifts)
            columns[layout.FACT_END] = shift_count
        for column, value in columns.items():
            facts[fact, column] = value
    return facts, np.concatenate(nodes), np.concatenate(shifts)


def _trees_of(segment: Segment) -> Ints:
    """Return the nodes of trees."""
    arrays = segment.arrays
    nodes = np.zeros((len(arrays.node_op), layout.NODE), np.int32)
    for column, array in (
        (layout.NODE_OP, arrays.node_op),
        (layout.NODE_A, arrays.node_a),
        (layout.NODE_B, arrays.node_b),
        (layout.NODE_DEPTH, arrays.node_depth),
    ):
        nodes[:, column] = array
    if len(nodes):
        layout.index_trees(arrays.tree_at, arrays.node_parent, nodes)
    return nodes


def _parts_of(segment: Segment, facts: Ints) -> tuple[Ints, Longs, NDArray[np.uint8], NDArray[np.uint8], Longs]:
    """Return the parts, the start of each one's text, the texts, the filter of their runs and the table of these.

    Each is looked for by four of its bytes, by two or by one: those that the fewest other texts have.
    """
    arrays = segment.arrays
    slots = indices_of(facts[:, layout.FACT_KIND].take(arrays.literal_fact) == layout.PART).tolist()
    texts = [marked(arrays.literal_text.raw(slot)) for slot in slots]
    owners = arrays.literal_fact.take(slots).tolist()
    runs_of = [_runs_of(text) for text in texts]
    uses = Counter((fact, run) for fact, runs in zip(owners, runs_of, strict=True) for run in runs)
    parts = np.zeros((len(texts), layout.PART_COLUMNS), np.int32)
    for number, (slot, fact, text, runs) in enumerate(zip(slots, owners, texts, runs_of, strict=True)):
        rarest = min(runs, key=lambda run, fact=fact: uses[fact, run])  # type: ignore[misc]
        parts[number, : layout.PART_NEXT] = text.index(rarest), slot + 1
        facts[fact, layout.FACT_SIZE] |= 1 << {4: 0, 2: 1, 1: 2}[len(rarest)]
    at = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    bits = np.zeros(1 << max(6, (_BITS_OF_RUN * len(texts) // 8).bit_length()), np.uint8)
    table = _table(len(texts))
    data = np.frombuffer(b"".join(texts), np.uint8)
    if texts:
        layout.index_parts(data, at, arrays.literal_fact, parts, bits, table)
    return parts, at, data, bits, table


def _runs_of(text: bytes) -> dict[bytes, None]:
    """Return the runs of bytes that a part may be looked for by."""
    width = 4 if len(text) >= 4 else 2 if len(text) >= 2 else 1
    return dict.fromkeys(text[position : position + width] for position in range(len(text) - width + 1))


def _tests_of(segment: Segment) -> tuple[NDArray[np.uint8], NDArray[np.uint8], Ints]:
    """Return the forms of tests and their texts, in small letters where they fold, if the loop carries them out.

    And the second keys, with how the values compare, of those that have two.
    """
    arrays = segment.arrays
    form, data, at = arrays.test_form.copy(), arrays.test_text.data.copy(), arrays.test_text.offsets
    others = np.zeros(len(form), np.int32)
    for test in indices_of(form & _NUMBER == layout.FIELD).tolist():
        others[test] = segment.head.keys.index(arrays.test_text.text(test)) << 3
        others[test] |= _RELATIONS[arrays.test_last.text(test)]
    form[(form & _NUMBER != layout.GLOB) & (form & _NUMBER != layout.FIELD)] = _UNDECIDED_TEST
    for test in indices_of(form == layout.GLOB | 32).tolist():
        text = data[at[test] : at[test + 1]].tobytes()
        if text.isascii():
            data[at[test] : at[test + 1]] = np.frombuffer(text.lower(), np.uint8)
        else:
            form[test] = _UNDECIDED_TEST
    return form, data, others
