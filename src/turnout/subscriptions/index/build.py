"""Construction of a segment: literals in the order of their hashes, entries in that of literals, and checks.

Entries that no literal finds, as those of a negation alone, are verified for every message (``always`` of the segment).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.arrays import EQUAL, HOLDS, JUST_ONE, LIMITS, MANY, ONE_OF, TREE, Arrays, Head
from turnout.subscriptions.index.buckets import Indices, Ints, Longs, arranged, expanded, mixed
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.facts import encoded_all, hashes_of, is_many, salt_of
from turnout.subscriptions.index.literal_choice import NOTHING, Prices
from turnout.subscriptions.index.postings import Entries, entries_of, joined, rows_of_conditions
from turnout.subscriptions.index.ranges import Intervals
from turnout.subscriptions.index.secondary_keys import SecondaryKeys
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.subscription_table import SubscriptionTable
from turnout.subscriptions.index.text_arrays import Texts
from turnout.subscriptions.model import Subscription

_ORDER = {EQUAL: 0, ONE_OF: 1, JUST_ONE: 1, LIMITS: 2, MANY: 3, HOLDS: 4, TREE: 5}
"""Order of checks: the cheapest and most selective first."""

_NO_CUTS = np.zeros(0, np.float64)


class _Placed(NamedTuple):
    """Entries in their final order.

    Attributes:
        entries: those with a literal, by literal; then those without; then those with two.
        second_row: the row that need not be checked because of the second literal.
        always: the first entry without a literal.
        paired: the first with two.
        ways: literal and fact of each way, in order.
        pair_key: way and second literal, in the order of the paired entries.
        pair_start: start of their buckets.
    """

    entries: Entries
    second_row: Indices
    always: int
    paired: int
    ways: Indices
    pair_key: Longs
    pair_start: NDArray[np.uint32]


def build(subscriptions: Iterable[Subscription], costs: Costs) -> Segment:
    """Build a segment of these subscriptions in memory, without disabled ones; their ids have to be distinct."""
    clauses, table = Clauses(), SubscriptionTable()
    entries, prices = entries_of(rows_of_conditions(table.conditions(enabled(subscriptions)), clauses), costs)
    ways = SecondaryKeys(entries, prices, clauses)
    literals = _Numbered(clauses, ways)
    placed = _placed(ways, literals)
    return Segment(
        Head(
            tuple(clauses.literals.keys),
            tuple(clauses.literals.facts),
            tuple(np.unique(literals.fact_of(ways.first)).tolist()),
            placed.always,
            placed.paired,
            clauses.overlapping,
        ),
        _arrays(table, clauses, literals, placed, prices.intervals),
        literals.uses(prices),
        literals.by_text(clauses),
    )


def enabled(subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the subscriptions that are not disabled."""
    return (subscription for subscription in subscriptions if subscription.enabled)


class _Numbered:
    """The literals that something refers to, from 1 in the order of their hashes."""

    def __init__(self, clauses: Clauses, ways: SecondaryKeys) -> None:
        self._fact = np.array(clauses.literals.fact, np.int64)
        used = np.zeros(len(self._fact), np.bool_)
        used[ways.first] = True
        used[ways.second] = True
        op, b = np.array(clauses.op, np.int32), np.array(clauses.b, np.int64)
        used[b[(op == EQUAL) | (op == MANY)]] = True
        for members in clauses.sets:
            used[list(members)] = True
        raws = encoded_all(clauses.literals.text)
        hashes = np.zeros(len(raws), np.uint64)
        for number, fact in enumerate(clauses.literals.facts):
            mine = np.flatnonzero(used & (self._fact == number))
            hashes[mine] = hashes_of([raws[index] for index in mine.tolist()], salt_of(fact))
        selected = np.flatnonzero(used)
        order, self.start = arranged(hashes.take(selected))
        selected = selected.take(order)
        self._selected = selected
        self.hash = hashes.take(selected)
        self.fact = self._fact.take(selected).astype(np.int32)
        self.text = Texts.of([raws[index] for index in selected.tolist()])
        self._number = np.zeros(len(raws), np.int64)
        self._number[selected] = np.arange(1, len(selected) + 1)

    def __len__(self) -> int:
        return len(self.hash)

    def uses(self, prices: Prices) -> Ints:
        """Return the number of uses of each literal, beginning with literal 1."""
        return prices.uses.take(self._selected).astype(np.int32)

    def by_text(self, clauses: Clauses) -> list[dict[str, int] | None]:
        """Return the final numbers of each single fact's literals by text; None for facts of many texts."""
        numbers = self._number.tolist()
        return [
            None if is_many(kind) else {text: number for text, old in known.items() if (number := numbers[old])}
            for (_, kind), known in zip(clauses.literals.facts, clauses.literals.by_fact, strict=True)
        ]

    def fact_of(self, literals: Indices) -> Indices:
        """The fact of each literal, by the clauses' numbers."""
        return self._fact.take(literals)

    def of(self, literals: Indices) -> Indices:
        """The final number of each literal."""
        return self._number.take(literals)


