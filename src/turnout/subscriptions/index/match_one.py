"""Matching of one message with a segment: a few look-ups in plain Python, which start faster than numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isnan, nan
from typing import Any, Final, TypeAlias

import numpy as np

from turnout.conditions.check import Check, passes
from turnout.conditions.evaluate import parsed_number
from turnout.conditions.pattern import fold
from turnout.subscriptions.index.arrays import EQUAL, GROUP, HOLDS, LIMITS, MANY, ONE_OF
from turnout.subscriptions.index.buckets import TooManyError, mixed_one, shift_of, viewed
from turnout.subscriptions.index.facts import encoded, probes_of, text_maker
from turnout.subscriptions.index.prefilter import NumericPrefilter
from turnout.subscriptions.index.segment import Segment

_MOST_KNOWN = 1 << 15
"""Approximate number of cached values and pairs of literals; clearing them all takes milliseconds."""

MOST_CANDIDATES = 1_000
"""Maximum number of entries that are verified here by default: with more, `match_batch` takes less time."""

_MANY_ENTRIES = 48
"""Number of entries beyond which arrays take less time for their numeric checks than a loop."""

_MOST_TREES = 4_096
"""Maximum number of trees kept as lists, which are read faster than arrays."""

_LAST_OF_FACTS = EQUAL << 1 | 1

_Metadata: TypeAlias = Mapping[str, str]

_PLACES_OF_KEY = 8
"""Places for each key in a table of the keys that may be there."""

_Hit: TypeAlias = tuple[tuple[int, ...], tuple[range, ...], tuple[tuple[int, int], ...]]
"""A value's literals, ranges of its entries, and its secondary keys: the key's number in the upper half, and a fact."""

_NO_HIT: Final[_Hit] = ((), (), ())


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
        self._key_of_fact = segment.key_of_fact.tolist()
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
        self._prefilter = NumericPrefilter(segment)
        self._nodes_of_tree = lru_cache(maxsize=_MOST_TREES)(self._read_tree)
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing remembered."""
        self._hits: list[dict[str, _Hit]] = [{} for _ in self._facts]
        self._pairs: dict[int, range] = {}
        self._members: dict[int, bool] = {}
        self._known = 0

    def matched(self, metadata: _Metadata, most: int = MOST_CANDIDATES) -> list[int]:
        """Return the segment's subscriptions that the message matches, each once.

        Raises:
            TooManyError: more entries than *most* have to be verified.
        """
        if self._known > _MOST_KNOWN:
            self._begin()
        message = _Message(metadata)
        ranges = self._found(message)
        if not ranges:
            return []
        count = sum(map(len, ranges))
        if count > most:
            raise TooManyError
        verified = self._prefiltered if count > _MANY_ENTRIES and self._prefilter.is_useful else self._verified
        subscriptions = verified(ranges, message)
        return list(dict.fromkeys(subscriptions)) if self._overlapping else subscriptions

    def _found(self, message: _Message) -> list[range]:
        """Return the entries that the message finds."""
        hits, pairs, probed, likely = self._hits, self._pairs, self._probed, self._in_pairs.likely
        size = len(likely)
        metadata, by_fact = message.metadata, message.literals
        ranges: list[range] = [self._always] if self._always else []
        for key in metadata if len(metadata) < len(probed) else probed:
            value = metadata.get(key)
            if value is None:
                continue
            for fact in probed.get(key, ()):
                literals, entries, ways = hits[fact].get(value) or self._hit(fact, value, message)
                by_fact[fact] = literals
                ranges += entries
                for way, second in ways:
                    seconds = by_fact.get(second)
                    if seconds is None:
                        seconds = self._literals_of(second, message)
                    for literal in seconds:
                        pair = way | literal
                        if likely[pair % size]:
                            paired = pairs.get(pair)
                            if paired is None:
                                paired = self._pair(pair)
                            if paired:
                                ranges.append(paired)
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

    def _prefiltered(self, ranges: list[range], message: _Message) -> list[int]:
        """Return what `_verified` does, in less time for many entries."""
        subscriptions, programs, true = self._prefilter.remaining(ranges, lambda key: self._number(key, message))
        for entry in np.flatnonzero(~true).tolist():
            true[entry] = self._true(int(programs[entry]), message)
        return subscriptions[true].tolist()  # type: ignore[no-any-return]

    def _hit(self, fact: int, value: str, message: _Message) -> _Hit:
        """Look a fact's value up, and cache what is found."""
        literals = self._looked_up(fact, value, message)
        hit = _NO_HIT
        if literals:
            entries, ways = self._entries_at, self._ways_at
            ranges = [range(entries[literal], entries[literal + 1]) for literal in literals]
            of_literals: list[tuple[int, int]] = []
            if self._segment.has_ways:
                for literal in literals:
                    own = range(ways[literal], ways[literal + 1])
                    of_literals += [(way << 32, self._way_fact[way]) for way in own]
            hit = (literals, tuple(filter(None, ranges)), tuple(of_literals))
        self._hits[fact][value] = hit
        self._known += 1
        return hit

    def _looked_up(self, fact: int, value: str, message: _Message) -> tuple[int, ...]:
        """Return the literals that a fact makes of a value of the message."""
        kind, find = self._facts[fact][1], self._find
        if not self._segment.many[fact]:
            literal = find(fact, text_maker(kind)(value))
            return (literal,) if literal else ()
        if fact in self._nodes:
            number = self._number(self._key_of_fact[fact], message)
            return () if isnan(number) else self._nodes[fact].of_number(number)
        if fact in self._scanners:
            return self._scanners[fact].find_one(encoded(fold(value) if kind.fold else value))
        return tuple([literal for text in probes_of(kind)(value) if (literal := find(fact, text))])

    def _literals_of(self, fact: int, message: _Message) -> tuple[int, ...]:
        """Return the literals that a fact makes of the message."""
        literals = message.literals.get(fact)
        if literals is None:
            value = message.metadata.get(self._keys[self._key_of_fact[fact]])
            hit = _NO_HIT if value is None else self._hits[fact].get(value) or self._hit(fact, value, message)
            literals = message.literals[fact] = hit[0]
        return literals

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
                    literals = self._literals_of(fact, message)
                if (b[check] in literals) == (kind & 1):
                    return False
            elif self._holds(kind >> 1, fact, b[check], message) == (kind & 1):
                return False
        return True

    def _holds(self, kind: int, a: int, b: int, message: _Message) -> bool:
        """Return True if a check, without its negation, is true."""
        if kind == LIMITS:
            return bool(self._low[b] <= self._number(a, message) <= self._high[b])
        if kind in (EQUAL, MANY, ONE_OF):
            literals = self._literals_of(a, message)
            if kind == ONE_OF:
                bits = self._set_bits[b]
                return any(bits >> (literal & 63) & 1 and self._is_member(b << 32 | literal) for literal in literals)
            return b in literals
        if kind == HOLDS:
            value = message.metadata.get(self._keys[a])
            return value is not None and passes(self._check_of(a, b), value)
        return self._tree(b, message)

    def _is_member(self, member: int) -> bool:
        """Return True if the set in the upper half contains the literal in the lower one."""
        known = self._members.get(member)
        if known is None:
            self._known += 1
            known = self._members[member] = bool(self._in_sets.places(member))
        return known

    def _number(self, key: int, message: _Message) -> float:
        """Return the number that the message has as the value of a key; NaN for none."""
        number = message.numbers.get(key)
        if number is None:
            value = message.metadata.get(self._keys[key])
            parsed = None if value is None else parsed_number(value)
            number = message.numbers[key] = nan if parsed is None else parsed
        return number

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
    """Positions of numbers in a hash table of numbers.

    Attributes:
        likely: has a 1 at the remainder of each number, divided by the length: most others have a 0 there.
    """

    def __init__(self, keys: Any, starts: Any, first: int) -> None:
        self._keys = viewed(keys)
        self._starts = viewed(starts)
        self._shift = shift_of(len(starts))
        self._first = first
        self.likely = bytearray(_PLACES_OF_KEY * len(keys) | 1)
        np.frombuffer(self.likely, np.uint8)[keys % len(self.likely)] = 1

    def places(self, key: int) -> range:
        """The places of a number, which are one after another: no other number has its hash."""
        bucket = mixed_one(key) >> self._shift
        keys = self._keys
        place, end = self._starts[bucket], self._starts[bucket + 1]
        while place < end and keys[place] != key:
            place += 1
        begun = place
        while place < end and keys[place] == key:
            place += 1
        return range(self._first + begun, self._first + place)


def single_of(segment: Segment) -> Single:
    """Return the segment's matcher of single messages, made when it is first needed."""
    if segment.single is None:
        segment.single = Single(segment)
    return segment.single


def _by_key(facts: Sequence[tuple[str, object]], probed: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the keys to read, each with the facts that entries are found by."""
    keys: dict[str, tuple[int, ...]] = {}
    for fact in probed:
        keys[facts[fact][0]] = (*keys.get(facts[fact][0], ()), fact)
    return keys
