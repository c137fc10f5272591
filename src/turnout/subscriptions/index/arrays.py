"""Content of a segment: named flat arrays, and a head that gives their numbers a meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnout.base.untrusted import JsonObject
from turnout.conditions.anchor import Kind
from turnout.subscriptions.index.buckets import Ints, Longs
from turnout.subscriptions.index.facts import Fact
from turnout.subscriptions.index.text_arrays import Texts

EQUAL: Final = 0
"""A single fact (*a*) has the literal *b*."""
ONE_OF: Final = 1
"""A fact (*a*) has a literal of the set *b*."""
LIMITS: Final = 2
"""The number that the key *a* has as its value is between the limits *b*."""
MANY: Final = 3
"""A fact of many texts (*a*) has the literal *b* among them."""
HOLDS: Final = 4
"""The value of the key *a* passes the test *b*, which has to be carried out."""
TREE: Final = 5
"""The tree *b* is true."""
GROUP: Final = 6
"""Only in trees: from *a* to *b* of the node's children are true."""
JUST_ONE: Final = 7
"""`ONE_OF` for alternatives that exclude each other: of several values, one member of the set in all."""


@dataclass(frozen=True, slots=True)
class Head:
    """Meaning of the numbers in a segment's arrays.

    Attributes:
        keys: the metadata keys that are read.
        facts: by number.
        probed: the facts that entries are found by.
        always: the first of the entries that are checked for every message.
        paired: the first of the entries that are found by two literals at once; the always ones end here.
        overlapping: True if a subscription can be found several times for one message.
    """

    keys: tuple[str, ...]
    facts: tuple[Fact, ...]
    probed: tuple[int, ...]
    always: int
    paired: int
    overlapping: bool

    def as_json(self) -> JsonObject:
        """The head as plain data."""
        return {
            "keys": self.keys,
            "facts": [[key, list(kind)] for key, kind in self.facts],
            "probed": self.probed,
            "always": self.always,
            "paired": self.paired,
            "overlapping": self.overlapping,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> Head:
        """The head that `as_json` wrote."""
        facts = tuple((key, Kind(*kind)) for key, kind in data["facts"])
        return cls(
            tuple(data["keys"]), facts, tuple(data["probed"]), data["always"], data["paired"], data["overlapping"]
        )


@dataclass(frozen=True, slots=True)
class Arrays:
    """The flat arrays. Literals are numbered from 1 in the order of their hashes; 0 is any text that is none.

    Attributes:
        literal_hash: hash of each literal, beginning with literal 1.
        literal_fact: fact of its text.
        literal_start: start of the buckets of hashes.
        literal_text: the texts themselves.
        entries_at: by literal: its first entry; the next one's first ends them.
        ways_at: by literal: the first of its second facts, see `way_fact`; empty if no literal has any.
        way_fact: the fact to look up next, for those of the literal's entries that also need a literal of it.
        pair_key: key of each paired entry, the way in the upper half and the literal in the lower.
        pair_start: start of the buckets of their hashes.
        entry_subscription: by entry.
        entry_program: remaining checks of each entry; entries with the same ones share them.
        checks_at: by program: its first check.
        check_op: operation, times two, plus one if it is negated.
        check_a: see `EQUAL` and the others.
        check_b: see there.
        set_key: members of sets, the set in the upper half and the literal in the lower.
        set_start: start of the buckets of their hashes.
        set_bits: by set: the bits of its literals' numbers modulo 64: most that is not in a set has another.
        limit_low: the least number that will do.
        limit_high: the greatest.
        cuts_at: by key: the first of its cuts.
        cuts: the numbers at which the cells of a key begin, see `turnout.subscriptions.index.ranges`.
        test_form: of tests that have to be carried out: an operation, and whether it is partial or folded.
        test_text: its text.
        test_last: its last address.
        tree_at: by tree: its first node.
        node_op: as `check_op`; nodes come after their parents.
        node_a: as `check_a`.
        node_b: as `check_b`.
        node_parent: distance back to the parent, in nodes; 0 for the root.
        node_depth: 0 for the root.
        ids: ids of the subscriptions.
        destinations_at: by subscription: its first destination.
        destination: index of its text in `destinations`.
        destinations: each once.
        expires_record: by subscription: the time of a record, in milliseconds since 1970, from which on it matches
            nothing; empty where no subscription has one.
        expires_wall: the same for the clock.
        project: by subscription: index of its text in `projects`, -1 for none; empty where no subscription has one.
        projects: expressions, each once.
    """

    literal_hash: NDArray[np.uint64]
    literal_fact: Ints
    literal_start: NDArray[np.uint32]
    literal_text: Texts
    entries_at: Ints
    ways_at: Ints
    way_fact: Ints
    pair_key: Longs
    pair_start: NDArray[np.uint32]
    entry_subscription: Ints
    entry_program: Ints
    checks_at: Ints
    check_op: NDArray[np.uint8]
    check_a: Ints
    check_b: Ints
    set_key: Longs
    set_start: NDArray[np.uint32]
    set_bits: NDArray[np.uint64]
    limit_low: NDArray[np.float64]
    limit_high: NDArray[np.float64]
    cuts_at: Ints
    cuts: NDArray[np.float64]
    test_form: NDArray[np.uint8]
    test_text: Texts
    test_last: Texts
    tree_at: Ints
    node_op: NDArray[np.uint8]
    node_a: Ints
    node_b: Ints
    node_parent: Ints
    node_depth: NDArray[np.uint8]
    ids: Texts
    destinations_at: Ints
    destination: Ints
    destinations: Texts
    expires_record: Longs
    expires_wall: Longs
    project: Ints
    projects: Texts
