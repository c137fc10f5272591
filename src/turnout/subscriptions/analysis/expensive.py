"""Subscriptions of which one record may need so many verifications together that it takes too long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from turnout.base.multivalued import ANY_KEY
from turnout.conditions import Compare, Leaf, leaves
from turnout.conditions.anchor import Kind
from turnout.conditions.check import check_of
from turnout.conditions.leaf import Check
from turnout.conditions.pattern import ANY, ONE, parse_pattern
from turnout.conditions.terms import Term
from turnout.subscriptions.index.facts import kind_of, parts_of

EXPENSIVE_MS = 20.0
"""Milliseconds to verify all that one record may need, above which the subscriptions that take most are expensive."""

_TEST_MS, _TERM_MS, _BOUND_MS, _SEARCH_MS = 0.004, 0.0002, 0.002, 0.03
"""Milliseconds for a test of a value in Python, each different one once, and for each further text that is searched in
it; for the rest of a term; for a number that any value is compared with, because values below and above nearly all
numbers find nearly all terms; and for a part of a glob with ``?``, which many places in a value may nearly match."""

_ANY_VALUES = 16
"""Values of a record that a test of any value is carried out for, or elements of an array, by estimate."""

_VALUE_CHARACTERS = 4_096
"""Characters of a value, by estimate; so many can be taken by the texts that terms are found by."""

_SHORT = 3
"""Characters of a text up to which one value may contain all texts: they overlap in it."""

_TEXTS_TOGETHER = ("~", "always", "has")
"""Kinds of anchors of which one value can have several, or that have no text."""

Terms = Mapping[str, Sequence[Term]]
"""Subscription → its disjoint terms."""


class _Group(NamedTuple):
    """Terms that one record may need together.

    Attributes:
        ms: to verify them, by estimate.
        ids: their subscriptions.
    """

    ms: float
    ids: frozenset[str]


class _Load:
    """Terms that one text finds.

    Attributes:
        ids: subscriptions of its terms.
    """

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._terms: Counter[tuple[str, str]] = Counter()
        self._tests: defaultdict[tuple[str, str], set[Check]] = defaultdict(set)

    def add(self, id_: str, second: tuple[str, str], tests: Iterable[Check]) -> None:
        """Add a term, with the key and the value that it needs besides; empty for none."""
        self.ids.add(id_)
        self._terms[second] += 1
        self._tests[second].update(tests)

    @property
    def ms(self) -> float:
        """Milliseconds to verify it: a record has one value of each key."""
        most: defaultdict[str, float] = defaultdict(float)
        for second, count in self._terms.items():
            own = count * _TERM_MS + sum(map(_test_ms, self._tests[second]))
            most[second[0]] = max(most[second[0]], own)
        return sum(most.values())


def expensive(terms: Terms) -> tuple[str, ...]:
    """Return the sorted ids of the subscriptions to verify which takes more than `EXPENSIVE_MS` for one record.

    The record has the values that find most in each key. The subscriptions that take most are named, until the others
    take less time together.
    """
    slots = [sorted(groups, key=lambda group: group.ms) for groups in _slots_of(terms)]
    total = sum(groups[-1].ms for groups in slots)
    named: set[str] = set()
    while total > EXPENSIVE_MS:
        worst = max((groups for groups in slots if groups), key=lambda groups: groups[-1].ms)
        group = worst.pop()
        named |= group.ids
        total += (worst[-1].ms if worst else 0.0) - group.ms
    return tuple(sorted(named))


def _slots_of(terms: Terms) -> Iterator[list[_Group]]:
    """Yield the groups of each key and kind of anchor, of which a record has one."""
    slots: defaultdict[tuple[str, Kind], defaultdict[str, _Load]] = defaultdict(lambda: defaultdict(_Load))
    uses = Counter(second for own in terms.values() for term in own for second in _seconds_of(term))
    for id_, own in terms.items():
        for term in own:
            tests = _tests_of(term)
            if not tests and any(_has_lookup(leaf) for leaf in term.checks if not leaf.negated):
                # A second text or number finds it.
                continue
            second = min(_seconds_of(term), key=uses.__getitem__, default=("", ""))
            access = term.access
            slots[access.key, access.kind][_text_of(term)].add(id_, second, tests)
    for (_, kind), loads in slots.items():
        if kind.lexeme or kind.op in _TEXTS_TOGETHER:
            yield [_together(loads)]
        else:
            yield [_Group(load.ms, frozenset(load.ids)) for load in loads.values()]


def _together(loads: Mapping[str, _Load]) -> _Group:
    """Return the texts that one value may contain together: all short ones, and as many others as have room."""
    room, ms = _VALUE_CHARACTERS, 0.0
    ids: set[str] = set()
    for text, load in sorted(loads.items(), key=lambda item: -item[1].ms / max(1, len(item[0]))):
        if len(text) > _SHORT:
            if len(text) > room:
                continue
            room -= len(text)
        ms += load.ms
        ids |= load.ids
    return _Group(ms, frozenset(ids))


def _text_of(term: Term) -> str:
    """Return the text that the term is found by: of a part of a value the longest one, as the index has it."""
    key, kind, text = term.access
    if kind.op != "~":
        return text
    checks = [check_of(leaf) for leaf in term.checks if leaf.key == key and not leaf.negated]
    texts = [part[1:] for check in checks for _, parts in parts_of(check, None) for part in parts]
    return max([text, *texts], key=len)


def _seconds_of(term: Term) -> list[tuple[str, str]]:
    """Return the keys with a value that a term needs besides the anchor that it is found by."""
    found = []
    for leaf in term.checks:
        check = check_of(leaf)
        if check.op == "=" and not (check.negated or check.partial or check.key in (ANY_KEY, term.access.key)):
            found.append((check.key, check.text))
    return found


def _tests_of(term: Term) -> set[Check]:
    """Return the tests of values that a term needs, without their negations."""
    rest = () if term.rest is None else leaves(term.rest)
    tests = (check_of(leaf) for leaf in (*term.checks, *rest) if not _has_lookup(leaf))
    return {check._replace(negated=False) for check in tests}


def _test_ms(check: Check) -> float:
    if check.op[0] == "n":
        return _BOUND_MS
    ms = _glob_ms(check.text) if check.op == "glob" else _TEST_MS
    return ms * (_ANY_VALUES if check.key == ANY_KEY or check.op == "any" else 1)


def _glob_ms(pattern: str) -> float:
    """Return the milliseconds for a glob: of its parts, those between two ``*`` are searched for."""
    parts: list[list[object]] = [[]]
    for piece in parse_pattern(pattern):
        if piece is ANY:
            parts.append([])
        else:
            parts[-1].append(piece)
    inner = parts[1:-1]
    return _TEST_MS * max(1, len(inner)) + _SEARCH_MS * sum(ONE in part for part in inner)


def _has_lookup(leaf: Leaf) -> bool:
    """Return True if the index decides the leaf without a test of the value."""
    if isinstance(leaf, Compare):
        return leaf.key != ANY_KEY
    return kind_of(check_of(leaf)) is not None
