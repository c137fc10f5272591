"""A segment: some subscriptions as flat arrays, never changed, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.leaf import Check
from turnout.conditions.pattern import fold, lexemes, pattern_matcher
from turnout.conditions.regex import RegexSet, regex_searcher
from turnout.conditions.terms import TESTS, passes
from turnout.subscriptions.index.arrays import (
    HOLDS,
    TREE,
    Arrays,
    Head,
    Indices,
    Ints,
    Longs,
    expanded,
    in_bucket,
    in_one,
    indices_of,
    map_segment,
    write_segment,
)
from turnout.subscriptions.index.facts import is_many, salt_of
from turnout.subscriptions.index.segment_matcher import SegmentMatcher

OPS: dict[int, str] = {test.number: op for op, test in TESTS.items()}
"""Operations of the tests that have to be carried out, by their stored numbers.

A form is one byte: the lower four bits of the number, 16 more if partial, 32 if folded, and its upper two bits.
"""

FOLDED_FORM = 32
"""Bit of the forms of folded tests."""


def form_of(check: Check) -> int:
    """Return the kind of a check's test, without its text."""
    number = TESTS[check.op].number
    return (number & 15) | check.partial << 4 | check.fold << 5 | (number >> 4) << 6


def op_of(form: int) -> str:
    """Return the operation of a form."""
    return OPS[(form & 15) | form >> 6 << 4]


class Segment:
    """Arrays of a segment, with look-ups of literals. Thread-safe.

    Args:
        head: meanings of the arrays' numbers.
        arrays: arrays of the subscriptions.
        uses: number of uses of each literal by the subscriptions; known only where the segment was built.
        image: bytes that have all arrays, as in a file; they are copied into one if they have none.

    Attributes:
        expires: True if some of its subscriptions expire.
    """

    def __init__(
        self, head: Head, arrays: Arrays, uses: Ints | None = None, image: NDArray[np.uint8] | None = None
    ) -> None:
        self.head = head
        self.arrays, self.image = in_one(arrays) if image is None else (arrays, image)
        self.uses = uses
        self.expires = len(self.arrays.expires_record) > 0
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
        tested = np.unique(keys[op >> 1 == HOLDS]).tolist() if (self.arrays.test_form & FOLDED_FORM).any() else ()
        of_facts = (key for key, kind in self.head.facts if kind.fold or kind.lexeme)
        return frozenset((*of_facts, *(self.head.keys[key] for key in tested)))

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


def _check_of(head: Head, arrays: Arrays, key: int, number: int) -> Check:
    """Return the test of this number, as data."""
    form = int(arrays.test_form[number])
    return Check(
        head.keys[key],
        op_of(form),
        arrays.test_text.text(number),
        arrays.test_last.text(number),
        partial=bool(form & 16),
        fold=bool(form & 32),
    )


_MIN_PREPARED_TESTS: Final = 16
"""Number of entries found by one literal from which on their tests are prepared."""

_MOST_PREPARED: Final = 1 << 16
"""Approximate number of tests that are kept prepared: each takes some hundred bytes."""

_GROUP: Final = 64
"""Maximum number of expressions of a group."""

_MOST_GROUPS: Final = 256
"""Maximum number of groups, each of which takes up to two megabytes."""

_LONG_VALUE: Final = 1 << 12
"""Characters of a value beyond which it is not kept folded, and in words."""

_Test = Callable[[str], bool]


