"""A segment: some subscriptions as flat arrays, never changed, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.check import COMPARISONS, Check
from turnout.multivalued import is_plain_key
from turnout.subscriptions.index.arrays import HOLDS, LIMITS, Arrays, Head
from turnout.subscriptions.index.buckets import Indices, Ints, Longs, in_bucket, indices_of, mixed, shift_of, viewed
from turnout.subscriptions.index.facts import CELL, PART, SPAN, encoded, hash_of, is_many, salt_of
from turnout.subscriptions.index.layout import map_segment, write_segment
from turnout.subscriptions.index.prefilter import Prefilter
from turnout.subscriptions.index.ranges import NodeLiterals
from turnout.subscriptions.index.scanner import Scanner
from turnout.subscriptions.index.value_tests import ValueTests

if TYPE_CHECKING:
    from turnout.subscriptions.index.dictionary import ValueDictionaries
    from turnout.subscriptions.index.match_any import AnySingle
    from turnout.subscriptions.index.match_one import Single
    from turnout.subscriptions.index.match_several import SeveralSingle
    from turnout.subscriptions.index.tables import Tables

TESTS: tuple[str, ...] = ("=", "^", "$", "~", "glob", "has", "cidr", *COMPARISONS, "re", "any", "subject")
"""The operations of tests that have to be carried out; a form is a place here, 16 more if partial, 32 if folded."""


_MOST_DIRECT = 2
"""Maximum number of facts of a key whose literals are found without a dictionary of the key's values."""

_MOST_TEXTS, _LEAST_TEXTS, _LONG_TEXT = 1 << 15, 16, 1 << 10
"""Maximum number of texts whose literals are cached for all facts, minimum for each, and characters of such a text."""


def form_of(check: Check) -> int:
    """Return the kind of a check's test, without its text."""
    return TESTS.index(check.op) | check.partial << 4 | check.fold << 5


