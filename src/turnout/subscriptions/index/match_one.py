"""Matching of one message with a segment: a few look-ups in plain Python, which start faster than numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import nan
from typing import Any, TypeAlias

from turnout.conditions.check import Check, passes
from turnout.conditions.evaluate import parsed_number
from turnout.conditions.pattern import fold
from turnout.subscriptions.index.arrays import EQUAL, GROUP, HOLDS, LIMITS, MANY, ONE_OF
from turnout.subscriptions.index.buckets import TooManyError, mixed_one, shift_of, viewed
from turnout.subscriptions.index.facts import encoded, probes_of, text_maker
from turnout.subscriptions.index.segment import Segment

_MOST_KNOWN = 1 << 15
"""Approximate number of cached values and pairs of literals; clearing them all takes milliseconds."""

MOST_CANDIDATES = 1_000
"""Maximum number of entries verified one by one."""

_MOST_TREES = 4_096
"""Maximum number of trees kept as lists, which are read faster than arrays."""

_LAST_OF_FACTS = EQUAL << 1 | 1

_Metadata: TypeAlias = Mapping[str, str]

_Hit: TypeAlias = tuple[tuple[range, ...], tuple[tuple[int, int], ...]]
"""Ranges of a value's entries, and its secondary keys: the key's number in the upper half, and a fact."""


class _Message:
    """A message, and what was found out about it.

    Attributes:
        metadata: of the message.
        literals: of the message, by fact.
        numbers: that its values are, by key; NaN for a value that is no number, and without a value.
    """

    __slots__ = ("literals", "metadata", "numbers")

    def __init__(self, metadata: _Metadata) -> None:
        self.metadata = metadata
        self.literals: dict[int, tuple[int, ...]] = {}
        self.numbers: dict[int, float] = {}


class Single:
    """Matcher of single messages with a segment. Thread-safe."""

    def __init__(self, segment: Segment) -> None:
        arrays, head = segment.arrays, segment.head
        self._segment = segment
        self._find = segment.find_one
        self._check_of: Callable[[int, int], Check] = segment.check
        self._keys = head.keys
        self._facts = head.facts
        self._key_of_fact = [key for key, _ in head.facts]
        self._nodes = segment.nodes
        self._scanners = segment.scanners
        for scanner in self._scanners.values():
            scanner.prepare()
        self._overlapping = head.overlapping
        self._always = range(head.always, head.paired)
        self._probed = _by_key(head.facts, head.probed)
        self._entries_at, self._checks_at = viewed(arrays.entries_at), viewed(arrays.checks_at)
        self._ways_at, self._way_fact = viewed(arrays.ways_at), viewed(arrays.way_fact)
        self._subscription_of = viewed(arrays.entry_subscription)
        self._program_of = viewed(arrays.entry_program)
        self._op, self._a, self._b = viewed(arrays.check_op), viewed(arrays.check_a), viewed(arrays.check_b)
        self._low, self._high = viewed(arrays.limit_low), viewed(arrays.limit_high)
        self._in_pairs = _Keys(arrays.pair_key, arrays.pair_start, head.paired)
        self._set_bits = viewed(arrays.set_bits)
        self._in_sets = _Keys(arrays.set_key, arrays.set_start, 0)
        self._nodes_of_tree = lru_cache(maxsize=_MOST_TREES)(self._read_tree)
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing remembered."""
        self._hits: list[dict[str, _Hit | None]] = [{} for _ in self._facts]
        self._literals: list[dict[str, tuple[int, ...]]] = [{} for _ in self._facts]
        self._pairs: dict[int, range] = {}
        self._known = 0

    def matched(self, metadata: _Metadata) -> list[int]:
        """The segment's subscriptions that the message matches, each once.

        Raises:
            TooManyError: so many have to be verified that `Index.match_one` takes less time.
        """
        if self._known > _MOST_KNOWN:
            self._begin()
        message = _Message(metadata)
        ranges = self._found(message)
        if not ranges:
            return []
        if sum(map(len, ranges)) > MOST_CANDIDATES:
            raise TooManyError
        subscriptions = self._verified(ranges, message)
        return list(dict.fromkeys(subscriptions)) if self._overlapping else subscriptions

    def _found(self, message: _Message) -> list[range]:
        """Return the entries that the message finds."""
        hits, pairs, probed = self._hits, self._pairs, self._probed
        metadata, by_fact = message.metadata, message.literals
        ranges: list[range] = [self._always] if self._always else []
        for key in metadata if len(metadata) < len(probed) else probed:
            value = metadata.get(key)
            if value is None:
                continue
            for fact in probed.get(key, ()):
                known = hits[fact]
                hit = known[value] if value in known else self._hit(fact, value)
                if hit is None:
                    continue
                ranges += hit[0]
                for way, second in hit[1]:
                    literals = by_fact.get(second)
                    if literals is None:
                        literals = by_fact[second] = self._of_message(second, metadata)
                    for literal in literals:
                        entries = pairs.get(way | literal)
                        if entries is None:
                            entries = self._pair(way | literal)
                        if entries:
                            ranges.append(entries)
        return ranges

    def _verified(self, ranges: list[range], message: _Message) -> list[int]:
        """Return the subscriptions of the entries whose checks are all true."""
        program_of, subscription_of, true = self._program_of, self._subscription_of, self._true
        verdicts: dict[int, bool] = {}
        subscriptions: list[int] = []
        for entries in ranges:
            for entry in entries:
                program = program_of[entry]
                verdict = verdicts.get(program)
                if verdict is None:
                    verdict = verdicts[program] = true(program, message)
                if verdict:
                    subscriptions.append(subscription_of[entry])
        return subscriptions

    def _hit(self, fact: int, value: str) -> _Hit | None:
        """Return the entries and ways of a fact's value, and cache them; None if nothing is found."""
        ranges: list[range] = []
        ways: list[tuple[int, int]] = []
        for literal in self._literals_of(fact, value):
            first, end = self._entries_at[literal], self._entries_at[literal + 1]
            if first < end:
                ranges.append(range(first, end))
            if self._segment.has_ways:
                of_literal = range(self._ways_at[literal], self._ways_at[literal + 1])
                ways += [(way << 32, self._way_fact[way]) for way in of_literal]
        hit = (tuple(ranges), tuple(ways)) if ranges or ways else None
        self._hits[fact][value] = hit
        return hit

    def _literals_of(self, fact: int, value: str) -> tuple[int, ...]:
        """The literals that a fact makes of a value."""
        known = self._literals[fact].get(value)
        if known is None:
            kind = self._facts[fact][1]
            find = self._find
            if fact in self._nodes:
                number = parsed_number(value)
                known = () if number is None else self._nodes[fact].of_number(number)
            elif fact in self._scanners:
                known = self._scanners[fact].find_one(encoded(fold(value) if kind.fold else value))
            elif self._segment.many[fact]:
                numbers = (find(fact, encoded(text)) for text in probes_of(kind)(value))
                known = tuple(literal for literal in numbers if literal)
            else:
                literal = find(fact, encoded(text_maker(kind)(value)))
                known = (literal,) if literal else ()
            self._literals[fact][value] = known
            self._known += 1
        return known

    def _of_message(self, fact: int, metadata: _Metadata) -> tuple[int, ...]:
        """The literals that a fact makes of the message."""
        value = metadata.get(self._key_of_fact[fact])
        if value is None:
            return ()
        known = self._literals[fact].get(value)
        return self._literals_of(fact, value) if known is None else known

    def _pair(self, key: int) -> range:
        """The entries that are found by a way and a second literal."""
        self._known += 1
        entries = self._pairs[key] = self._in_pairs.places(key)
        return entries

    def _true(self, program: int, message: _Message) -> bool:
        """Return True if all checks of a program are true."""
        by_fact = message.literals
        op, a, b = self._op, self._a, self._b
        for check in range(self._checks_at[program], self._checks_at[program + 1]):
            kind, fact = op[check], a[check]
            if kind <= _LAST_OF_FACTS:
                literals = by_fact.get(fact)
                if literals is None:
                    literals = by_fact[fact] = self._of_message(fact, message.metadata)
                if (b[check] in literals) == (kind & 1):
                    return False
            elif self._holds(kind >> 1, fact, b[check], message) == (kind & 1):
                return False
        return True

    def _holds(self, kind: int, a: int, b: int, message: _Message) -> bool:
        """Return True if a check, without its negation, is true."""
        if kind == LIMITS:
            number = message.numbers.get(a)
            if number is None:
                number = message.numbers[a] = self._number(a, message.metadata)
            return bool(self._low[b] <= number <= self._high[b])
        if kind in (EQUAL, MANY, ONE_OF):
            literals = message.literals.get(a)
            if literals is None:
                literals = message.literals[a] = self._of_message(a, message.metadata)
            if kind == ONE_OF:
                bits = self._set_bits[b]
                return any(
                    bits >> (literal & 63) & 1 and self._in_sets.places(b << 32 | literal) for literal in literals
                )
            return b in literals
        if kind == HOLDS:
            value = message.metadata.get(self._keys[a])
            return value is not None and passes(self._check_of(a, b), value)
        return self._tree(b, message)

    def _number(self, key: int, metadata: _Metadata) -> float:
        value = metadata.get(self._keys[key])
        number = None if value is None else parsed_number(value)
        return nan if number is None else number

    def _tree(self, tree: int, message: _Message) -> bool:
        """Evaluate a tree. Nodes follow their parents, so that every child is known when walking backwards."""
        op, a, b, parents = self._nodes_of_tree(tree)
        count = [0] * len(op)
        true = False
        for node in range(len(op) - 1, -1, -1):
            kind = op[node] >> 1
            within = a[node] <= count[node] <= b[node]
            true = within if kind == GROUP else self._holds(kind, a[node], b[node], message)
            true = true != bool(op[node] & 1)
            count[node - parents[node]] += true
        return true

    def _read_tree(self, tree: int) -> tuple[list[int], ...]:
        """Return the operations of a tree's nodes, what they look at, and how far before each its parent is."""
        arrays = self._segment.arrays
        nodes = slice(arrays.tree_at[tree], arrays.tree_at[tree + 1])
        return tuple(
            column[nodes].tolist() for column in (arrays.node_op, arrays.node_a, arrays.node_b, arrays.node_parent)
        )


class _Keys:
    """Positions of numbers in a hash table of numbers."""

    def __init__(self, keys: Any, starts: Any, first: int) -> None:
        self._keys = viewed(keys)
        self._starts = viewed(starts)
        self._shift = shift_of(len(starts))
        self._first = first

    def places(self, key: int) -> range:
        """The places of a number, which are one after another: no other number has its hash."""
        bucket = mixed_one(key) >> self._shift
        keys = self._keys
        matching = [place for place in range(self._starts[bucket], self._starts[bucket + 1]) if keys[place] == key]
        return range(self._first + matching[0], self._first + matching[-1] + 1) if matching else _NOWHERE


_NOWHERE = range(0)


def _by_key(facts: Sequence[tuple[str, object]], probed: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the keys to read, each with the facts that entries are found by."""
    keys: dict[str, tuple[int, ...]] = {}
    for fact in probed:
        keys[facts[fact][0]] = (*keys.get(facts[fact][0], ()), fact)
    return keys
