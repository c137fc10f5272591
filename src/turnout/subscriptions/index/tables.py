"""Facts of one segment about dictionary values, by code: their literals, numbers and words."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.evaluate import parsed_numbers
from turnout.subscriptions.index.buckets import GrowingArray, Indices, Ints, Longs, indices_of
from turnout.subscriptions.index.facts import encoded_all, folded_all, hashes_of, probes_of, taker
from turnout.subscriptions.index.literal_lists import LiteralLists, NewLists

if TYPE_CHECKING:
    from turnout.subscriptions.index.dictionary import ValueDictionary
    from turnout.subscriptions.index.segment import Segment

_UNKNOWN = -1
_LEAST_ROOM = 256
_MOST_VERDICTS = 1 << 19
"""Maximum number of cached test results."""

_MOST_GROUPED = 1 << 16
"""The same for groups of tests."""


class Singles(NamedTuple):
    """Literals of the used single facts in one array; a value's index is the fact's offset plus the value's code."""

    literals: Ints
    offsets: NDArray[np.int64]
    room: tuple[int, ...]
    used: NDArray[np.bool_]


class Tables:
    """Tables of a segment for dictionary values, filled on demand. Concurrent writers write equal values."""

    def __init__(self, segment: Segment, dictionaries: Sequence[ValueDictionary]) -> None:
        self.dictionaries = dictionaries
        self._head = segment.head
        self._find = segment.find
        self._tests = segment.tests
        self._group_of = np.array(segment.tests.group_of, np.int32)
        self._salts = segment.salts
        self._nodes = segment.nodes
        self._scanned = segment.scanned
        self._scanner = segment.scanner
        self._key_of_fact = segment.key_of_fact.tolist()
        self._probed = segment.probed_single.tolist()
        used = np.zeros(len(self._key_of_fact), np.bool_)
        used[self._probed] = True
        self._lock = threading.Lock()
        empty = np.zeros(len(self._key_of_fact), np.int64)
        self._singles = Singles(np.zeros(0, np.int32), empty, (0,) * len(dictionaries), used)
        self._known = [0] * len(dictionaries)
        self._lists = LiteralLists(len(self._key_of_fact))
        self._searched = dict.fromkeys(fact for fact in segment.head.probed if fact in self._scanned)
        self._numbers = {key: GrowingArray(np.float64) for key in range(len(dictionaries))}
        self._verdicts: dict[int, bool] = {}
        self._passed: dict[int, tuple[int, ...]] = {}

    def singles(self) -> Singles:
        """Return the literals of single facts, with room for all codes and the probed facts filled in."""
        sizes = [len(dictionary) for dictionary in self.dictionaries]
        if self._behind(sizes):
            with self._lock:
                self._singles = self._fill_probed(self._with_room(sizes), sizes)
                # Last: a reader that sees these as known reads filled facts.
                self._known = [max(pair) for pair in zip(self._known, sizes, strict=True)]
        return self._singles

    def _behind(self, sizes: list[int]) -> bool:
        return any(known < size for known, size in zip(self._known, sizes, strict=True))

    def _with_room(self, sizes: list[int]) -> Singles:
        old = self._singles
        room = tuple(
            has if size <= has else max(_LEAST_ROOM, 1 << size.bit_length())
            for size, has in zip(sizes, old.room, strict=True)
        )
        return old if room == old.room else self._laid_out(room, old.used)

    def _laid_out(self, room: tuple[int, ...], used: NDArray[np.bool_]) -> Singles:
        """Return the known literals with room for so many codes of each key, for the used facts."""
        old = self._singles
        widths = np.array(room, np.int64).take(self._key_of_fact) * used
        offsets = np.cumsum(widths) - widths
        literals = np.full(int(widths.sum()), _UNKNOWN, np.int32)
        literals[offsets[used]] = 0
        for fact in indices_of(old.used).tolist():
            first, size = old.offsets[fact], old.room[self._key_of_fact[fact]]
            literals[offsets[fact] : offsets[fact] + size] = old.literals[first : first + size]
        return Singles(literals, offsets, room, used)

    def _fill_probed(self, singles: Singles, sizes: list[int]) -> Singles:
        """Look up the literals of new values under the probed facts, all facts in one call."""
        facts, hashes, indexes, whose = [], [], [], []
        for fact in self._probed:
            key = self._key_of_fact[fact]
            known, size = max(1, self._known[key]), sizes[key]
            if known < size:
                kind = self._head.facts[fact][1]
                hashes.append(self.dictionaries[key].hashes(kind, size)[known:size])
                facts.append(np.full(size - known, fact, np.int64))
                indexes.append(np.arange(known, size))
                whose.append((self.dictionaries[key], kind))
        if not facts:
            return singles
        begins = np.cumsum([0, *map(len, facts)])
        codes = np.concatenate(indexes)

        def raws(numbers: Indices) -> list[bytes]:
            # They are in ascending order: fact after fact.
            edges = np.searchsorted(numbers, begins).tolist()
            parts = zip(whose, edges, edges[1:], strict=False)
            return [
                raw
                for (dictionary, kind), first, end in parts
                for raw in dictionary.raws(kind, codes.take(numbers[first:end]))
            ]

        fact_of = np.concatenate(facts)
        literals = self._find(fact_of, np.concatenate(hashes), raws)
        singles.literals[singles.offsets.take(fact_of) + codes] = literals
        return singles

    def literals_of(self, facts: Indices | Ints, codes: Ints) -> Ints:
        """The literal that each single fact makes of the value of a code."""
        singles = self._singles
        if not singles.used.take(facts).all():
            with self._lock:
                used = self._singles.used.copy()
                used[facts] = True
                singles = self._singles = self._laid_out(self._singles.room, used)
        indexes = singles.offsets.take(facts) + codes
        literals = singles.literals.take(indexes)
        unknown = indices_of(literals < 0)
        if len(unknown):
            new, first = np.unique(indexes.take(unknown), return_index=True)
            some = unknown[first]
            self._fill(singles, new, facts.take(some), codes.take(some))
            literals = singles.literals.take(indexes)
        return literals

    def _fill(self, singles: Singles, indexes: Indices, facts: Indices | Ints, codes: Ints) -> None:
        for fact in np.unique(facts).tolist():
            kind = self._head.facts[fact][1]
            dictionary = self.dictionaries[self._key_of_fact[fact]]
            mine = indices_of(facts == fact)
            raws = dictionary.raws(kind, codes.take(mine))
            hashes = hashes_of(raws, self._salts[fact])
            singles.literals[indexes.take(mine)] = self._find(np.full(len(raws), fact, np.int64), hashes, taker(raws))

    def several(self, facts: Ints | Indices, codes: Ints) -> tuple[Indices, Ints]:
        """Return pairs of an index of the arguments and a literal among the texts that the fact derives from the value.

        Args:
            facts: facts that derive several texts.
            codes: value of each.
        """
        lists = self._lists.known
        late = codes >= lists.known.take(facts)
        if late.any():
            with self._lock:
                self._extend(np.unique(facts[late]).tolist())
            lists = self._lists.known
        return lists.of(facts, codes)

    def _extend(self, facts: Sequence[int]) -> None:
        """Add the literals of the new values of facts; the lock is held."""
        known = self._lists.known.known
        added = [
            self._derived(fact, max(1, int(known[fact])))
            for fact in facts
            if fact not in self._scanned and known[fact] < len(self.dictionaries[self._key_of_fact[fact]])
        ]
        scanned = [fact for fact in facts if fact in self._scanned]
        if scanned:
            self._searched |= dict.fromkeys(scanned)
            added += self._found(known)
        self._lists.extend(added)

    def _found(self, known: Longs) -> Iterator[NewLists]:
        """Search the new values of the facts that entries are found by, and of others that were used until now."""
        values: list[bytes] = []
        facts: list[int] = []
        sizes: list[int] = []
        for fact in self._searched:
            texts = self.dictionaries[self._key_of_fact[fact]].texts[max(1, known[fact]) :]
            if texts or not known[fact]:
                values += folded_all(texts) if self._head.facts[fact][1].fold else encoded_all(texts)
                facts.append(fact)
                sizes.append(len(texts))
        owners, literals = self._scanner.find(values, np.array(facts, np.int64).repeat(sizes))
        counts = np.bincount(owners, minlength=len(values))
        ends = np.cumsum(sizes).tolist()
        edges = np.searchsorted(owners, ends).tolist()
        for fact, size, end, first, last in zip(facts, sizes, ends, [0, *edges], edges, strict=False):
            yield NewLists(fact, counts[end - size : end], literals[first:last])

    def _derived(self, fact: int, begun: int) -> NewLists:
        """Return the literals of the values of a fact from a code on."""
        texts = self.dictionaries[self._key_of_fact[fact]].texts
        if fact in self._nodes:
            size = len(texts)
            numbers = self._numbers_of(self._key_of_fact[fact], size)[begun:size]
            return NewLists(fact, *self._nodes[fact].of_numbers(numbers))
        probed = list(map(probes_of(self._head.facts[fact][1]), texts[begun:]))
        raws = encoded_all([text for texts in probed for text in texts])
        literals = self._find(np.full(len(raws), fact, np.int64), hashes_of(raws, self._salts[fact]), taker(raws))
        owner = np.repeat(np.arange(len(probed)), list(map(len, probed)))
        is_one = indices_of(literals)
        return NewLists(fact, np.bincount(owner.take(is_one), minlength=len(probed)), literals.take(is_one))

    def numbers(self, key: int) -> NDArray[np.float64]:
        """Each value of a key as a number, NaN where it is not a number."""
        size = len(self.dictionaries[key])
        if len(self._numbers[key]) < size:
            with self._lock:
                return self._numbers_of(key, size)
        return self._numbers[key].values

    def _numbers_of(self, key: int, size: int) -> NDArray[np.float64]:
        """Return the values of the first *size* codes, or more, as numbers; the lock is held."""
        numbers = self._numbers[key]
        if len(numbers) < size:
            new = self.dictionaries[key].texts[len(numbers) : size]
            numbers.extend(np.array(parsed_numbers(new), np.float64))
        return numbers.values

    def verdicts(self, pairs: Longs, keys: Indices) -> NDArray[np.bool_]:
        """Return the results of tests on values; most are cached.

        Args:
            pairs: a test, and in the lower half of the number the code of a value.
            keys: keys of the values.
        """
        groups = self._group_of.take(pairs >> 32)
        grouped = indices_of(groups >= 0)
        if len(grouped) == 0:
            return self._asked(pairs, keys)
        verdicts = np.empty(len(pairs), np.bool_)
        verdicts[grouped] = self._grouped(pairs.take(grouped), groups.take(grouped))
        others = indices_of(groups < 0)
        verdicts[others] = self._asked(pairs.take(others), keys.take(others))
        return verdicts

    def _asked(self, pairs: Longs, keys: Indices) -> NDArray[np.bool_]:
        """Return the results of tests that are carried out one by one."""
        asked = pairs.tolist()
        verdicts = list(map(self._verdicts.get, asked))
        if None in verdicts:
            if len(self._verdicts) > _MOST_VERDICTS:
                self._verdicts.clear()
            for index, verdict in enumerate(verdicts):
                if verdict is None:
                    verdicts[index] = self._verdicts[asked[index]] = self._passes(int(keys[index]), asked[index])
        return np.array(verdicts, np.bool_)

    def _passes(self, key: int, pair: int) -> bool:
        test, code = pair >> 32, pair & 0xFFFFFFFF
        return code != 0 and self._tests.passes(key, test, self.dictionaries[key].texts[code])

    def _grouped(self, pairs: Longs, groups: Ints) -> NDArray[np.bool_]:
        """Return the results of tests that are carried out in groups."""
        codes = pairs & 0xFFFFFFFF
        true: list[int] = []
        for asked in np.unique((groups.astype(np.int64) << 32) | codes).tolist():
            passed = self._passed.get(asked)
            if passed is None:
                if len(self._passed) > _MOST_GROUPED:
                    self._passed.clear()
                passed = self._passed[asked] = self._passed_by(asked >> 32, asked & 0xFFFFFFFF)
            true += passed
        return np.isin(pairs, np.array(true, np.int64))

    def _passed_by(self, group: int, code: int) -> tuple[int, ...]:
        """Return the pairs of a group's tests that are true of the value of a code, as in `verdicts`."""
        if code == 0:
            return ()
        texts = self.dictionaries[self._tests.key_of[group]].texts
        return tuple([test << 32 | code for test in self._tests.passed(group, texts[code])])