class Segment:
    """Look-up of literals, pairs, sets and subscriptions in a segment's arrays. Thread-safe.

    Args:
        head: meanings of the arrays' numbers.
        arrays: arrays of the subscriptions.
        uses: number of uses of each literal by the subscriptions; known only where the segment was built.
        texts: the literals of each single fact by text; kept only where the segment was built. That takes less time
            than hashes, and memory of this process.
    """

    def __init__(
        self,
        head: Head,
        arrays: Arrays,
        uses: Ints | None = None,
        texts: Sequence[Mapping[str, int] | None] | None = None,
    ) -> None:
        self.head = head
        self.arrays = arrays
        self.uses = uses
        self.texts = texts
        self.salts = tuple(map(salt_of, head.facts))
        key_numbers = {key: number for number, key in enumerate(head.keys)}
        self.key_of_fact = np.array([key_numbers[key] for key, _ in head.facts], np.int64)
        self.many = tuple(is_many(kind) for _, kind in head.facts)
        self.probed_single = np.array([fact for fact in head.probed if not self.many[fact]], np.int64)
        self.probed_of_key: list[list[int]] = [[] for _ in head.keys]
        for fact in head.probed:
            self.probed_of_key[self.key_of_fact[fact]].append(fact)
        self.special_keys = tuple(key for key in head.keys if not is_plain_key(key))
        self.many_facts = np.array(self.many, np.bool_)
        self.has_ways = len(arrays.way_fact) > 0
        # Held here and not with the books, which outlive segments: tables hold the segment that they are of.
        self.tables: WeakKeyDictionary[ValueDictionaries, Tables] = WeakKeyDictionary()
        self.single: Single | None = None
        self.several: SeveralSingle | None = None
        self.any: AnySingle | None = None
        # Not a method: a segment that refers to itself is freed by the collector alone, perhaps never.
        self.check: Callable[[int, int], Check] = lru_cache(maxsize=65536)(partial(_check_of, head, arrays))

    @classmethod
    def open(cls, path: Path, uses: Ints | None = None) -> Segment:
        """The segment in a file, mapped."""
        return cls(*map_segment(path), uses)

    def write(self, path: Path) -> None:
        """Write it into a file."""
        write_segment(path, self.head, self.arrays)

    def __len__(self) -> int:
        return len(self.arrays.ids)

    @cached_property
    def nodes(self) -> dict[int, NodeLiterals]:
        """The literals of each fact that is nodes of intervals."""
        arrays, nodes = self.arrays, {}
        for fact, (_, kind) in enumerate(self.head.facts):
            if kind in (CELL, SPAN):
                key = int(self.key_of_fact[fact])
                cuts = arrays.cuts[arrays.cuts_at[key] : arrays.cuts_at[key + 1]]
                slots = indices_of(arrays.literal_fact == fact)
                numbers = np.array(list(map(arrays.literal_text.text, slots.tolist())), np.int64)
                nodes[fact] = NodeLiterals(cuts, numbers, (slots + 1).astype(np.int32))
        return nodes

    @cached_property
    def scanned(self) -> frozenset[int]:
        """The facts that are parts of values."""
        return frozenset(fact for fact, (_, kind) in enumerate(self.head.facts) if kind.op == PART.op)

    @cached_property
    def scanner(self) -> Scanner:
        """The search for the literals of these facts, a group for each."""
        arrays = self.arrays
        slots = indices_of(np.isin(arrays.literal_fact, list(self.scanned)))
        texts = list(map(arrays.literal_text.raw, slots.tolist()))
        return Scanner(texts, (slots + 1).astype(np.int32), arrays.literal_fact.take(slots).astype(np.int64))

    @cached_property
    def prefilter(self) -> Prefilter:
        """The checks of numbers and equalities, for evaluation before all others."""
        of_special_keys = np.array([not is_plain_key(key) for key, _ in self.head.facts], np.bool_)
        return Prefilter(self.arrays, self.many_facts | of_special_keys)

    @cached_property
    def tests(self) -> ValueTests:
        """The tests that have to be carried out."""
        return ValueTests(self)

    @property
    def expires(self) -> bool:
        """True if some of its subscriptions expire."""
        return len(self.arrays.expires_record) > 0

    def current(self, numbers: Indices, records: NDArray[np.int64] | int, now: int) -> NDArray[np.bool_]:
        """Return a mask of the subscriptions that have not expired, where some expire.

        Args:
            numbers: of subscriptions.
            records: the time of the record that each is to match, in milliseconds since 1970.
            now: the clock.
        """
        arrays = self.arrays
        is_current: NDArray[np.bool_] = arrays.expires_record.take(numbers) > records
        is_current &= arrays.expires_wall.take(numbers) > now
        return is_current

    @cached_property
    def direct_keys(self) -> NDArray[np.bool_]:
        """Mask of the keys whose literals are found by text alone: their values have no other tests."""
        direct = np.zeros(len(self.head.keys), np.bool_)
        if self.texts is not None:
            facts = np.bincount(self.key_of_fact, minlength=len(direct))
            direct[(facts > 0) & (facts <= _MOST_DIRECT)] = True
            direct[self.key_of_fact[self.many_facts]] = False
            for op, key in ((self.arrays.check_op, self.arrays.check_a), (self.arrays.node_op, self.arrays.node_a)):
                direct[key[np.isin(op >> 1, (LIMITS, HOLDS))]] = False
        return direct

    @cached_property
    def always(self) -> Indices:
        """Entries that are checked for every message."""
        return np.arange(self.head.always, self.head.paired)

    def find(
        self, facts: NDArray[np.int64], hashes: NDArray[np.uint64], raws: Callable[[Indices], list[bytes]]
    ) -> Ints:
        """The literal that each text is, 0 for none.

        Args:
            facts: fact of each text.
            hashes: hashes of the texts.
            raws: returns those with these numbers, in UTF-8: few are read.
        """
        arrays = self.arrays
        numbers = np.zeros(len(hashes), np.int32)
        which, literal = in_bucket(arrays.literal_start, hashes)
        if len(which) == 0:
            return numbers
        same = indices_of(
            (arrays.literal_hash.take(literal) == hashes.take(which))
            & (arrays.literal_fact.take(literal) == facts.take(which))
        )
        if len(same):
            which, literal = which.take(same), literal.take(same)
            equal = arrays.literal_text.equal(literal, raws(which))
            numbers[which[equal]] = literal[equal] + 1
        return numbers

    @cached_property
    def find_one(self) -> Callable[[int, str], int]:
        """The function that gives the literal that one text of a fact is, 0 for none."""
        arrays = self.arrays
        salts, texts = self.salts, arrays.literal_text
        starts, hashes = viewed(arrays.literal_start), viewed(arrays.literal_hash)
        facts = viewed(arrays.literal_fact)
        shift = shift_of(len(starts))

        def find(fact: int, text: str) -> int:
            raw = encoded(text)
            hash_ = hash_of(raw, salts[fact])
            bucket = hash_ >> shift
            slot: int = starts[bucket]
            end: int = starts[bucket + 1]
            while slot < end:
                if hashes[slot] == hash_ and facts[slot] == fact and texts.raw(slot) == raw:
                    return slot + 1
                slot += 1
            return 0

        return find

    @cached_property
    def literal_of(self) -> Sequence[Callable[[str], int | None] | None]:
        """For each single fact the function from a text to its literal (0 or None if it is none), None for others."""
        if self.texts is not None:
            return [None if known is None else known.get for known in self.texts]
        size = max(_LEAST_TEXTS, _MOST_TEXTS // max(1, len(self.many)))
        return [None if many else self._remembering(fact, size) for fact, many in enumerate(self.many)]

    def _remembering(self, fact: int, size: int) -> Callable[[str], int]:
        find = partial(self.find_one, fact)
        known = lru_cache(maxsize=size)(find)
        return lambda text: known(text) if len(text) <= _LONG_TEXT else find(text)

    def pairs(self, keys: Longs, most: int | None = None) -> tuple[Indices, Indices]:
        """Return pairs (index of the key, entry) of the entries that are found by two literals at once.

        Raises:
            TooManyError: there are more than *most*.
        """
        which, slot = in_bucket(self.arrays.pair_start, mixed(keys), most)
        same = indices_of(self.arrays.pair_key.take(slot) == keys.take(which))
        return which.take(same), slot.take(same) + self.head.paired

    def in_sets(self, keys: Longs) -> NDArray[np.bool_]:
        """Return a mask of the keys whose set (upper half) contains the literal (lower half)."""
        member = np.zeros(len(keys), np.bool_)
        which, slot = in_bucket(self.arrays.set_start, mixed(keys))
        member[which[self.arrays.set_key.take(slot) == keys.take(which)]] = True
        return member


def _check_of(head: Head, arrays: Arrays, key: int, number: int) -> Check:
    """Return the test of this number, as data."""
    form = int(arrays.test_form[number])
    return Check(
        head.keys[key],
        TESTS[form & 15],
        arrays.test_text.text(number),
        arrays.test_last.text(number),
        partial=bool(form & 16),
        fold=bool(form & 32),
    )
