"""Verification of the entries that one message finds: programs of checks, and trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, starmap
from typing import Final

import numpy as np

from turnout.subscriptions.index.arrays import EQUAL, GROUP, HOLDS, JUST_ONE, LIMITS, LITERAL_SET, MANY, ONE_OF, TREE
from turnout.subscriptions.index.buckets import indices_of, viewed
from turnout.subscriptions.index.number_table import NO_RANGE, NumberTable, Range
from turnout.subscriptions.index.programs import IS_TRUE, LITERALS, NONE_OF, Check, Node, Tree, merged, tree_of
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.single_literals import SingleLiterals
from turnout.subscriptions.index.single_message import Literals, Message

_MOST_TREES = 4_096
"""Maximum number of trees kept as lists, which are read faster than arrays."""

_MOST_PROGRAMS = 4_096
"""Maximum number of programs whose checks are kept as tuples, which are read faster than arrays."""

_LEAST_LITERALS = 0.5
"""Share of the entries that begin with the equality of a literal, from which they are kept beside the entries."""

_BY_LITERALS: Final = frozenset(kind << 1 | negated for kind in (*LITERALS, LITERAL_SET) for negated in (0, 1))
"""Checks that are false, but for their negation, of a fact without literals."""

_IS_LITERAL: Final = (EQUAL, MANY)
_OF_FACTS: Final = (EQUAL << 1, EQUAL << 1 | 1, MANY << 1, MANY << 1 | 1)


class SingleChecks(SingleLiterals):
    """Verification of entries for single messages. Thread-safe.

    Args:
        segment: segment with the entries.
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        arrays = segment.arrays
        self._tests = segment.tests
        self._group_of = segment.tests.group_of
        self._checks_at = viewed(arrays.checks_at)
        self._subscription_of = viewed(arrays.entry_subscription)
        self._program_of = viewed(arrays.entry_program)
        self._keeps_programs = len(arrays.checks_at) <= _MOST_PROGRAMS
        self._programs: dict[int, tuple[Check, ...]] = {}
        self._first_literals = None if self._keeps_programs else _first_literals(segment)
        self._op, self._a, self._b = viewed(arrays.check_op), viewed(arrays.check_a), viewed(arrays.check_b)
        self._low, self._high = viewed(arrays.limit_low), viewed(arrays.limit_high)
        self._set_bits = viewed(arrays.set_bits)
        self._in_sets = NumberTable(arrays.set_key, arrays.set_start, 0)
        self._prefilter = segment.prefilter
        self._trees = lru_cache(maxsize=_MOST_TREES)(self._read_tree)

    def _begin(self) -> None:
        super()._begin()
        self._members: dict[int, bool] = {}

    def _verified(self, ranges: list[Range], message: Message) -> list[int]:
        """Return the subscriptions of the entries whose checks are all true."""
        if not self._keeps_programs:
            return self._verified_each(ranges, message)
        program_of, subscription_of, programs = self._program_of, self._subscription_of, self._programs
        by_fact = message.literals
        verdicts: dict[int, bool] = {}
        subscriptions: list[int] = []
        for begin, end in ranges:
            for entry in range(begin, end):
                program = program_of[entry]
                verdict = verdicts.get(program)
                if verdict is None:
                    checks = programs.get(program)
                    if checks is None:
                        checks = self._kept_checks(program)
                    verdict = True
                    if checks:
                        # Mostly it is false, and so a call of `_true` is not needed.
                        kind, fact, literal = checks[0]
                        literals = by_fact.get(fact) if kind in _OF_FACTS else None
                        if literals is None or (literal in literals) != (kind & 1):
                            verdict = self._true(program, message)
                        else:
                            verdict = False
                    verdicts[program] = verdict
                if verdict:
                    subscriptions.append(subscription_of[entry])
        return subscriptions

    def _verified_each(self, ranges: list[Range], message: Message) -> list[int]:
        """Return what `_verified` does, in less time where few entries share a program."""
        program_of, subscription_of, checks_at = self._program_of, self._subscription_of, self._checks_at
        op, a, b, by_fact = self._op, self._a, self._b, message.literals
        subscriptions: list[int] = []
        last, verdict = -1, False
        for entry in self._entries(ranges, by_fact):
            program = program_of[entry]
            if program != last:
                last, verdict = program, True
                for check in range(checks_at[program], checks_at[program + 1]):
                    kind, fact = op[check], a[check]
                    if kind in _OF_FACTS:
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

    def _entries(self, ranges: list[Range], by_fact: Mapping[int, Literals]) -> Iterable[int]:
        """Return the entries of the ranges, without those whose first literal was looked up and not found."""
        first = self._first_literals
        if first is None:
            return chain.from_iterable(starmap(range, ranges))
        # 0 for entries whose first check is of another kind. Mostly none is left: no program need be read.
        found = {0}.union(*by_fact.values())
        return [
            entry
            for begin, end in ranges
            for entry, literal in zip(range(begin, end), first[begin:end], strict=True)
            if literal in found
        ]

    def _prefiltered(self, ranges: list[Range], message: Message) -> list[int]:
        """Return what `_verified` does, in less time for many entries."""
        prefilter, known = self._prefilter, message.numbers
        values = [known[key] if key in known else self._number(key, message) for key in prefilter.keys]
        values += [self._literal(fact, message) for fact in prefilter.facts]
        subscriptions, programs, true = prefilter.remaining(ranges, values)
        undecided = indices_of(~true)
        verdicts: dict[int, bool] = {}
        for entry, program in zip(undecided.tolist(), programs.take(undecided).tolist(), strict=True):
            verdict = verdicts.get(program)
            if verdict is None:
                verdict = verdicts[program] = self._true(program, message)
            true[entry] = verdict
        return subscriptions[true].tolist()  # type: ignore[no-any-return]

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
        if self._keeps_programs:
            return self._programs.get(program) or self._kept_checks(program)
        return self._read_checks(program)

    def _kept_checks(self, program: int) -> tuple[Check, ...]:
        """Return the checks of a program, and cache them."""
        checks = self._programs[program] = merged(self._read_checks(program))
        return checks

    def _read_checks(self, program: int) -> Iterable[Check]:
        own = slice(self._checks_at[program], self._checks_at[program + 1])
        return zip(self._op[own], self._a[own], self._b[own], strict=True)

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
            # Programs with other checks share tests, which take longer than all else.
            passed = message.passed.get((a, b))
            if passed is None:
                passed = message.passed[a, b] = self._passes(a, b, message)
            return passed
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


def _first_literals(segment: Segment) -> Sequence[int] | None:
    """Return for each entry the literal that its first check requires; 0 if that has to be verified in another way.

    These are literals of facts that are looked up for each message: one that was not found is not in the message. None
    if most entries have to be verified in another way.
    """
    arrays = segment.arrays
    some = indices_of(np.diff(arrays.checks_at))
    first = arrays.checks_at.take(some)
    facts = arrays.check_a.take(first)
    usable = (arrays.check_op.take(first) == EQUAL << 1) & np.isin(facts, segment.probed_single)
    literals = np.zeros(len(arrays.checks_at) - 1, np.int32)
    literals[some[usable]] = arrays.check_b.take(first[usable])
    of_entries = literals.take(arrays.entry_program)
    return viewed(of_entries) if np.count_nonzero(of_entries) >= _LEAST_LITERALS * len(of_entries) else None
