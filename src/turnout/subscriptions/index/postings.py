"""Conversion of subscriptions to entries: a literal to find each by, and rows of clauses that must be true, too.

Most conditions are conjunctions, and their rarest literal is chosen for all of them at once. Others are found by their
alternatives (`Plan`), which may overlap: the match removes duplicates. Conditions with XOR are put
in disjoint terms (`turnout.conditions.terms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.anchor import ALWAYS
from turnout.conditions.model import Condition, Group, Logic, leaves, nodes
from turnout.conditions.terms import conjuncts, disjuncts, terms_of
from turnout.subscriptions.index.arrays import EQUAL, LIMITS, MANY, Indices, expanded
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.literal_choice import NOTHING, Costs, Prices, Unions, cheapest

_MAX_JOINT_ALTERNATIVES = 8
"""Conditions with no more alternatives than this are worked on together, if all of them are leaves."""


@dataclass(slots=True)
class Plan:
    """A condition without XOR: all rows and one of each group of alternatives have to be true.

    Attributes:
        rows: clauses, times two, one more if negated.
        alternatives: groups, one plan of each has to be true, each with its condition.
        cost: of finding the condition.
        access: the row that it is found by, or the alternatives; None if nothing finds it.
    """

    rows: list[int]
    alternatives: list[tuple[Condition, list[Plan]]]
    cost: float = inf
    access: int | list[Plan] | None = None

    @classmethod
    def of(cls, condition: Condition, clauses: Clauses) -> Plan:
        """Return the plan of a condition."""
        rows: list[int] = []
        alternatives: list[tuple[Condition, list[Plan]]] = []
        for part in conjuncts(condition):
            row = clauses.row(part)
            if row is None:
                alternatives.append((part, [cls.of(child, clauses) for child in disjuncts(part)]))
            else:
                rows.append(row)
        return cls(clauses.with_joined_limits(rows), alternatives)

    def all_rows(self) -> Iterator[int]:
        """Yield the rows of this plan and of its alternatives."""
        yield from self.rows
        for _, plans in self.alternatives:
            for plan in plans:
                yield from plan.all_rows()

    def choose(self, costs: Sequence[float], forerunner: Mapping[int, int]) -> None:
        """Choose the literals that find the condition.

        Args:
            costs: costs of the clauses.
            forerunner: clauses that spare others, see `Prices.forerunners`.
        """
        spared = [forerunner[row >> 1] * 2 for row in self.rows if not row & 1 and row >> 1 in forerunner]
        self.rows = spared + self.rows
        for row in self.rows:
            if not row & 1 and costs[row >> 1] < self.cost:
                self.cost, self.access = costs[row >> 1], row
        for _, plans in self.alternatives:
            for plan in plans:
                plan.choose(costs, forerunner)
            cost = sum(plan.cost for plan in plans)
            if cost < self.cost:
                self.cost, self.access = cost, plans

    def terms(self, clauses: Clauses, others: Sequence[int] = ()) -> Iterator[tuple[int, list[int]]]:
        """Yield the terms of the condition: where the row is that each is found by, or `NOTHING`, and its rows.

        Terms may overlap: a message for which several are true finds the subscription several times.
        """
        of_groups = [
            row for part, plans in self.alternatives if plans is not self.access for row in _checks(part, clauses)
        ]
        rows = [*self.rows, *of_groups, *others]
        if isinstance(self.access, list):
            for plan in self.access:
                yield from plan.terms(clauses, rows)
        else:
            yield NOTHING if self.access is None else self.rows.index(self.access), rows


def _checks(condition: Condition, clauses: Clauses) -> list[int]:
    """Return the rows that verify a condition."""
    return clauses.rows(condition) or [clauses.tree(condition)]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Conditions as rows of clauses.

    Attributes:
        clauses: clauses of the rows.
        rows: clauses, times two, one more if negated; of all subscriptions, one after another.
        counts: how many rows each subscription has; none for those that are not in *rows*.
        alternatives: a few leaves of which one has to be true, or with XOR exactly one: their rows, and whose they are,
            by logic and by how many there are.
        plans: conditions that are more than that, by subscription.
        others: conditions with XOR inside, by subscription.
    """

    clauses: Clauses
    rows: list[int]
    counts: list[int]
    alternatives: dict[tuple[Logic, int], tuple[list[int], list[int]]]
    plans: dict[int, Plan]
    others: dict[int, Condition]


