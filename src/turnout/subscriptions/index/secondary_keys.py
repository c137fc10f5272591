"""Pairs of literals: entries of a literal that many share are looked up by a second one, too."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import EQUAL, LIMITS, MANY
from turnout.subscriptions.index.buckets import Indices, expanded
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.literal_choice import NOTHING, Prices, Unions, cheapest
from turnout.subscriptions.index.postings import Entries, joined

HOT = 6
"""A literal that more entries than this are found by is looked up together with a second one."""

_LEAST_SAVED = 1
"""Average number of candidates that an additional look-up has to save."""


class SecondaryKeys:
    """Entries of hot literals that are looked up by a second literal, with that literal.

    Attributes:
        single: entries that are found by one literal, or always.
        double: entries that are found by two.
        row: the row that need not be checked because of the second literal; `NOTHING` if none.
        second: second literals.
        fact: their facts.
        first: the distinct literals that a message is asked for first.
    """

    def __init__(self, entries: Entries, prices: Prices, clauses: Clauses) -> None:
        found = np.flatnonzero(entries.literal != NOTHING)
        literal = entries.literal.take(found)
        hot = found[np.bincount(literal, minlength=1).take(literal) > HOT]
        row = np.full(len(entries.literal), NOTHING, np.int64)
        if len(hot):
            row[hot] = self._second_rows(entries.take(hot), prices, clauses)
            row[hot] = self._worthwhile(entries.literal.take(hot), row.take(hot), entries.rows, clauses)
        entries, row, by_intervals = _by_two_intervals(entries, row, prices.covers, clauses)
        self.single = entries.take(np.flatnonzero(row == NOTHING))
        self.first = np.unique(entries.literal[entries.literal != NOTHING])
        others = np.flatnonzero((row != NOTHING) & ~by_intervals)
        of_two = np.flatnonzero(by_intervals)
        parts = [
            _with_seconds(entries.take(others), row.take(others), prices.seconds, clauses),
            _with_seconds(entries.take(of_two), row.take(of_two), prices.covers, clauses),
        ]
        self.double = joined(parts[0].entries, parts[1].entries)
        self.row = np.concatenate([part.row for part in parts])
        self.second = np.concatenate([part.second for part in parts])
        self.fact = np.array(clauses.literals.fact, np.int64).take(self.second)

    @staticmethod
    def _second_rows(entries: Entries, prices: Prices, clauses: Clauses) -> Indices:
        """Return each entry's cheapest row other than the one it is found by; `NOTHING` if none."""
        op = np.array(clauses.op, np.int32)
        usable = (op == EQUAL) | (op == MANY)
        cost = np.where(usable, 0.0, inf)
        cost[usable] = prices.literal.take(np.array(clauses.b, np.int64)[usable])
        united = np.flatnonzero(prices.seconds.of_clause != NOTHING)
        cost[united] = prices.clause.take(united)
        of_rows = np.where(entries.rows & 1, inf, cost.take(entries.rows >> 1))
        # Entries of one subscription share rows, and each leaves out its own: one copy of the rows per entry.
        some = np.flatnonzero(entries.count)
        second = np.full(len(entries.count), NOTHING, np.int64)
        if len(some) == 0:
            return second
        count = entries.count.take(some)
        owner, indexes = expanded(entries.first.take(some), count)
        own = np.where(indexes == entries.row.take(some).take(owner), inf, of_rows.take(indexes))
        best = cheapest(own, np.cumsum(count) - count, count)
        second[some] = np.where(best == NOTHING, NOTHING, indexes.take(best))
        return second

    @staticmethod
    def _worthwhile(literal: Indices, row: Indices, rows: Indices, clauses: Clauses) -> Indices:
        """Return the rows; `NOTHING` if few entries share their literal and fact, or all of them the second literal."""
        usable = np.flatnonzero(row != NOTHING)
        clause = rows.take(row.take(usable)) >> 1
        # An interval has the number of its key in place of a fact's, and nodes that others hardly share.
        is_interval = np.array(clauses.op, np.int64).take(clause) == LIMITS
        fact = (np.array(clauses.a, np.int64).take(clause) << 1) | is_interval
        second = np.where(is_interval, clause, np.array(clauses.b, np.int64).take(clause))
        ways, which, counts = np.unique((literal.take(usable) << 32) | fact, return_inverse=True, return_counts=True)
        selected = np.full(len(row), NOTHING, np.int64)
        if len(ways):
            seconds = np.bincount(np.unique((which << 32) | second) >> 32)
            enough = usable[(counts - counts / seconds).take(which) >= _LEAST_SAVED]
            selected[enough] = row[enough]
        return selected


class _Doubles(NamedTuple):
    """Entries that are found by two literals.

    Attributes:
        entries: entries with their first literals.
        row: row that need not be checked because of the second literal; `NOTHING` if none.
        second: second literal.
    """

    entries: Entries
    row: Indices
    second: Indices


def _with_seconds(entries: Entries, row: Indices, unions: Unions, clauses: Clauses) -> _Doubles:
    """Return the entries with the second literals of these rows: an entry for each literal of a union."""
    clause = entries.rows.take(row) >> 1
    of_entry = unions.of_clause.take(clause)
    united = np.flatnonzero(of_entry != NOTHING)
    which, literal, inside = unions.members(of_entry.take(united))
    left = np.flatnonzero(of_entry == NOTHING)
    order = np.concatenate([left, united.take(which)])
    return _Doubles(
        entries.take(order),
        np.concatenate([row.take(left), np.where(inside, row.take(united.take(which)), NOTHING)]),
        np.concatenate([np.array(clauses.b, np.int64).take(clause.take(left)), literal]),
    )


def _by_two_intervals(
    entries: Entries, row: Indices, covers: Unions, clauses: Clauses
) -> tuple[Entries, Indices, NDArray[np.bool_]]:
    """Return the entries, their second rows, and a mask of those that two intervals find, with nodes of *covers*.

    Candidates are the fewest if both intervals are divided alike; pairs to look up, if all begin with the same key.
    """
    twice = np.flatnonzero((row != NOTHING) & (entries.row != NOTHING))
    rows = np.stack([entries.row.take(twice), row.take(twice)])
    clause = entries.rows.take(rows) >> 1
    of_intervals = np.flatnonzero((covers.of_clause.take(clause) != NOTHING).all(axis=0))
    # One of the entries that a condition is found by.
    of_intervals = of_intervals.take(np.unique(rows[0].take(of_intervals), return_index=True)[1])
    rows, clause = rows.take(of_intervals, axis=1), clause.take(of_intervals, axis=1)
    kept = np.flatnonzero(~np.isin(entries.row, rows[0]))
    key = np.array(clauses.a, np.int64).take(clause)
    order = np.argsort(key, axis=0, kind="stable")
    rows, clause = np.take_along_axis(rows, order, 0), np.take_along_axis(clause, order, 0)
    which, literal, inside = covers.members(covers.of_clause.take(clause[0]))
    first, second = rows.take(which, axis=1)
    written = replace(entries.take(twice.take(of_intervals.take(which))), literal=literal, decided=inside, row=first)
    by_intervals = np.arange(len(kept) + len(which)) >= len(kept)
    return joined(entries.take(kept), written), np.concatenate([row.take(kept), second]), by_intervals
