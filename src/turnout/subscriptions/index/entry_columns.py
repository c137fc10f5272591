"""Entries of a segment in their final order as columns, with the programs of checks that they share.

Entries that no literal finds, as those of a negation alone, are verified for every message (``always`` of the segment).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import EQUAL, HOLDS, JUST_ONE, LIMITS, MANY, ONE_OF, TREE
from turnout.subscriptions.index.buckets import Indices, Ints, Longs, arranged, expanded, mixed
from turnout.subscriptions.index.literal_choice import NOTHING
from turnout.subscriptions.index.numbered_literals import NumberedLiterals
from turnout.subscriptions.index.postings import Entries, joined
from turnout.subscriptions.index.secondary_keys import SecondaryKeys

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
