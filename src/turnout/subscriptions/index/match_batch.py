"""Matching a batch with a segment: literals first, then the remaining checks, all rows at a time.

Rows and entries are parallel arrays all along: a *candidate* is a row and an entry that it was found for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import EQUAL, GROUP, HOLDS, JUST_ONE, LIMITS, MANY, ONE_OF, TREE
from turnout.subscriptions.index.buckets import Indices, Ints, Longs, TooManyError, expanded, indices_of
from turnout.subscriptions.index.message_columns import Column
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.tables import Tables
from turnout.subscriptions.index.text_lookup import DirectLiterals

MOST_CANDIDATES = 1 << 20
"""Approximate number of candidates processed at a time: rows are halved until they have no more."""

_MOST_NODES = 1 << 20
"""Approximate number of tree nodes, or literals of values, examined at a time."""

_LITERALS_OF_VALUE = 16
"""Approximate number of literals of a value in a fact of many texts."""

_ALIKE = 0.75
"""Candidates of one row and program are verified once where that leaves at most this share of them."""

_MOST_CHECKED = 0.75
"""Candidates without checks are taken out first if the others are at most this share."""

_Columns: TypeAlias = Mapping[int, Column]

_Pairs: TypeAlias = tuple[Indices, Indices]


def matched(
    segment: Segment, tables: Tables, codes: Sequence[Ints | None], count: int, texts: _Columns | None = None
) -> _Pairs:
    """Rows and the segment's subscriptions that they match, each pair once, in no particular order.

    Args:
        segment: subscriptions to find.
        tables: its facts of the values in the dictionaries.
        codes: for each of the segment's keys, the code of each row's value; None if all are absent.
        count: how many rows there are.
        texts: by number of a key of `Segment.direct_keys`, the text of each row; those keys need no codes.
    """
    of_keys = np.zeros((len(codes), count), np.int32)
    present = []
    for key, own in enumerate(codes):
        if own is not None:
            of_keys[key] = own
            present.append(key)
    return _Rows(segment, tables, of_keys, present, texts or {}).matched()


class _Rows:
    """Some rows under work."""

    def __init__(
        self, segment: Segment, tables: Tables, codes: NDArray[np.int32], present: Sequence[int], texts: _Columns
    ) -> None:
        self.segment = segment
        self.arrays = segment.arrays
        self.tables = tables
        self.count = codes.shape[1]
        self.codes = codes
        self.present = present
        self.flat_codes = codes.ravel()
        self.singles = tables.singles()
        self.many_facts = segment.many_facts
        self.base_of_fact = segment.key_of_fact * self.count
        self.texts = texts
        self.direct = DirectLiterals(segment, texts, self.count) if texts else None

    def matched(self) -> _Pairs:
        try:
            return self._matched(MOST_CANDIDATES if self.count > 1 else None)
        except TooManyError:
            return self._by_halves()

    def _matched(self, most: int | None) -> _Pairs:
        rows, literals = self._probed()
        arrays = self.arrays
        first = arrays.entries_at.take(literals)
        count = arrays.entries_at.take(literals + 1) - first
        total = int(count.sum()) + len(self.segment.always) * self.count
        if most is not None and total > most:
            raise TooManyError
        some = indices_of(count)
        which, entries = expanded(first.take(some).astype(np.int64), count.take(some).astype(np.int64))
        pairs = [(rows.take(some).take(which), entries)]
        if self.segment.has_ways:
            pairs.append(self._paired(rows, literals, most))
        if len(self.segment.always):
            always = self.segment.always
            pairs.append((np.repeat(np.arange(self.count), len(always)), np.tile(always, self.count)))
        rows, entries = joined(pairs)
        rows, entries = self._verified(rows, entries)
        subscriptions = arrays.entry_subscription.take(entries).astype(np.int64)
        if self.segment.head.overlapping:
            distinct = np.unique((rows << 32) | subscriptions)
            return distinct >> 32, distinct & 0xFFFFFFFF
        return rows, subscriptions

    def _by_halves(self) -> _Pairs:
        middle = self.count // 2
        parts = []
        for half in (slice(middle), slice(middle, None)):
            texts = {key: column.part(half) for key, column in self.texts.items()}
            parts.append(_Rows(self.segment, self.tables, self.codes[:, half], self.present, texts).matched())
        first, (rows, subscriptions) = parts
        return joined([first, (rows + middle, subscriptions)])

    def _probed(self) -> tuple[Indices, Ints]:
        """Rows, and the literals that they have in the facts that entries are found by."""
        rows, literals = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        if self.direct is not None:
            for key in self.texts:
                for fact in self.segment.probed_of_key[key]:
                    own = self.direct.of_fact(fact)
                    some = indices_of(own)
                    rows.append(some)
                    literals.append(own.take(some))
        many: list[int] = []
        for key in self.present:
            for fact in self.segment.probed_of_key[key]:
                if self.many_facts[fact]:
                    many.append(fact)
                    continue
                offset = self.singles.offsets[fact]
                own = self.singles.literals[offset : offset + self.singles.room[key]].take(self.codes[key])
                some = indices_of(own)
                rows.append(some)
                literals.append(own.take(some))
        if many:
            facts, of_facts = self._with_values(np.array(many))
            which, several = self._several(facts, of_facts)
            rows.append(of_facts.take(which))
            literals.append(several)
        return np.concatenate(rows), np.concatenate(literals)

    def _with_values(self, facts: Indices) -> tuple[Indices, Indices]:
        """Return pairs of one of the facts and a row that has its key."""
        which, rows = self.codes.take(self.segment.key_of_fact.take(facts), axis=0).nonzero()
        return facts.take(which), rows

    def _several(self, facts: Ints | Indices, rows: Indices) -> tuple[Indices, Ints]:
        """Return pairs of an index of the arguments and a literal that the fact of many texts gives for the row."""
        return self.tables.several(facts, self.flat_codes.take(self.base_of_fact.take(facts) + rows))

    def _literals(self, facts: Ints, rows: Indices) -> Ints:
        if self.direct is None:
            return self._coded(facts, rows)
        by_text = self.direct.is_direct.take(facts)
        if by_text.all():
            return self.direct.of(facts, rows)
        literals = np.empty(len(facts), np.int32)
        for mine, find in ((indices_of(by_text), self.direct.of), (indices_of(~by_text), self._coded)):
            literals[mine] = find(facts.take(mine), rows.take(mine))
        return literals

    def _coded(self, facts: Ints, rows: Indices) -> Ints:
        codes = self.flat_codes.take(self.base_of_fact.take(facts) + rows)
        return self.tables.literals_of(facts, codes)

    def _paired(self, rows: Indices, literals: Ints, most: int | None) -> _Pairs:
        """Candidates that are found by a second literal."""
        arrays = self.arrays
        first = arrays.ways_at.take(literals)
        count = arrays.ways_at.take(literals + 1) - first
        some = indices_of(count)
        which, ways = expanded(first.take(some).astype(np.int64), count.take(some).astype(np.int64))
        rows = rows.take(some).take(which)
        facts = arrays.way_fact.take(ways)
        by_fact = self.many_facts
        parts = [indices_of(~by_fact.take(facts))] if by_fact.any() else [np.arange(len(facts))]
        row_parts = [rows.take(parts[0])]
        way_parts = [ways.take(parts[0])]
        literal_parts = [self._literals(facts.take(parts[0]), row_parts[0])]
        if by_fact.any():
            mine = indices_of(by_fact.take(facts))
            which, several = self._several(facts.take(mine), rows.take(mine))
            row_parts.append(rows.take(mine).take(which))
            way_parts.append(ways.take(mine).take(which))
            literal_parts.append(several)
        rows, ways = np.concatenate(row_parts), np.concatenate(way_parts)
        second = np.concatenate(literal_parts)
        some = indices_of(second)
        if most is not None and len(some) > most:
            raise TooManyError
        keys: Longs = (ways.take(some) << 32) | second.take(some)
        which, entries = self.segment.pairs(keys, most)
        return rows.take(some).take(which), entries

    def _verified(self, rows: Indices, entries: Indices) -> _Pairs:
        """Return the candidates whose checks are all true."""
        programs = self.arrays.entry_program.take(entries)
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (programs[1:] != programs[:-1]) | (rows[1:] != rows[:-1])
        distinct = indices_of(begins)
        if len(distinct) > _ALIKE * len(rows):
            passed = self._passed(rows, programs)
        else:
            # Entries of one program are one after another.
            true = np.zeros(len(distinct), np.bool_)
            true[self._passed(rows.take(distinct), programs.take(distinct))] = True
            passed = indices_of(true.repeat(np.diff(distinct, append=len(rows))))
        return rows.take(passed), entries.take(passed)

    def _passed(self, rows: Indices, programs: Ints) -> Indices:
        """Return the indices of the rows for which the program is true; each round checks the remaining ones."""
        arrays = self.arrays
        indexes = np.arange(len(rows))
        passed = []
        if len(rows) and self.segment.prefilter.is_useful_for_batches:
            if arrays.checks_at[1] == 0 and np.count_nonzero(programs) < _MOST_CHECKED * len(programs):
                # The first program has no checks, so that no limits have to be read.
                passed.append(indices_of(programs == 0))
                indexes = indices_of(programs)
                rows, programs = rows.take(indexes), programs.take(indexes)
            likely, decided = self.segment.prefilter.remaining_candidates(
                rows, programs, self.count, self._numbers, self._literals_of_fact
            )
            passed.append(indexes.take(likely[decided]))
            likely = likely[~decided]
            indexes, rows, programs = indexes.take(likely), rows.take(likely), programs.take(likely)
        at = arrays.checks_at.take(programs)
        left = arrays.checks_at.take(programs + 1) - at
        while len(rows):
            ended = left == 0
            if ended.any():
                passed.append(indexes[ended])
                going = indices_of(~ended)
                rows, indexes, at, left = rows.take(going), indexes.take(going), at.take(going), left.take(going)
                if len(rows) == 0:
                    break
            true = self._truths(arrays.check_op.take(at), arrays.check_a.take(at), arrays.check_b.take(at), rows)
            going = indices_of(true)
            rows, indexes = rows.take(going), indexes.take(going)
            at, left = at.take(going) + 1, left.take(going) - 1
        return np.concatenate([np.zeros(0, np.int64), *passed])

    def _truths(self, op: NDArray[np.uint8], a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        """Evaluate each check on its row."""
        negated = (op & 1).view(np.bool_)
        kinds = op >> 1
        if not kinds.any():
            true = self._equal(a, b, rows)
            true ^= negated
            return true
        true = np.zeros(len(op), np.bool_)
        for kind in indices_of(np.bincount(kinds)).tolist():
            for mine in self._portions(kind, indices_of(kinds == kind), b):
                true[mine] = getattr(self, _BY_KIND[kind])(a.take(mine), b.take(mine), rows.take(mine))
        true ^= negated
        return true

    def _portions(self, kind: int, indices: Indices, b: Ints) -> list[NDArray[np.int64]]:
        """Return the places of checks of one kind in portions that need little memory."""
        if kind in (EQUAL, LIMITS) or (kind != TREE and len(indices) * _LITERALS_OF_VALUE <= _MOST_NODES):
            return [indices]
        if kind == TREE:
            trees = b.take(indices)
            nodes = self.arrays.tree_at.take(trees + 1) - self.arrays.tree_at.take(trees)
            weight = np.cumsum(nodes, dtype=np.int64)
        else:
            weight = np.arange(len(indices)) * _LITERALS_OF_VALUE
        return np.split(indices, indices_of(np.diff(weight // _MOST_NODES)) + 1)

    def _equal(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        equal: NDArray[np.bool_] = self._literals(a, rows) == b
        return equal

    def _one_of(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        true = np.zeros(len(a), np.bool_)
        many = self.many_facts.take(a)
        single = indices_of(~many)
        true[single] = self._one_of_single(a.take(single), b.take(single), rows.take(single))
        mine = indices_of(many)
        if len(mine):
            which, literals = self._several(a.take(mine), rows.take(mine))
            members = self.segment.in_sets((b.take(mine).take(which).astype(np.int64) << 32) | literals)
            true[mine.take(which[members])] = True
        return true

    def _just_one(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        # One value is at most one text of a set.
        return self._one_of(a, b, rows)

    def _one_of_single(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        literals = self._literals(a, rows)
        bits = self.arrays.set_bits.take(b) >> (literals & 63).astype(np.uint64)
        true: NDArray[np.bool_] = (bits & np.uint64(1)).astype(np.bool_)
        likely = indices_of(true)
        true[likely] = self.segment.in_sets((b.take(likely).astype(np.int64) << 32) | literals.take(likely))
        return true

    def _in_limits(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        low, high = self.arrays.limit_low.take(b), self.arrays.limit_high.take(b)
        codes = self.flat_codes.take(a.astype(np.int64) * self.count + rows)
        numbers = np.empty(len(a), np.float64)
        for key in indices_of(np.bincount(a)).tolist():
            mine = indices_of(a == key)
            numbers[mine] = self.tables.numbers(key).take(codes.take(mine))
        with np.errstate(invalid="ignore"):
            return (low <= numbers) & (numbers <= high)

    def _numbers(self, key: int) -> NDArray[np.float64]:
        """Return the number that each row has as the value of a key; NaN for none."""
        numbers: NDArray[np.float64] = self.tables.numbers(key).take(self.codes[key])
        return numbers

    def _literals_of_fact(self, fact: int) -> Ints:
        """Return the literal that each row has in a fact; 0 for none."""
        return self._literals(np.full(self.count, fact, np.int32), np.arange(self.count))

    def _among_many(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        true = np.zeros(len(a), np.bool_)
        which, literals = self._several(a, rows)
        true[which[literals == b.take(which)]] = True
        return true

    def _holds(self, a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        codes = self.flat_codes.take(a.astype(np.int64) * self.count + rows)
        pairs, which = np.unique((b.astype(np.int64) << 32) | codes, return_inverse=True)
        keys = np.empty(len(pairs), np.int64)
        keys[which] = a
        return self.tables.verdicts(pairs, keys).take(which)

    def _trees(self, _a: Ints, b: Ints, rows: Indices) -> NDArray[np.bool_]:
        """The truth of whole trees: first of all their leaves, then of the groups, the deepest ones first."""
        arrays = self.arrays
        first = arrays.tree_at.take(b).astype(np.int64)
        which, nodes = expanded(first, arrays.tree_at.take(b + 1) - first)
        op, a, bb = arrays.node_op.take(nodes), arrays.node_a.take(nodes), arrays.node_b.take(nodes)
        depth = arrays.node_depth.take(nodes)
        parent = np.arange(len(nodes)) - arrays.node_parent.take(nodes)
        is_group = (op >> 1) == GROUP
        leaves = indices_of(~is_group)
        true = np.zeros(len(nodes), np.bool_)
        true[leaves] = self._truths(op.take(leaves), a.take(leaves), bb.take(leaves), rows.take(which.take(leaves)))
        count = np.zeros(len(nodes), np.int64)
        for level in range(int(depth.max()), -1, -1):
            at_level = depth == level
            groups = indices_of(at_level & is_group)
            within = (a.take(groups) <= count.take(groups)) & (count.take(groups) <= bb.take(groups))
            true[groups] = within != (op.take(groups) & 1).view(np.bool_)
            if level:
                count += np.bincount(parent[at_level & true], minlength=len(nodes))
        return true.take(np.cumsum(np.bincount(which)) - np.bincount(which))


_BY_KIND: Final = {
    EQUAL: "_equal",
    ONE_OF: "_one_of",
    JUST_ONE: "_just_one",
    LIMITS: "_in_limits",
    MANY: "_among_many",
    HOLDS: "_holds",
    TREE: "_trees",
}
"""The method for each kind of check."""


def joined(parts: Sequence[_Pairs]) -> _Pairs:
    """All pairs in one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([others for _, others in parts])