def _placed(ways: SecondaryKeys, literals: _Numbered) -> _Placed:
    single = ways.single
    number = np.where(single.literal == NOTHING, np.iinfo(np.int64).max, literals.of(np.maximum(single.literal, 0)))
    order = np.argsort(number, kind="stable")
    single, number = single.take(order), number.take(order)
    by_literal = literals.of(ways.double.literal)
    all_ways, which = np.unique((by_literal << 32) | ways.fact, return_inverse=True)
    pair_key = (which.astype(np.int64) << 32) | literals.of(ways.second)
    pair_order, pair_start = arranged(mixed(pair_key))
    always = int(np.searchsorted(number, np.iinfo(np.int64).max))
    entries = joined(single, ways.double.take(pair_order))
    row = np.concatenate([np.full(len(single.literal), NOTHING), ways.row.take(pair_order)])
    return _Placed(entries, row, always, len(single.literal), all_ways, pair_key.take(pair_order), pair_start)


def _arrays(
    table: SubscriptionTable,
    clauses: Clauses,
    literals: _Numbered,
    placed: _Placed,
    intervals: Mapping[int, Intervals],
) -> Arrays:
    op, a, b = _final_clauses(clauses, literals)
    programs, checks_at, rows = _checks(placed, op)
    literal_of_entry = literals.of(placed.entries.literal[: placed.always])
    order = _by_program(placed, literal_of_entry, programs)
    clause = rows >> 1
    set_key, set_start, set_bits = _sets(clauses, literals)
    limits = np.array(clauses.limits, np.float64).reshape(-1, 2)
    cuts = [intervals[key].cuts if key in intervals else _NO_CUTS for key in range(len(clauses.literals.keys))]
    numbers, counts, names = table.destinations()
    project, projects = table.projects()
    trees = clauses.trees
    node_op, node_a, node_b = _final_nodes(clauses, literals)
    # A line for each array, in the order in which `Arrays` describes them: divided, it would be a table in pieces.
    return Arrays(
        literal_hash=literals.hash,
        literal_fact=literals.fact,
        literal_start=literals.start,
        literal_text=literals.text,
        entries_at=_starts(literal_of_entry, len(literals)),
        ways_at=_starts(placed.ways >> 32, len(literals) if len(placed.ways) else -2),
        way_fact=(placed.ways & 0xFFFFFFFF).astype(np.int32),
        pair_key=placed.pair_key,
        pair_start=placed.pair_start,
        entry_subscription=placed.entries.subscription.take(order).astype(np.int32),
        entry_program=programs.take(order),
        checks_at=checks_at,
        check_op=(op.take(clause) * 2 + (rows & 1)).astype(np.uint8),
        check_a=a.take(clause).astype(np.int32),
        check_b=b.take(clause).astype(np.int32),
        set_key=set_key,
        set_start=set_start,
        set_bits=set_bits,
        limit_low=np.ascontiguousarray(limits[:, 0]),
        limit_high=np.ascontiguousarray(limits[:, 1]),
        cuts_at=np.cumsum([0, *map(len, cuts)]).astype(np.int32),
        cuts=np.concatenate([_NO_CUTS, *cuts]),
        test_form=np.array([form for form, _, _ in clauses.tests], np.uint8),
        test_text=Texts.of(encoded_all([text for _, text, _ in clauses.tests])),
        test_last=Texts.of(encoded_all([last for _, _, last in clauses.tests])),
        tree_at=np.array(trees.at, np.int32),
        node_op=node_op,
        node_a=node_a,
        node_b=node_b,
        node_parent=np.array(trees.parent, np.int32),
        node_depth=np.array(trees.depth, np.uint8),
        ids=table.ids(),
        destinations_at=counts,
        destination=numbers,
        destinations=names,
        expires_record=table.expiries("record"),
        expires_wall=table.expiries("wall"),
        project=project,
        projects=projects,
    )


