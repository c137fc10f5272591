"""A segment: some subscriptions as flat arrays, never changed, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.check import COMPARISONS, Check
from turnout.subscriptions.index.arrays import HOLDS, Arrays, Head
from turnout.subscriptions.index.buckets import Indices, Ints, in_bucket, indices_of, shift_of, viewed
from turnout.subscriptions.index.facts import encoded, hash_of, is_many, salt_of
from turnout.subscriptions.index.layout import in_one, map_segment, write_segment
from turnout.subscriptions.index.segment_matcher import SegmentMatcher
from turnout.subscriptions.index.value_tests import ValueTests

TESTS: tuple[str, ...] = ("=", "^", "$", "~", "glob", "has", "cidr", *COMPARISONS, "re", "any", "subject")
"""The operations of tests that have to be carried out; a form is a place here, 16 more if partial, 32 if folded."""

FOLDED_FORM = 32
"""Forms from this one on are those of folded tests."""


def form_of(check: Check) -> int:
    """Return the kind of a check's test, without its text."""
    return TESTS.index(check.op) | check.partial << 4 | check.fold << 5


class Segment:
    """Arrays of a segment, with look-ups of literals. Thread-safe.

    Args:
        head: meanings of the arrays' numbers.
        arrays: arrays of the subscriptions.
        uses: number of uses of each literal by the subscriptions; known only where the segment was built.
        image: bytes that have all arrays, as in a file; they are copied into one if they have none.
    """

    def __init__(
        self, head: Head, arrays: Arrays, uses: Ints | None = None, image: NDArray[np.uint8] | None = None
    ) -> None:
        self.head = head
        self.arrays, self.image = in_one(arrays) if image is None else (arrays, image)
        self.uses = uses
        self.salts = tuple(map(salt_of, head.facts))
        key_numbers = {key: number for number, key in enumerate(head.keys)}
        self.key_of_fact = np.array([key_numbers[key] for key, _ in head.facts], np.int64)
        self.many = tuple(is_many(kind) for _, kind in head.facts)
        # Not methods: a segment that refers to itself is freed by the collector alone, perhaps never.
        self.check: Callable[[int, int], Check] = lru_cache(maxsize=65536)(partial(_check_of, head, self.arrays))
        self.value_tests: Callable[[], ValueTests] = cache(partial(ValueTests, head, self.arrays, self.check))

    @classmethod
    def open(cls, path: Path, uses: Ints | None = None) -> Segment:
        """The segment in a file, mapped."""
        head, arrays, image = map_segment(path)
        return cls(head, arrays, uses, image)

    def write(self, path: Path) -> None:
        """Write it into a file."""
        write_segment(path, self.head, self.arrays)

    def __len__(self) -> int:
        return len(self.arrays.ids)

    @cached_property
    def matcher(self) -> SegmentMatcher:
        """The matcher of messages with the segment."""
        return SegmentMatcher(self)

    @cached_property
    def varied_keys(self) -> frozenset[str]:
        """The keys whose values are read folded or in words."""
        op = np.concatenate([self.arrays.check_op, self.arrays.node_op])
        keys = np.concatenate([self.arrays.check_a, self.arrays.node_a])
        tested = np.unique(keys[op >> 1 == HOLDS]).tolist() if (self.arrays.test_form >= FOLDED_FORM).any() else ()
        of_facts = (key for key, kind in self.head.facts if kind.fold or kind.lexeme)
        return frozenset((*of_facts, *(self.head.keys[key] for key in tested)))

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