def rows_of_conditions(conditions: Iterable[Condition], clauses: Clauses) -> Drawn:
    """Return the conditions as rows of clauses, as far as possible."""
    result = Drawn(clauses, [], [], {}, {}, {})
    rows, counts, rows_of = result.rows, result.counts, clauses.rows
    for number, condition in enumerate(conditions):
        own = rows_of(condition)
        if own is not None:
            rows += own
            counts.append(len(own))
            continue
        counts.append(0)
        few = _alternatives(condition, clauses)
        if few is not None and isinstance(condition, Group):
            of_all, whose = result.alternatives.setdefault((condition.logic, len(few)), ([], []))
            of_all += few
            whose.append(number)
        elif any(isinstance(node, Group) and node.logic is Logic.XOR for node in nodes(condition)):
            result.others[number] = condition
        else:
            result.plans[number] = Plan.of(condition, clauses)
    clauses.unite_parts()
    overlapping = result.plans or any(logic is Logic.OR for logic, _ in result.alternatives)
    clauses.overlapping |= bool(overlapping)
    return result


def _alternatives(condition: Condition, clauses: Clauses) -> list[int] | None:
    """Return the rows of a condition with a few alternatives; None for other conditions."""
    if not isinstance(condition, Group) or condition.negated or condition.logic is Logic.AND:
        return None
    if len(condition.children) > _MAX_JOINT_ALTERNATIVES:
        return None
    rows = []
    for child in condition.children:
        if isinstance(child, Group) or child.negated:
            return None
        rows.append(clauses.leaf(child))
    return rows


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries as parallel arrays.

    Attributes:
        subscription: number of its subscription.
        literal: literal that finds each; `NOTHING` for those that are always checked.
        first: the first of its rows.
        count: how many rows.
        row: row that finds each; `NOTHING` if it is always checked, or found by a term's anchor.
        decided: True where that row need not be checked because of the literal.
        rows: rows of all entries.
    """

    subscription: Indices
    literal: Indices
    first: Indices
    count: Indices
    row: Indices
    decided: NDArray[np.bool_]
    rows: Indices

    def take(self, indexes: Indices) -> Entries:
        """Return the entries at these positions."""
        return Entries(
            self.subscription.take(indexes),
            self.literal.take(indexes),
            self.first.take(indexes),
            self.count.take(indexes),
            self.row.take(indexes),
            self.decided.take(indexes),
            self.rows,
        )


def entries_of(drawn: Drawn, costs: Costs) -> tuple[Entries, Prices]:
    """Return the entries of all subscriptions, and the prices of literals."""
    clauses = drawn.clauses
    rows = np.array(drawn.rows, np.int64)
    by_others = [clauses.leaf(leaf) for condition in drawn.others.values() for leaf in leaves(condition)]
    by_plans = [row for plan in drawn.plans.values() for row in plan.all_rows()]
    by_alternatives = [np.array(few, np.int64) for few, _ in drawn.alternatives.values()]
    all_rows = np.concatenate([rows, np.array(by_others + by_plans, np.int64), *by_alternatives])
    clause_uses = np.bincount(all_rows >> 1, minlength=len(clauses.op))
    prices = Prices(clauses, clause_uses, costs)
    forerunner = prices.forerunners()
    rows, counts = _with_forerunners(rows, np.array(drawn.counts, np.int64), forerunner)
    entries = _of_rows(rows, counts, prices)
    for (logic, size), (few, whose) in drawn.alternatives.items():
        own = np.array(few, np.int64).reshape(-1, size)
        entries = _with_alternatives(entries, own, np.array(whose), prices, exactly_one=logic is Logic.XOR)
    if drawn.plans:
        entries = _with_plans(entries, drawn, prices, forerunner)
    if drawn.others:
        entries = _with_others(entries, drawn, prices)
    return entries, prices


def _with_forerunners(rows: Indices, counts: Indices, forerunner: Indices) -> tuple[Indices, Indices]:
    """Return the rows with their forerunners inserted, and the new number of rows per subscription."""
    before = np.where(rows & 1, NOTHING, forerunner.take(rows >> 1))
    indexes = np.flatnonzero(before != NOTHING)
    if len(indexes) == 0:
        return rows, counts
    owner = np.repeat(np.arange(len(counts)), counts)
    more = np.bincount(owner.take(indexes), minlength=len(counts))
    return np.insert(rows, indexes, before.take(indexes) * 2), counts + more


def _of_rows(rows: Indices, counts: Indices, prices: Prices) -> Entries:
    """Return the entries of conjunctions, each found by its cheapest row."""
    ends = np.cumsum(counts)
    subscription = np.flatnonzero(counts)
    first = (ends - counts).take(subscription)
    count = counts.take(subscription)
    if len(subscription) == 0:
        empty = np.zeros(0, np.int64)
        return Entries(empty, empty, empty, empty, empty, np.zeros(0, np.bool_), rows)
    row = cheapest(np.where(rows & 1, inf, prices.clause.take(rows >> 1)), first, count)
    clause = np.where(row == NOTHING, 0, rows.take(row) >> 1)
    literal = np.where(row == NOTHING, NOTHING, prices.access.take(clause))
    decided = (row != NOTHING) & prices.decided.take(clause)
    return with_members(Entries(subscription, literal, first, count, row, decided, rows), prices.unions)


def with_members(entries: Entries, unions: Unions) -> Entries:
    """Return the entries; each one found by a union is replaced by an entry per member of the union."""
    has_row = np.flatnonzero(entries.row != NOTHING)
    of_entry = np.full(len(entries.row), NOTHING, np.int64)
    of_entry[has_row] = unions.of_clause.take(entries.rows.take(entries.row.take(has_row)) >> 1)
    united = np.flatnonzero(of_entry != NOTHING)
    if len(united) == 0:
        return entries
    which, literal, inside = unions.members(of_entry.take(united))
    written = replace(entries.take(united.take(which)), literal=literal, decided=inside)
    return joined(entries.take(np.flatnonzero(of_entry == NOTHING)), written)


def joined(first: Entries, second: Entries) -> Entries:
    """Return both, concatenated, with the rows of *second*, which begin with the rows of *first*."""
    return Entries(
        np.concatenate([first.subscription, second.subscription]),
        np.concatenate([first.literal, second.literal]),
        np.concatenate([first.first, second.first]),
        np.concatenate([first.count, second.count]),
        np.concatenate([first.row, second.row]),
        np.concatenate([first.decided, second.decided]),
        second.rows,
    )


def _with_alternatives(
    entries: Entries, rows: Indices, whose: Indices, prices: Prices, *, exactly_one: bool
) -> Entries:
    """Add an entry per alternative that requires it and, with *exactly_one*, excludes all others."""
    for own in range(rows.shape[1]):
        others = [other for other in range(rows.shape[1]) if exactly_one and other != own]
        checked = np.column_stack([rows[:, own], rows[:, others] + 1])
        first = len(entries.rows) + np.arange(len(whose)) * checked.shape[1]
        clause = rows[:, own] >> 1
        more = Entries(
            whose,
            prices.access.take(clause),
            first,
            np.full(len(whose), checked.shape[1]),
            first,
            prices.decided.take(clause),
            np.concatenate([entries.rows, checked.ravel()]),
        )
        entries = joined(entries, with_members(more, prices.unions))
    return entries


def _with_plans(plain: Entries, drawn: Drawn, prices: Prices, forerunner: Indices) -> Entries:
    """Return *plain* with the entries of conditions with alternatives, each found by one of its terms or several."""
    clauses = drawn.clauses
    costs = prices.clause.tolist()
    spares = {clause: int(forerunner[clause]) for clause in np.flatnonzero(forerunner != NOTHING).tolist()}
    found: list[tuple[int, int, int, int]] = []
    rows: list[int] = []
    begun = len(plain.rows)
    for subscription, plan in drawn.plans.items():
        plan.choose(costs, spares)
        for access, own in plan.terms(clauses):
            first = begun + len(rows)
            found.append((subscription, first, len(own), NOTHING if access == NOTHING else first + access))
            rows += own
    prices.extended()
    subscription_of, firsts, length, row = np.array(found, np.int64).reshape(-1, 4).T
    all_rows = np.concatenate([plain.rows, np.array(rows, np.int64)])
    clause = np.where(row == NOTHING, 0, all_rows.take(np.maximum(row, 0)) >> 1)
    literal = np.where(row == NOTHING, NOTHING, prices.access.take(clause))
    decided = (row != NOTHING) & prices.decided.take(clause)
    more = Entries(subscription_of, literal, firsts, length, row, decided, all_rows)
    return joined(plain, with_members(more, prices.unions))


def _with_others(plain: Entries, drawn: Drawn, prices: Prices) -> Entries:
    """Return *plain* with the entries of conditions that are converted to disjoint terms first."""
    clauses, literals = drawn.clauses, drawn.clauses.literals
    alternatives: list[tuple[int, int, int, int]] = []
    rows: list[int] = []
    begun = len(plain.rows)
    for subscription, condition in drawn.others.items():
        for term in terms_of(condition, prices.of_anchor, several=True):
            own = [clauses.leaf(leaf) for leaf in term.checks]
            if term.rest is not None:
                own += _rows_of_rest(term.rest, clauses)
            literal = NOTHING if term.access == ALWAYS else literals.add_anchor(term.access)
            alternatives.append((subscription, literal, begun + len(rows), len(own)))
            rows += own
    prices.extended()
    owner, literal_of, firsts, length = np.array(alternatives, np.int64).reshape(-1, 4).T
    all_rows = np.concatenate([plain.rows, np.array(rows, np.int64)])
    row, decided = np.full(len(owner), NOTHING), np.zeros(len(owner), np.bool_)
    return joined(plain, Entries(owner, literal_of, firsts, length, row, decided, all_rows))


def _rows_of_rest(rest: Condition, clauses: Clauses) -> list[int]:
    rows = clauses.rows(rest)
    if rows is not None:
        return rows
    if isinstance(rest, Group) and rest.logic is Logic.AND and not rest.negated:
        return [clauses.tree(part) for part in rest.children]
    return [clauses.tree(rest)]


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
