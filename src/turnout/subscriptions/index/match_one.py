"""Matching of one message with a segment: a few look-ups in plain Python, which start faster than numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import isnan, nan
from typing import Final, TypeAlias

import numpy as np

from turnout.conditions.evaluate import parsed_number
from turnout.conditions.pattern import fold
from turnout.multivalued import Metadata
from turnout.subscriptions.index.arrays import EQUAL, GROUP, HOLDS, JUST_ONE, LIMITS, LITERAL_SET, MANY, ONE_OF, TREE
from turnout.subscriptions.index.buckets import TooManyError, viewed
from turnout.subscriptions.index.facts import WHOLE, probes_of, text_maker
from turnout.subscriptions.index.number_table import NO_RANGE, NumberTable, Range
from turnout.subscriptions.index.prefilter import NumericPrefilter
from turnout.subscriptions.index.programs import IS_TRUE, LITERALS, NONE_OF, Check, Node, Tree, merged, tree_of
from turnout.subscriptions.index.scan_one import OneScan
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.single_message import Literals, Message, SingleTexts

_MOST_KNOWN = 1 << 15
"""Approximate number of cached values and pairs of literals; clearing them all takes milliseconds."""

MOST_CANDIDATES = 1_000
"""Maximum number of entries that are verified here by default: with more, `match_batch` takes less time."""

_MANY_ENTRIES = 48
"""Number of entries beyond which arrays take less time for their numeric checks than a loop."""

_MOST_TREES = 4_096
"""Maximum number of trees kept as lists, which are read faster than arrays."""

_MOST_PROGRAMS = 4_096
"""Maximum number of programs whose checks are kept as tuples, which are read faster than arrays."""

_BY_LITERALS: Final = frozenset(kind << 1 | negated for kind in (*LITERALS, LITERAL_SET) for negated in (0, 1))
"""Checks that are false, but for their negation, of a fact without literals."""

_IS_LITERAL: Final = (EQUAL, MANY)
_OF_FACTS: Final = (EQUAL << 1, EQUAL << 1 | 1, MANY << 1, MANY << 1 | 1)


_LONG_VALUE = 1 << 12
"""Characters of a value beyond which nothing is cached for it."""

_Hit: TypeAlias = tuple[tuple[int, ...], tuple[Range, ...]]
"""Literals of a value, and ranges of their entries."""

_NO_HIT: Final[_Hit] = ((), ())

_Reader: TypeAlias = tuple[str, Callable[[str], str] | None, Callable[[str], int | None] | None]
"""The key of a fact, the function from a value to its text (None if that is the value), and the function from the text
to the literal (None for a fact of many texts)."""

_LOOKED_UP, _OF_NODES, _SCANNED = range(3)
"""Ways to find literals of a fact that may have many: each by itself, by a number, or all in one search."""

Probe: TypeAlias = tuple[int, Callable[[str], str] | None, Callable[[str], int | None] | None, int]
"""A fact that entries are found by, the functions of its reader, and the way to find many literals."""


class Single:
    """Matcher of single messages with a segment. Thread-safe."""

    def __init__(self, segment: Segment) -> None:
        arrays, head = segment.arrays, segment.head
        self._segment = segment
        self._literal_of = segment.literal_of
        self._tests = segment.tests
        self._group_of = segment.tests.group_of
        self._keys = head.keys
        self._facts = head.facts
        self._key_of_fact = segment.key_of_fact.tolist()
        self._nodes = segment.nodes
        self._is_folded = [kind.fold for _, kind in self._facts]
        self._reads_any = False
        self._scan = OneScan(segment.scanners)
        self._overlapping = head.overlapping
        self._always = [(head.always, head.paired)] if head.always < head.paired else []
        self._readers = [self._reader(fact) for fact in range(len(self._facts))]
        self._probed = self._probes()
        self._entries_at, self._checks_at = viewed(arrays.entries_at), viewed(arrays.checks_at)
        self._ways_at, self._way_fact = viewed(arrays.ways_at), viewed(arrays.way_fact)
        self._subscription_of = viewed(arrays.entry_subscription)
        self._program_of = viewed(arrays.entry_program)
        self._keeps_programs = len(arrays.checks_at) <= _MOST_PROGRAMS
        self._programs: dict[int, tuple[Check, ...]] = {}
        self._op, self._a, self._b = viewed(arrays.check_op), viewed(arrays.check_a), viewed(arrays.check_b)
        self._low, self._high = viewed(arrays.limit_low), viewed(arrays.limit_high)
        self._in_pairs = NumberTable(arrays.pair_key, arrays.pair_start, head.paired)
        self._set_bits = viewed(arrays.set_bits)
        self._in_sets = NumberTable(arrays.set_key, arrays.set_start, 0)
        self._prefilter = NumericPrefilter(segment)
        self._trees = lru_cache(maxsize=_MOST_TREES)(self._read_tree)
        self._begin()

    def _reader(self, fact: int) -> _Reader:
        key, kind = self._facts[fact]
        make = None if kind == WHOLE or self._segment.many[fact] else text_maker(kind)
        return key, make, self._literal_of[fact]

    def _probes(self) -> dict[str, tuple[Probe, ...]]:
        """Return the keys to read, each with the facts that entries are found by."""
        keys: dict[str, tuple[Probe, ...]] = {}
        for fact in self._segment.head.probed:
            key, make, literal_of = self._readers[fact]
            way = _OF_NODES if fact in self._nodes else _SCANNED if fact in self._segment.scanners else _LOOKED_UP
            keys[key] = (*keys.get(key, ()), (fact, make, literal_of, way))
        return keys

    def _begin(self) -> None:
        """Begin with nothing remembered."""
        self._hits: list[dict[str | int, _Hit]] = [{} for _ in self._facts]
        self._pairs: dict[int, Range] = {}
        self._members: dict[int, bool] = {}
        self._known = 0

    def _forget(self) -> None:
        """Begin again if much is remembered."""
        if self._known > _MOST_KNOWN:
            self._begin()

    def takes(self, metadata: Metadata) -> bool:  # noqa: ARG002 - some read it
        """Return False for a message that has to be seen by the keys of leaves first."""
        return not self._segment.special_keys

    def matched(self, metadata: SingleTexts, most: int = MOST_CANDIDATES) -> list[int]:
        """Return the segment's subscriptions that the message matches, each once.

        Raises:
            TooManyError: more entries than *most* have to be verified.
        """
        self._forget()
        message = Message(metadata)
        ranges = self._found(message)
        if not ranges:
            return []
        count = sum([end - begin for begin, end in ranges])
        if count > most:
            raise TooManyError
        verified = self._prefiltered if count > _MANY_ENTRIES and self._prefilter.is_useful else self._verified
        subscriptions = verified(ranges, message)
        return list(dict.fromkeys(subscriptions)) if self._overlapping else subscriptions

    def _found(self, message: Message) -> list[Range]:
        """Return the entries that the message finds."""
        probed, entries_at, ways_at = self._probed, self._entries_at, self._ways_at
        has_ways = self._segment.has_ways
        metadata, by_fact = message.metadata, message.literals
        ranges: list[Range] = self._always.copy()
        # Second literals last: most are known then. Texts are searched for in all values together.
        first: list[int] = []
        unread: list[tuple[int, str]] = []
        for key in metadata if len(metadata) < len(probed) else probed:
            value = metadata.get(key)
            if value is None:
                continue
            for fact, make, literal_of, way in probed.get(key, ()):
                if literal_of is not None:
                    literal = literal_of(value if make is None else make(value))
                    if not literal:
                        by_fact[fact] = ()
                        continue
                    by_fact[fact] = (literal,)
                    begin, end = entries_at[literal], entries_at[literal + 1]
                    if begin < end:
                        ranges.append((begin, end))
                    if has_ways and ways_at[literal] < ways_at[literal + 1]:
                        first.append(literal)
                else:
                    hit = self._hits[fact].get(value) if way != _OF_NODES else self._node_hit(fact, message)
                    if hit is None:
                        if way == _SCANNED:
                            unread.append((fact, value))
                            continue
                        hit = self._hit(fact, value, message)
                    by_fact[fact], entries = hit
                    ranges += entries
                    first += hit[0]
        if unread or self._reads_any:
            self._read(unread, message, ranges, first)
        if first and has_ways:
            self._add_paired(first, message, ranges)
        return ranges

    def _add_paired(self, literals: Iterable[int], message: Message, ranges: list[Range]) -> None:
        """Add the entries that are found by one of the literals and a second one."""
        ways_at, way_fact, by_fact = self._ways_at, self._way_fact, message.literals
        pairs, likely = self._pairs, self._in_pairs.likely
        size = len(likely)
        for literal in literals:
            for way in range(ways_at[literal], ways_at[literal + 1]):
                fact = way_fact[way]
                seconds = by_fact.get(fact)
                if seconds is None:
                    seconds = self._literals_of(fact, message)
                for second in seconds:
                    pair = way << 32 | second
                    if likely[pair % size]:
                        paired = pairs.get(pair)
                        if paired is None:
                            paired = self._pair(pair)
                        if paired is not NO_RANGE:
                            ranges.append(paired)

    def _verified(self, ranges: list[Range], message: Message) -> list[int]:
        """Return the subscriptions of the entries whose checks are all true."""
        if not self._keeps_programs:
            return self._verified_each(ranges, message)
        program_of, subscription_of, true = self._program_of, self._subscription_of, self._true
        verdicts: dict[int, bool] = {}
        subscriptions: list[int] = []
        for begin, end in ranges:
            for entry in range(begin, end):
                program = program_of[entry]
                verdict = verdicts.get(program)
                if verdict is None:
                    verdict = verdicts[program] = true(program, message)
                if verdict:
                    subscriptions.append(subscription_of[entry])
        return subscriptions

    def _verified_each(self, ranges: list[Range], message: Message) -> list[int]:
        """Return what `_verified` does, in less time where few entries share a program."""
        program_of, subscription_of, checks_at = self._program_of, self._subscription_of, self._checks_at
        op, a, b, by_fact = self._op, self._a, self._b, message.literals
        subscriptions: list[int] = []
        last, verdict = -1, False
        for begin, end in ranges:
            for entry in range(begin, end):
                program = program_of[entry]
                if program != last:
                    last, verdict = program, True
                    for check in range(checks_at[program], checks_at[program + 1]):
                        kind, fact = op[check], a[check]
                        if kind in _OF_FACTS:
                            # Mostly it is the only one, and false.
                            literals = by_fact.get(fact)
                            if literals is None:
                                literals = self._literals_of(fact, message)
                            if (b[check] in literals) == (kind & 1):
                                verdict = False
                                break
                        elif self._holds(kind >> 1, fact, b[check], message) == (kind & 1):
                            verdict = False
                            break
                if verdict:
                    subscriptions.append(subscription_of[entry])
        return subscriptions

    def _prefiltered(self, ranges: list[Range], message: Message) -> list[int]:
        """Return what `_verified` does, in less time for many entries."""
        subscriptions, programs, true = self._prefilter.remaining(ranges, lambda key: self._number(key, message))
        for entry in np.flatnonzero(~true).tolist():
            true[entry] = self._true(int(programs[entry]), message)
        return subscriptions[true].tolist()  # type: ignore[no-any-return]

    def _hit(self, fact: int, value: str, message: Message) -> _Hit:
        """Look a value up under a fact of many texts, and cache the result."""
        if fact in self._nodes:
            return self._node_hit(fact, message)
        hit = self._with_entries(self._looked_up(fact, value))
        if len(value) <= _LONG_VALUE:
            self._hits[fact][value] = hit
            self._known += 1
        return hit

    def _read(self, unread: Sequence[tuple[int, str]], message: Message, ranges: list[Range], first: list[int]) -> None:
        """Search for the texts of facts in their values, and add their literals."""
        hits, by_fact = self._hits, message.literals
        found = self._search(unread, message)
        self._known += len(unread)
        for fact, value in unread:
            own = found.get(fact)
            hit = _NO_HIT if own is None else self._with_entries(tuple(own))
            by_fact[fact] = hit[0]
            if len(value) <= _LONG_VALUE:
                hits[fact][value] = hit
            if own is not None:
                ranges += hit[1]
                first += own

    def _search(self, unread: Sequence[tuple[int, str]], message: Message) -> dict[int, set[int]]:  # noqa: ARG002
        """Return the literals of facts in the values that each is to be looked for in."""
        is_folded = self._is_folded
        asked: dict[str, list[int]] = {}
        for fact, value in unread:
            asked.setdefault(fold(value) if is_folded[fact] else value, []).append(fact)
        return self._scan.find(asked) if asked else {}

    def _node_hit(self, fact: int, message: Message) -> _Hit:
        """Look the number of a key up under a fact of nodes, and cache the result for all numbers of its cell."""
        key = self._key_of_fact[fact]
        leaf = message.leaves.get(key)
        if leaf is None:
            number = self._number(key, message)
            # Facts of one key have the same cells.
            leaf = message.leaves[key] = 0 if isnan(number) else self._nodes[fact].leaf_of(number)
        if not leaf:
            return _NO_HIT
        hit = self._hits[fact].get(leaf)
        if hit is None:
            hit = self._hits[fact][leaf] = self._with_entries(self._nodes[fact].of_leaf(leaf))
            self._known += 1
        return hit

    def _with_entries(self, literals: tuple[int, ...]) -> _Hit:
        """Return literals with the ranges of their entries."""
        at = self._entries_at
        if len(literals) == 1:
            begin, end = at[literals[0]], at[literals[0] + 1]
            return literals, (((begin, end),) if begin < end else ())
        ranges = [(at[literal], at[literal + 1]) for literal in literals]
        return literals, tuple([(begin, end) for begin, end in ranges if begin < end])

    def _looked_up(self, fact: int, value: str) -> tuple[int, ...]:
        """Return the literals that a fact of many texts makes of a value."""
        kind = self._facts[fact][1]
        if fact in self._segment.scanners:
            return tuple(self._scan.find({fold(value) if kind.fold else value: (fact,)}).get(fact, ()))
        find = self._segment.find_one
        return tuple([literal for text in probes_of(kind)(value) if (literal := find(fact, text))])

    def _literals_of(self, fact: int, message: Message) -> Literals:
        """Return the literals that a fact makes of the message."""
        literals = message.literals.get(fact)
        if literals is None:
            key, make, literal_of = self._readers[fact]
            value = message.metadata.get(key)
            if value is None:
                literals = ()
            elif literal_of is None:
                literals = (self._hits[fact].get(value) or self._hit(fact, value, message))[0]
            else:
                literal = literal_of(value if make is None else make(value))
                literals = (literal,) if literal else ()
            message.literals[fact] = literals
        return literals

    def _pair(self, key: int) -> Range:
        """Return the entries that are found by a way and a second literal; `NO_RANGE` without any."""
        self._known += 1
        entries = self._pairs[key] = self._in_pairs.range_of(key)
        return entries

    def _true(self, program: int, message: Message) -> bool:
        """Return True if all checks of a program are true."""
        by_fact = message.literals
        for kind, a, b in self._checks_of(program):
            if kind in _BY_LITERALS:
                literals = by_fact.get(a)
                if literals is None:
                    literals = self._literals_of(a, message)
                if not literals:
                    # Mostly of a key that the message lacks.
                    true = False
                elif kind in _OF_FACTS:
                    true = b in literals
                elif kind == NONE_OF:
                    true = not b.isdisjoint(literals)
                else:
                    true = self._holds(kind >> 1, a, b, message)
            elif kind >> 1 == TREE:
                true = self._tree(b, message)
            else:
                true = self._holds(kind >> 1, a, b, message)
            if true == (kind & 1):
                return False
        return True

    def _checks_of(self, program: int) -> Iterable[Check]:
        """Return the checks of a program; those that many entries share are cached."""
        checks = self._programs.get(program)
        if checks is None:
            own = slice(self._checks_at[program], self._checks_at[program + 1])
            read = zip(self._op[own], self._a[own], self._b[own], strict=True)
            if self._keeps_programs:
                checks = self._programs[program] = merged(read)
            else:
                return read
        return checks

    def _holds(self, kind: int, a: int, b: int, message: Message) -> bool:
        """Return True if a check, without its negation, is true."""
        if kind == LIMITS:
            return bool(self._low[b] <= self._number(a, message) <= self._high[b])
        if kind in (ONE_OF, JUST_ONE):
            bits, members = self._set_bits[b], self._members
            literals = message.literals.get(a)
            for literal in self._literals_of(a, message) if literals is None else literals:
                if bits >> (literal & 63) & 1:
                    member = members.get(b << 32 | literal)
                    if self._is_member(b << 32 | literal) if member is None else member:
                        return True
            return False
        if kind in (EQUAL, MANY):
            return b in self._literals_of(a, message)
        if kind == HOLDS:
            return self._passes(a, b, message)
        return self._tree(b, message)

    def _passes(self, key: int, test: int, message: Message) -> bool:
        """Return True if a test of a key's value is true."""
        group = self._group_of[test]
        if group >= 0:
            # Beside the facts: a group finds tests.
            passed = message.literals.get(~group)
            if passed is None:
                passed = message.literals[~group] = self._passed(key, group, message)
            return test in passed
        value = message.metadata.get(self._keys[key])
        return value is not None and self._tests.passes(key, test, value)

    def _passed(self, key: int, group: int, message: Message) -> Literals:
        """Return the tests of a group that are true of the message."""
        value = message.metadata.get(self._keys[key])
        return () if value is None else self._tests.passed(group, value)

    def _is_member(self, member: int) -> bool:
        """Return True if the set in the upper half contains the literal in the lower one."""
        self._known += 1
        known = self._members[member] = self._in_sets.range_of(member) is not NO_RANGE
        return known

    def _number(self, key: int, message: Message) -> float:
        """Return the number that the message has as the value of a key; NaN for none."""
        number = message.numbers.get(key)
        if number is None:
            value = message.metadata.get(self._keys[key])
            parsed = None if value is None else parsed_number(value)
            number = message.numbers[key] = nan if parsed is None else parsed
        return number

    def _tree(self, tree: int, message: Message) -> bool:
        """Return True if a tree is true."""
        by_fact = message.literals
        jumps, nodes = self._trees(tree)
        at = len(jumps) - 1
        while at >= 0:
            kind, a, b, if_true, if_false = jumps[at]
            if kind in LITERALS:
                literals = by_fact.get(a)
                if literals is None:
                    literals = self._literals_of(a, message)
                if not literals:
                    at = if_false
                    continue
                true = b in literals if kind in _IS_LITERAL else self._holds(kind, a, b, message)
            elif kind == TREE:
                true = self._counted(nodes, message)
            else:
                true = self._holds(kind, a, b, message)
            at = if_true if true else if_false
        return at == IS_TRUE

    def _counted(self, nodes: Sequence[Node], message: Message) -> bool:
        """Evaluate a tree by counting. Nodes follow their parents, so all children are known when walking backwards."""
        count = [0] * len(nodes)
        true = False
        for node, parent, kind, negated, a, b in nodes:
            true = (a <= count[node] <= b if kind == GROUP else self._holds(kind, a, b, message)) != negated
            if true:
                count[parent] += 1
        return true

    def _read_tree(self, tree: int) -> Tree:
        arrays = self._segment.arrays
        nodes = slice(arrays.tree_at[tree], arrays.tree_at[tree + 1])
        columns = (arrays.node_op, arrays.node_a, arrays.node_b, arrays.node_parent)
        return tree_of(list(zip(*(column[nodes].tolist() for column in columns), strict=True)))


def single_of(segment: Segment) -> Single:
    """Return the segment's matcher of single messages, made when it is first needed."""
    if segment.single is None:
        segment.single = Single(segment)
    return segment.single
