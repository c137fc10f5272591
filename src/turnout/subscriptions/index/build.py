"""Construction of a segment: literals in the order of their hashes, entries in that of literals, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.conditions import Condition
from turnout.subscriptions.index.arrays import (
    EQUAL,
    HOLDS,
    JUST_ONE,
    LIMITS,
    MANY,
    ONE_OF,
    TREE,
    Arrays,
    Head,
    Indices,
    Ints,
    Longs,
    Texts,
    arranged,
    expanded,
    mixed,
)
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.facts import Intervals, encoded_all, hashes_of, salt_of
from turnout.subscriptions.index.literal_choice import NOTHING, Costs, Prices
from turnout.subscriptions.index.postings import Entries, SecondaryKeys, entries_of, joined, rows_of_conditions
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.model import Expiry, ExpiryClock, Subscription


class NumberedLiterals:
    """The literals that something refers to, from 1 in the order of their hashes.

    Args:
        clauses: clauses of the segment, with all literals.
        ways: literals that entries are found by.
        prices: number of uses of each literal.

    Attributes:
        hash: hash of each literal, beginning with literal 1.
        fact: fact of its text.
        start: start of the buckets of hashes.
        text: the texts themselves.
        uses: number of uses of each.
        first_facts: the facts whose literals a message is asked for first.
    """

    def __init__(self, clauses: Clauses, ways: SecondaryKeys, prices: Prices) -> None:
        fact_of_literal = np.array(clauses.literals.fact, np.int64)
        used = np.zeros(len(fact_of_literal), np.bool_)
        used[ways.first] = True
        used[ways.second] = True
        op, b = np.array(clauses.op, np.int32), np.array(clauses.b, np.int64)
        used[b[(op == EQUAL) | (op == MANY)]] = True
        for members in clauses.sets:
            used[list(members)] = True
        raws = encoded_all(clauses.literals.text)
        hashes = np.zeros(len(raws), np.uint64)
        for number, fact in enumerate(clauses.literals.facts):
            mine = np.flatnonzero(used & (fact_of_literal == number))
            hashes[mine] = hashes_of([raws[index] for index in mine.tolist()], salt_of(fact))
        selected = np.flatnonzero(used)
        order, self.start = arranged(hashes.take(selected))
        selected = selected.take(order)
        self.hash = hashes.take(selected)
        self.fact = fact_of_literal.take(selected).astype(np.int32)
        self.text = Texts.of([raws[index] for index in selected.tolist()])
        self._number = np.zeros(len(raws), np.int64)
        self._number[selected] = np.arange(1, len(selected) + 1)
        self.uses = prices.uses.take(selected).astype(np.int32)
        self.first_facts: tuple[int, ...] = tuple(np.unique(fact_of_literal.take(ways.first)).tolist())

    def __len__(self) -> int:
        return len(self.hash)

    def of(self, literals: Indices) -> Indices:
        """Return the final number of each literal."""
        return self._number.take(literals)


class ClauseColumns(NamedTuple):
    """Columns of all clauses; see `turnout.subscriptions.index.arrays.Arrays` for those of the same names.

    Attributes:
        op: by clause: its operation.
        a: see `turnout.subscriptions.index.arrays.EQUAL` and the others.
        b: see there.
        limits: by limits: the least and the greatest number.
    """

    op: Indices
    a: Indices
    b: Indices
    set_key: Longs
    set_start: NDArray[np.uint32]
    set_bits: NDArray[np.uint64]
    limits: NDArray[np.float64]
    test_form: NDArray[np.uint8]
    test_text: Texts
    test_last: Texts
    tree_at: Ints
    node_op: NDArray[np.uint8]
    node_a: Ints
    node_b: Ints
    node_parent: Ints
    node_depth: NDArray[np.uint8]


def clause_columns(clauses: Clauses, literals: NumberedLiterals) -> ClauseColumns:
    """Return the columns of the clauses."""
    trees = clauses.trees
    return ClauseColumns(
        *_final_clauses(clauses, literals),
        *_sets(clauses, literals),
        np.array(clauses.limits, np.float64).reshape(-1, 2),
        np.array([form for form, _, _ in clauses.tests], np.uint8),
        Texts.of(encoded_all([text for _, text, _ in clauses.tests])),
        Texts.of(encoded_all([last for _, _, last in clauses.tests])),
        np.array(trees.at, np.int32),
        *_final_nodes(clauses, literals),
        np.array(trees.parent, np.int32),
        np.array(trees.depth, np.uint8),
    )


def _final_clauses(clauses: Clauses, literals: NumberedLiterals) -> tuple[Indices, Indices, Indices]:
    op, a, b = (np.array(column, np.int64) for column in (clauses.op, clauses.a, clauses.b))
    by_literal = (op == EQUAL) | (op == MANY)
    b[by_literal] = literals.of(b[by_literal])
    return op, a, b


def _final_nodes(clauses: Clauses, literals: NumberedLiterals) -> tuple[NDArray[np.uint8], Ints, Ints]:
    trees = clauses.trees
    op, b = np.array(trees.op, np.uint8), np.array(trees.b, np.int64)
    by_literal = (op >> 1 == EQUAL) | (op >> 1 == MANY)
    b[by_literal] = literals.of(b[by_literal])
    return op, np.array(trees.a, np.int32), b.astype(np.int32)


def _sets(clauses: Clauses, literals: NumberedLiterals) -> tuple[Longs, NDArray[np.uint32], NDArray[np.uint64]]:
    sizes = np.array([len(members) for members in clauses.sets], np.int64)
    members = literals.of(np.array([literal for members in clauses.sets for literal in members], np.int64))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    keys = (owner << 32) | members
    order, start = arranged(mixed(keys))
    bits = np.zeros(len(sizes), np.uint64)
    np.bitwise_or.at(bits, owner, np.uint64(1) << (members & 63).astype(np.uint64))
    return keys.take(order), start, bits


_ORDER = {EQUAL: 0, ONE_OF: 1, JUST_ONE: 1, LIMITS: 2, MANY: 3, HOLDS: 4, TREE: 5}
"""Order of checks: the cheapest and most selective first."""


class EntryColumns(NamedTuple):
    """Columns of all entries; see `turnout.subscriptions.index.arrays.Arrays` for those of the same names.

    Attributes:
        always: the first entry without a literal.
        paired: the first with two.
        subscription: by entry.
        program: by entry.
        check_rows: row of each program's checks: a clause, times two, plus one if it is negated.
    """

    always: int
    paired: int
    entries_at: Ints
    ways_at: Ints
    way_fact: Ints
    pair_key: Longs
    pair_start: NDArray[np.uint32]
    subscription: Ints
    program: Ints
    checks_at: Ints
    check_rows: Indices


def entry_columns(ways: SecondaryKeys, literals: NumberedLiterals, op: Indices) -> EntryColumns:
    """Return the columns of the entries.

    Args:
        ways: entries with the literals that they are found by.
        literals: final numbers of the literals.
        op: operation of each clause.
    """
    placed = _placed(ways, literals)
    programs, checks_at, rows = _checks(placed, op)
    literal_of_entry = literals.of(placed.entries.literal[: placed.always])
    order = _by_program(placed, literal_of_entry, programs)
    return EntryColumns(
        placed.always,
        placed.paired,
        _starts(literal_of_entry, len(literals)),
        _starts(placed.ways >> 32, len(literals) if len(placed.ways) else -2),
        (placed.ways & 0xFFFFFFFF).astype(np.int32),
        placed.pair_key,
        placed.pair_start,
        placed.entries.subscription.take(order).astype(np.int32),
        programs.take(order),
        checks_at,
        rows,
    )


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


def _placed(ways: SecondaryKeys, literals: NumberedLiterals) -> _Placed:
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


NEVER = np.iinfo(np.int64).max
"""Time of an expiry that is none."""


class SubscriptionColumns(NamedTuple):
    """Columns of all subscriptions; see `turnout.subscriptions.index.arrays.Arrays`."""

    ids: Texts
    destinations_at: Ints
    destination: Ints
    destinations: Texts
    expires_record: Longs
    expires_wall: Longs
    project: Ints
    projects: Texts


class SubscriptionTable:
    """Ids, destinations, expiries and projections, kept while the conditions go by; the rest is not."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._counts: list[int] = []
        self._numbers: list[int] = []
        self._names: dict[str, int] = {}
        self._expiries: dict[int, Expiry] = {}
        self._projects: dict[int, str] = {}

    def conditions(self, subscriptions: Iterable[Subscription]) -> Iterator[Condition]:
        """Add subscriptions, and yield their conditions."""
        names = self._names
        for subscription in subscriptions:
            if subscription.expires is not None:
                self._expiries[len(self._ids)] = subscription.expires
            if subscription.project:
                self._projects[len(self._ids)] = subscription.project
            self._ids.append(subscription.id)
            self._counts.append(len(subscription.destinations))
            for name in subscription.destinations:
                self._numbers.append(names.setdefault(name, len(names)))
            yield subscription.condition

    def columns(self) -> SubscriptionColumns:
        """Return the columns of the subscriptions that were added."""
        return SubscriptionColumns(
            Texts.of(encoded_all(self._ids)),
            *self._destinations(),
            self._expiries_by("record"),
            self._expiries_by("wall"),
            *self._projections(),
        )

    def _destinations(self) -> tuple[Ints, Ints, Texts]:
        """Return the offset of each subscription's destinations, the numbers of these, and the texts."""
        offsets = np.zeros(len(self._counts) + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        return offsets, np.array(self._numbers, np.int32), Texts.of(encoded_all(list(self._names)))

    def _expiries_by(self, clock: ExpiryClock) -> Longs:
        """Return the times at which the subscriptions expire by a clock; empty if none expires at all."""
        if not self._expiries:
            return np.zeros(0, np.int64)
        times = np.full(len(self._ids), NEVER, np.int64)
        for number, expiry in self._expiries.items():
            if expiry.by == clock:
                times[number] = expiry.milliseconds
        return times

    def _projections(self) -> tuple[Ints, Texts]:
        """Return the number of each subscription's projection, empty if none has one, and the texts."""
        texts = list(dict.fromkeys(self._projects.values()))
        numbers = {text: number for number, text in enumerate(texts)}
        of_subscriptions = np.full(len(self._ids) if texts else 0, NOTHING, np.int32)
        for subscription, text in self._projects.items():
            of_subscriptions[subscription] = numbers[text]
        return of_subscriptions, Texts.of(encoded_all(texts))


_NO_CUTS = np.zeros(0, np.float64)


def build(subscriptions: Iterable[Subscription], costs: Costs) -> Segment:
    """Build a segment of these subscriptions in memory, without disabled ones; their ids have to be distinct."""
    clauses, table = Clauses(), SubscriptionTable()
    entries, prices = entries_of(rows_of_conditions(table.conditions(enabled(subscriptions)), clauses), costs)
    ways = SecondaryKeys(entries, prices, clauses)
    literals = NumberedLiterals(clauses, ways, prices)
    by_clause = clause_columns(clauses, literals)
    by_entry = entry_columns(ways, literals, by_clause.op)
    keys, facts = tuple(clauses.literals.keys), tuple(clauses.literals.facts)
    head = Head(keys, facts, literals.first_facts, by_entry.always, by_entry.paired, clauses.overlapping)
    arrays = _arrays(literals, by_clause, by_entry, table.columns(), _cuts(prices.intervals, len(keys)))
    return Segment(head, arrays, literals.uses)


def enabled(subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the subscriptions that are not disabled."""
    return (subscription for subscription in subscriptions if subscription.enabled)


def _cuts(intervals: Mapping[int, Intervals], keys: int) -> list[NDArray[np.float64]]:
    """Return the cuts of each key."""
    return [intervals[key].cuts if key in intervals else _NO_CUTS for key in range(keys)]


def _arrays(
    literals: NumberedLiterals,
    clauses: ClauseColumns,
    entries: EntryColumns,
    table: SubscriptionColumns,
    cuts: list[NDArray[np.float64]],
) -> Arrays:
    clause, is_negated = entries.check_rows >> 1, entries.check_rows & 1
    # A line for each array, in the order in which `Arrays` describes them: divided, it would be a table in pieces.
    return Arrays(
        literal_hash=literals.hash,
        literal_fact=literals.fact,
        literal_start=literals.start,
        literal_text=literals.text,
        entries_at=entries.entries_at,
        ways_at=entries.ways_at,
        way_fact=entries.way_fact,
        pair_key=entries.pair_key,
        pair_start=entries.pair_start,
        entry_subscription=entries.subscription,
        entry_program=entries.program,
        checks_at=entries.checks_at,
        check_op=(clauses.op.take(clause) * 2 + is_negated).astype(np.uint8),
        check_a=clauses.a.take(clause).astype(np.int32),
        check_b=clauses.b.take(clause).astype(np.int32),
        set_key=clauses.set_key,
        set_start=clauses.set_start,
        set_bits=clauses.set_bits,
        limit_low=np.ascontiguousarray(clauses.limits[:, 0]),
        limit_high=np.ascontiguousarray(clauses.limits[:, 1]),
        cuts_at=np.cumsum([0, *map(len, cuts)]).astype(np.int32),
        cuts=np.concatenate([_NO_CUTS, *cuts]),
        test_form=clauses.test_form,
        test_text=clauses.test_text,
        test_last=clauses.test_last,
        tree_at=clauses.tree_at,
        node_op=clauses.node_op,
        node_a=clauses.node_a,
        node_b=clauses.node_b,
        node_parent=clauses.node_parent,
        node_depth=clauses.node_depth,
        ids=table.ids,
        destinations_at=table.destinations_at,
        destination=table.destination,
        destinations=table.destinations,
        expires_record=table.expires_record,
        expires_wall=table.expires_wall,
        project=table.project,
        projects=table.projects,
    )