class ValueTests:
    """Tests of a segment, by number. Thread-safe.

    Args:
        head: head of the segment.
        arrays: arrays of the segment with the tests.
        check: returns the test of a key and a number, as data.
    """

    def __init__(self, head: Head, arrays: Arrays, check: Callable[[int, int], Check]) -> None:
        self._check = check
        self._known: dict[int, _Test] = {}
        self._groups: list[tuple[RegexSet, tuple[int, ...]]] = []
        self._group_of = [-1] * len(arrays.test_form)
        self._searched: dict[int, tuple[str, frozenset[int]]] = {}
        for key, tests in _asked_together(arrays, head.always, head.paired):
            self._prepare(key, tests)

    def _prepare(self, key: int, tests: Iterable[int]) -> None:
        """Prepare tests of a key."""
        expressions = []
        for test in tests:
            check = self._check(key, test)
            if check.op == "re":
                expressions.append((test, check.text))
            elif (check.partial or check.op != "glob") and len(self._known) < _MOST_PREPARED:
                # Other globs are mostly decided by the loop.
                self._known[test] = _test_of(check)
        for begin in range(0, len(expressions), _GROUP):
            self._prepare_group(key, expressions[begin : begin + _GROUP])

    def _prepare_group(self, key: int, expressions: Sequence[tuple[int, str]]) -> None:
        if len(expressions) < 2 or len(self._groups) >= _MOST_GROUPS:
            return
        group = RegexSet.of([text for _, text in expressions])
        if group is None:
            # Together they are too large for one automaton.
            middle = len(expressions) // 2
            self._prepare_group(key, expressions[:middle])
            self._prepare_group(key, expressions[middle:])
            return
        tests = tuple(test for test, _ in expressions)
        for test in tests:
            self._group_of[test] = len(self._groups)
        self._groups.append((group, tests))

    def passes(self, key: int, test: int, value: str) -> bool:
        """Return True if a test, of a key, is true of a value."""
        known = self._known.get(test)
        if known is None:
            check = self._check(key, test)
            known = _test_of(check)
            # Expressions take too much memory for many to be kept one by one.
            if check.op != "re":
                if len(self._known) > 2 * _MOST_PREPARED:
                    self._known.clear()
                self._known[test] = known
        return known(value)

    def holds(self, key: int, test: int, values: Iterable[str]) -> bool:
        """Return True if a test, of a key, is true of one of its values."""
        group = self._group_of[test]
        if group < 0:
            return any(self.passes(key, test, value) for value in values)
        return any(test in self._passed(key, group, value) for value in values)

    def _passed(self, key: int, group: int, value: str) -> frozenset[int]:
        """Return the tests of a group, of a key, that are true of a value; the last value's are remembered."""
        known = self._searched.get(group)
        if known is not None and known[0] == value:
            return known[1]
        searched, tests = self._groups[group]
        found = searched.found(value)
        if found is None:
            passed = frozenset(test for test in tests if self.passes(key, test, value))
        else:
            passed = frozenset(tests[index] for index in found)
        self._searched[group] = value, passed
        return passed


def _asked_together(arrays: Arrays, always: int, paired: int) -> Iterator[tuple[int, list[int]]]:
    """Yield keys with the tests that one message may be verified against together, in the order of their entries."""
    if len(arrays.test_form) == 0:
        return
    sizes = np.diff(arrays.entries_at)
    literals = indices_of(sizes >= _MIN_PREPARED_TESTS)
    _, found = expanded(arrays.entries_at.take(literals).astype(np.int64), sizes.take(literals).astype(np.int64))
    starts = np.append(indices_of(np.diff(arrays.pair_key, prepend=-1)), len(arrays.pair_key))
    counts = np.diff(starts)
    pairs = indices_of(counts >= _MIN_PREPARED_TESTS)
    _, twice = expanded(starts.take(pairs) + paired, counts.take(pairs))
    entries = np.concatenate([np.arange(always, paired), found, twice])
    keys, tests = _tests_of(arrays, _distinct(arrays.entry_program.take(entries)))
    for key in np.unique(keys).tolist():
        yield key, _distinct(tests[keys == key]).tolist()


def _tests_of(arrays: Arrays, programs: Indices) -> tuple[Indices, Indices]:
    """Return the keys and the tests that the checks of programs run, also within trees."""
    first = arrays.checks_at.take(programs).astype(np.int64)
    _, checks = expanded(first, arrays.checks_at.take(programs + 1) - first)
    kinds = arrays.check_op.take(checks) >> 1
    own = checks[kinds == HOLDS]
    trees = arrays.check_b.take(checks[kinds == TREE])
    first = arrays.tree_at.take(trees).astype(np.int64)
    _, nodes = expanded(first, arrays.tree_at.take(trees + 1) - first)
    nodes = nodes[arrays.node_op.take(nodes) >> 1 == HOLDS]
    keys = np.concatenate([arrays.check_a.take(own), arrays.node_a.take(nodes)])
    return keys, np.concatenate([arrays.check_b.take(own), arrays.node_b.take(nodes)])


def _distinct(numbers: NDArray[np.integer]) -> Longs:
    """Return the distinct numbers in order of first occurrence."""
    _, first = np.unique(numbers, return_index=True)
    return numbers.take(np.sort(first)).astype(np.int64)


def _test_of(check: Check) -> _Test:
    """Return the test, without its negation, of a present value."""
    if check.op == "re":
        return regex_searcher(check.text)
    if check.op == "glob":
        whole = pattern_matcher(check.text, ignore_case=check.fold)
    elif check.partial:
        whole = partial(passes, check._replace(partial=False, fold=False))
    else:
        return partial(passes, check)
    if check.partial:
        return lambda value: any(map(whole, _words_of(value, folded=check.fold)))
    return (lambda value: whole(_folded(value))) if check.fold else whole


def _folded(value: str) -> str:
    return fold(value) if len(value) > _LONG_VALUE else _known_folded(value)


def _words_of(value: str, *, folded: bool) -> Sequence[str]:
    if len(value) > _LONG_VALUE:
        return lexemes(fold(value) if folded else value)
    return _known_words(value, folded=folded)


_known_folded = lru_cache(maxsize=64)(fold)
"""One message's value is compared with many patterns."""


@lru_cache(maxsize=64)
def _known_words(value: str, *, folded: bool) -> Sequence[str]:
    return lexemes(fold(value) if folded else value)