def _final_clauses(clauses: Clauses, literals: _Numbered) -> tuple[Indices, Indices, Indices]:
    op, a, b = (np.array(column, np.int64) for column in (clauses.op, clauses.a, clauses.b))
    by_literal = (op == EQUAL) | (op == MANY)
    b[by_literal] = literals.of(b[by_literal])
    return op, a, b


def _final_nodes(clauses: Clauses, literals: _Numbered) -> tuple[NDArray[np.uint8], Ints, Ints]:
    trees = clauses.trees
    op, b = np.array(trees.op, np.uint8), np.array(trees.b, np.int64)
    by_literal = (op >> 1 == EQUAL) | (op >> 1 == MANY)
    b[by_literal] = literals.of(b[by_literal])
    return op, np.array(trees.a, np.int32), b.astype(np.int32)


def _checks(placed: _Placed, op: Indices) -> tuple[Ints, Ints, Indices]:
    """Each entry's program; where each program's checks begin; and the rows of all checks, the cheapest first."""
    entries = placed.entries
    owner, indexes = expanded(entries.first, entries.count)
    skip = np.where(entries.decided, entries.row, NOTHING)
    left = np.flatnonzero((indexes != skip.take(owner)) & (indexes != placed.second_row.take(owner)))
    owner, rows = owner.take(left), entries.rows.take(indexes.take(left))
    rank = np.array([_ORDER.get(operator, 0) for operator in range(JUST_ONE + 1)]).take(op.take(rows >> 1))
    # Negations let most through.
    order = np.lexsort((rows, (owner << 5) | (rank << 1) | (rows & 1)))
    owner, rows = owner.take(order), rows.take(order)
    starts = _starts(owner, len(entries.first) - 1).astype(np.int64)
    program, selected = _shared(rows, starts)
    first = starts.take(selected)
    count = starts.take(selected + 1) - first
    _, indexes = expanded(first, count)
    checks_at = np.zeros(len(selected) + 1, np.int32)
    np.cumsum(count, out=checks_at[1:])
    return program.astype(np.int32), checks_at, rows.take(indexes)


def _by_program(placed: _Placed, literals: Indices, programs: Ints) -> Indices:
    """Return the order in which, of the entries that are found together, those of one program follow one another."""
    always = np.full(placed.paired - placed.always, literals.max(initial=0) + 1)
    pairs = np.cumsum(np.diff(placed.pair_key, prepend=-1) != 0) + (literals.max(initial=0) + 1)
    return np.lexsort((programs, np.concatenate([literals, always, pairs])))


def _shared(rows: Indices, starts: Indices) -> tuple[Indices, Indices]:
    """The program of each entry, and for each program an entry that has it."""
    first, count = starts[:-1], np.diff(starts)
    index = np.arange(len(rows)) - np.repeat(first, count)
    sums = np.zeros(len(rows) + 1, np.uint64)
    np.cumsum(mixed((rows << 20) + index + 1), out=sums[1:])
    marks = sums.take(starts[1:]) - sums.take(first) + count.astype(np.uint64)
    _, selected, program = np.unique(marks, return_index=True, return_inverse=True)
    # Equal marks do not make equal checks: where they differ, nothing is shared.
    like = selected.take(program)
    same = np.array_equal(count.take(like), count)
    if same:
        which, indexes = expanded(first, count)
        same = np.array_equal(rows.take(first.take(like).take(which) + index), rows.take(indexes))
    everyone = np.arange(len(first))
    return (program, selected) if same else (everyone, everyone)


def _starts(owner: Indices, last: int) -> Ints:
    """Return the offsets of each owner's rows, from owner 0 to *last*, and the end of the last one's."""
    starts = np.zeros(last + 2, np.int32)
    if last >= 0:
        np.cumsum(np.bincount(owner, minlength=last + 1), out=starts[1:])
    return starts


def _sets(clauses: Clauses, literals: _Numbered) -> tuple[Longs, NDArray[np.uint32], NDArray[np.uint64]]:
    sizes = np.array([len(members) for members in clauses.sets], np.int64)
    members = literals.of(np.array([literal for members in clauses.sets for literal in members], np.int64))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    keys = (owner << 32) | members
    order, start = arranged(mixed(keys))
    bits = np.zeros(len(sizes), np.uint64)
    np.bitwise_or.at(bits, owner, np.uint64(1) << (members & 63).astype(np.uint64))
    return keys.take(order), start, bits
