"""Literals of one message: the texts and numbers in its values that a segment's entries and checks are about."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Final, TypeAlias

from turnout.conditions.evaluate import parsed_number
from turnout.conditions.pattern import fold
from turnout.subscriptions.index.buckets import viewed
from turnout.subscriptions.index.facts import WHOLE, probes_of, text_maker
from turnout.subscriptions.index.number_table import Range
from turnout.subscriptions.index.scan_one import OneScan
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.single_message import Literals, Message

LONG_VALUE = 1 << 12
"""Characters of a value beyond which nothing is cached for it."""

Hit: TypeAlias = tuple[tuple[int, ...], tuple[Range, ...]]
"""Literals of a value, and ranges of their entries."""

NO_HIT: Final[Hit] = ((), ())

_Reader: TypeAlias = tuple[str, Callable[[str], str] | None, Callable[[str], int | None] | None]
"""The key of a fact, the function from a value to its text (None if that is the value), and the function from the text
to the literal (None for a fact of many texts)."""

LOOKED_UP, OF_NODES, SCANNED = range(3)
"""Ways to find literals of a fact that may have many: each by itself, by a number, or all in one search."""

Probe: TypeAlias = tuple[int, Callable[[str], str] | None, Callable[[str], int | None] | None, int]
"""A fact that entries are found by, the functions of its reader, and the way to find many literals."""


class SingleLiterals:
    """Literals of single messages, with a cache of those of values. Thread-safe.

    Args:
        segment: segment with the literals.
    """

    def __init__(self, segment: Segment) -> None:
        head = segment.head
        self._segment = segment
        self._literal_of = segment.literal_of
        self._keys = head.keys
        self._facts = head.facts
        self._key_of_fact: list[int] = segment.key_of_fact.tolist()
        self._nodes = segment.nodes
        # No entry is found by the others.
        used = {*head.probed, *segment.arrays.way_fact.tolist()}
        self._node_facts: dict[int, list[int]] = {}
        for fact in self._nodes:
            if fact in used:
                self._node_facts.setdefault(self._key_of_fact[fact], []).append(fact)
        self._finest = {key: min(self._nodes[fact].finest for fact in own) for key, own in self._node_facts.items()}
        self._entries_at = viewed(segment.arrays.entries_at)
        self._scan = OneScan(segment.scanner)
        self._readers = [self._reader(fact) for fact in range(len(self._facts))]
        self._probed = self._probes()
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing remembered."""
        self._hits: list[dict[str, Hit]] = [{} for _ in self._facts]
        self._node_hits: dict[int, dict[int, dict[int, Hit]]] = {key: {} for key in self._finest}
        self._known = 0

    def _reader(self, fact: int) -> _Reader:
        key, kind = self._facts[fact]
        make = None if kind == WHOLE or self._segment.many[fact] else text_maker(kind)
        return key, make, self._literal_of[fact]

    def _probes(self) -> dict[str, tuple[Probe, ...]]:
        """Return the keys to read, each with the facts that entries are found by."""
        keys: dict[str, tuple[Probe, ...]] = {}
        for fact in self._segment.head.probed:
            key, make, literal_of = self._readers[fact]
            way = OF_NODES if fact in self._nodes else SCANNED if fact in self._segment.scanned else LOOKED_UP
            keys[key] = (*keys.get(key, ()), (fact, make, literal_of, way))
        return keys

    def _hit(self, fact: int, value: str, message: Message) -> Hit:
        """Look a value up under a fact of many texts, and cache the result."""
        if fact in self._nodes:
            return self._node_hit(fact, message)
        hit = self._with_entries(self._looked_up(fact, value))
        if len(value) <= LONG_VALUE:
            self._hits[fact][value] = hit
            self._known += 1
        return hit

    def _node_hit(self, fact: int, message: Message) -> Hit:
        """Look the number of a key up under a fact of nodes, and so under all of that key."""
        key = self._key_of_fact[fact]
        number = message.numbers.get(key)
        if number is None:
            number = self._number(key, message)
        # Facts of one key have the same cells. NaN has none.
        leaf = self._nodes[fact].leaf_of(number) >> self._finest[key] if number == number else 0
        hits = self._node_hits[key].get(leaf)
        if hits is None:
            hits = self._node_hits[key][leaf] = self._hits_of_nodes(key, leaf)
        by_fact = message.literals
        for own, hit in hits.items():
            by_fact[own] = hit[0]
        return hits[fact]

    def _hits_of_nodes(self, key: int, node: int) -> dict[int, Hit]:
        """Return the hits of the facts of a key, given the smallest node that a number is in; 0 for none."""
        self._known += 1
        leaf = node << self._finest[key]
        nodes = self._nodes
        return {
            fact: self._with_entries(nodes[fact].of_leaf(leaf)) if node else NO_HIT for fact in self._node_facts[key]
        }

    def _with_entries(self, literals: tuple[int, ...]) -> Hit:
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
        if fact in self._segment.scanned:
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

    def _literal(self, fact: int, message: Message) -> int:
        """Return the literal that the message has in a fact of one text; 0 for none."""
        literals = self._literals_of(fact, message)
        return next(iter(literals)) if literals else 0

    def _number(self, key: int, message: Message) -> float:
        """Return the number that the message has as the value of a key; NaN for none."""
        number = message.numbers.get(key)
        if number is None:
            value = message.metadata.get(self._keys[key])
            parsed = None if value is None else parsed_number(value)
            number = message.numbers[key] = nan if parsed is None else parsed
        return number
