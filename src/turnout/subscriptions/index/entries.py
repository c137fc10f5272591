"""Subscriptions → entries: each a literal to be found by, and rows of clauses that have to be true besides.

Most conditions are conjunctions, and their rarest literal is chosen for all of them at once. The others are put in
disjoint terms first (`turnout.conditions.terms`), one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.anchor import ALWAYS, Anchor
from turnout.conditions.model import Condition, Group, Logic, leaves
from turnout.conditions.terms import terms_of
from turnout.subscriptions.index.arrays import EQUAL, HOLDS, MANY
from turnout.subscriptions.index.buckets import Places, expanded
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.costs import Costs

__all__ = ["NOTHING", "Drawn", "Entries", "Prices", "drawn", "entries_of"]

NOTHING = -1
"""In place of a literal or of a row: there is none."""


_FEW = 8
"""With no more alternatives than this, each one is checked against all the others."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Conditions as rows of clauses.

    Attributes:
        clauses: what the rows speak of.
        rows: clauses, times two, one more if negated; of all subscriptions, one after another.
        counts: how many rows each subscription has; none for those in *others*.
        others: conditions that are more than rows, by subscription.
    """

    clauses: Clauses
    rows: list[int]
    counts: list[int]
    others: dict[int, Condition]


def drawn(conditions: Iterable[Condition], clauses: Clauses) -> Drawn:
    """The conditions as rows, as far as they can be."""
    rows: list[int] = []
    counts: list[int] = []
    others: dict[int, Condition] = {}
    rows_of = clauses.rows
    for number, condition in enumerate(conditions):
        own = rows_of(condition)
        if own is None:
            others[number] = condition
            counts.append(0)
        else:
            rows += own
            counts.append(len(own))
    return Drawn(clauses, rows, counts, others)


class Prices:
    """The cost of each literal, and of each clause that something can be found by."""

    def __init__(self, clauses: Clauses, asked: NDArray[np.int64], costs: Costs) -> None:
        self._clauses = clauses
        self._costs = costs
        self.asked = self._asked(asked)
        self.literal = self._of_literals()
        op, b = np.array(clauses.op, np.int32), np.array(clauses.b, np.int64)
        self.direct = (op == EQUAL) | (op == MANY)
        self.found_by = np.where(self.direct, b, NOTHING)
        self.clause = np.full(len(op), inf)
        if len(self.literal):
            self.clause[self.direct] = self.literal.take(b[self.direct])
        # What a clause checks, and what it is found by, differ where a text was cut or has several parts.
        self.told = self.direct.copy()
        for clause, literals in clauses.choices.items():
            best = min(literals, key=self.literal.__getitem__, default=NOTHING)
            self.found_by[clause] = best
            self.clause[clause] = inf if best == NOTHING else self.literal[best]
            self.told[clause] = bool(self.direct[clause]) and best == clauses.b[clause]
        self._set_of = np.full(len(op), NOTHING, np.int64)
        for clause, literals in clauses.members.items():
            self.clause[clause] = sum(self.literal[literal] for literal in literals)
            self.told[clause] = True
            self._set_of[clause] = clauses.b[clause]
        self._set_at = np.cumsum([0, *map(len, clauses.sets)])
        self._set_literals = np.array([*chain.from_iterable(clauses.sets)], np.int64)

    def _asked(self, asked: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each literal is asked for, given how often each clause is."""
        clauses = self._clauses
        wanted = np.zeros(len(clauses.literals.text), np.int64)
        op = np.array(clauses.op, np.int32)
        direct = np.flatnonzero((op == EQUAL) | (op == MANY))
        np.add.at(wanted, np.array(clauses.b, np.int64)[direct], asked[direct])
        for clause, several in chain(clauses.choices.items(), clauses.members.items()):
            for literal in several:
                if not (op[clause] in (EQUAL, MANY) and literal == clauses.b[clause]):
                    wanted[literal] += asked[clause]
        return wanted

    def _of_literals(self) -> NDArray[np.float64]:
        wanted, literals = self.asked, self._clauses.literals
        cost = np.empty(len(wanted), np.float64)
        of_fact = np.array(literals.fact, np.int64)
        order = np.argsort(of_fact, kind="stable")
        edges = np.searchsorted(of_fact[order], np.arange(len(literals.facts) + 1))
        for number, fact in enumerate(literals.facts):
            # In the order in which they came, as those of one fact stand in its dict.
            mine = order[edges[number] : edges[number + 1]]
            if len(mine):
                cost[mine] = self._costs.of(fact, list(literals.by_fact[number]), wanted[mine])
        return cost

    def members_of(self, clauses: Places) -> Places:
        """The set that each clause is, or `NOTHING`."""
        return self._set_of.take(clauses)

    def written_out(self, sets: Places) -> tuple[Places, Places]:
        """For each member of each set: which of the sets, and the literal."""
        first = self._set_at.take(sets)
        which, places = expanded(first, self._set_at.take(sets + 1) - first)
        return which, self._set_literals.take(places)

    def of_anchor(self, anchor: Anchor) -> float:
        """The cost of an anchor."""
        fact = (anchor.key, anchor.kind)
        number = self._clauses.literals.facts.get(fact)
        literal = None if number is None else self._clauses.literals.by_fact[number].get(anchor.text)
        if literal is not None and literal < len(self.literal):
            return float(self.literal[literal])
        return float(self._costs.of(fact, [anchor.text], np.ones(1, np.int64))[0])

    def forerunners(self) -> Places:
        """For each clause that has to be carried out, one that spares that mostly: a literal that it needs.

        It is found by that literal then, or checks it first. `NOTHING` for the other clauses.
        """
        clauses, literals = self._clauses, self._clauses.literals
        found: dict[int, int] = {}
        for clause in clauses.choices:
            best = int(self.found_by[clause])
            if clauses.op[clause] == HOLDS and best != NOTHING and literals.kind(literals.fact[best]).op != "has":
                found[clause] = clauses.literal(best)
        self.extended()
        forerunner = np.full(len(self.clause), NOTHING, np.int64)
        forerunner[list(found)] = list(found.values())
        self.clause[list(found)] = inf
        return forerunner

    def extended(self) -> None:
        """Take in literals and clauses that came after the prices were made."""
        literals, clauses = self._clauses.literals, self._clauses
        facts = list(literals.facts)
        more = [
            self.of_anchor(Anchor(*facts[literals.fact[number]], literals.text[number]))
            for number in range(len(self.literal), len(literals.text))
        ]
        self.literal = np.concatenate([self.literal, more])
        self.asked = np.concatenate([self.asked, np.ones(len(more), np.int64)])
        known = len(self.clause)
        new = len(clauses.op) - known
        op, b = np.array(clauses.op[known:], np.int32), np.array(clauses.b[known:], np.int64)
        direct = (op == EQUAL) | (op == MANY)
        cost = np.full(new, inf)
        cost[direct] = self.literal.take(b[direct])
        self.clause = np.concatenate([self.clause, cost])
        self.found_by = np.concatenate([self.found_by, np.where(direct, b, NOTHING)])
        self.told = np.concatenate([self.told, direct])
        self._set_of = np.concatenate([self._set_of, np.full(new, NOTHING, np.int64)])


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries as parallel arrays.

    Attributes:
        subscription: whose.
        literal: what each is found by; `NOTHING` for those that are looked at always.
        first: the first of its rows.
        count: how many rows.
        skip: the row that need not be checked because of the literal; `NOTHING` if all have to be.
        rows: of all entries.
    """

    subscription: Places
    literal: Places
    first: Places
    count: Places
    skip: Places
    rows: Places

    def take(self, places: Places) -> Entries:
        """Some of them."""
        return Entries(
            self.subscription.take(places),
            self.literal.take(places),
            self.first.take(places),
            self.count.take(places),
            self.skip.take(places),
            self.rows,
        )


def entries_of(given: Drawn, costs: Costs) -> tuple[Entries, Prices]:
    """The entries of all subscriptions, and what the literals cost."""
    clauses = given.clauses
    asked_by_others = [clauses.leaf(leaf) for one in given.others.values() for leaf in leaves(one)]
    rows = np.array(given.rows, np.int64)
    asked = np.bincount(np.concatenate([rows, np.array(asked_by_others, np.int64)]) >> 1, minlength=len(clauses.op))
    prices = Prices(clauses, asked, costs)
    rows, counts = _with_forerunners(rows, np.array(given.counts, np.int64), prices.forerunners())
    plain = _of_rows(rows, counts, prices)
    return (_with_others(plain, given, prices) if given.others else plain), prices


def _with_forerunners(rows: Places, counts: Places, forerunner: Places) -> tuple[Places, Places]:
    """The rows with their forerunners among them, and how many rows each subscription has then."""
    before = np.where(rows & 1, NOTHING, forerunner.take(rows >> 1))
    places = np.flatnonzero(before != NOTHING)
    if len(places) == 0:
        return rows, counts
    owner = np.repeat(np.arange(len(counts)), counts)
    more = np.bincount(owner.take(places), minlength=len(counts))
    return np.insert(rows, places, before.take(places) * 2), counts + more


def _of_rows(rows: Places, counts: Places, prices: Prices) -> Entries:
    """The entries of conjunctions: each is found by its cheapest row."""
    ends = np.cumsum(counts)
    subscription = np.flatnonzero(counts)
    first = (ends - counts).take(subscription)
    count = counts.take(subscription)
    if len(subscription) == 0:
        empty = np.zeros(0, np.int64)
        return Entries(empty, empty, empty, empty, empty, rows)
    row = cheapest(np.where(rows & 1, inf, prices.clause.take(rows >> 1)), first, count)
    clause = np.where(row == NOTHING, 0, rows.take(row) >> 1)
    literal = np.where(row == NOTHING, NOTHING, prices.found_by.take(clause))
    skip = np.where((row != NOTHING) & prices.told.take(clause), row, NOTHING)
    entries = Entries(subscription, literal, first, count, skip, rows)
    sets = prices.members_of(clause)
    return with_members(entries, np.where(row == NOTHING, NOTHING, sets), prices)


def cheapest(costs: NDArray[np.float64], first: Places, count: Places) -> Places:
    """The place of the least cost in each range; `NOTHING` where none is finite. No range is empty."""
    owner, places = expanded(first, count)
    of_places = costs.take(places)
    begins = np.cumsum(count) - count
    least = np.minimum.reduceat(of_places, begins)
    hits = np.flatnonzero((of_places == least.take(owner)) & (of_places < inf))
    found = np.full(len(first), NOTHING, np.int64)
    # Backwards, so that the first of several stays.
    found[owner.take(hits[::-1])] = places.take(hits[::-1])
    return found


def with_members(entries: Entries, sets: Places, prices: Prices) -> Entries:
    """The same with an entry for each member of a set in place of those that are found by a set."""
    by_set = np.flatnonzero(sets != NOTHING)
    if len(by_set) == 0:
        return entries
    which, literal = prices.written_out(sets.take(by_set))
    left = np.flatnonzero(sets == NOTHING)
    return joined(entries.take(left), _found_by(entries.take(by_set.take(which)), literal))


def _found_by(entries: Entries, literal: Places) -> Entries:
    return Entries(entries.subscription, literal, entries.first, entries.count, entries.skip, entries.rows)


def joined(first: Entries, second: Entries) -> Entries:
    """Both, of the same rows."""
    return Entries(
        np.concatenate([first.subscription, second.subscription]),
        np.concatenate([first.literal, second.literal]),
        np.concatenate([first.first, second.first]),
        np.concatenate([first.count, second.count]),
        np.concatenate([first.skip, second.skip]),
        first.rows,
    )


def _with_others(plain: Entries, given: Drawn, prices: Prices) -> Entries:
    """Beside the plain ones, the entries of conditions that have to be put in terms."""
    clauses, literals = given.clauses, given.clauses.literals
    found: list[tuple[int, int, int, int, int]] = []
    rows: list[int] = []
    begun = len(plain.rows)
    for subscription, condition in given.others.items():
        alternatives = _alternatives(condition, clauses)
        if alternatives is not None:
            for own in alternatives:
                first, clause = begun + len(rows), own[0] >> 1
                skip = first if prices.told[clause] else NOTHING
                found.append((subscription, int(prices.found_by[clause]), first, len(own), skip))
                rows += own
            continue
        for term in terms_of(condition, prices.of_anchor):
            own = [clauses.leaf(leaf) for leaf in term.checks]
            if term.rest is not None:
                own += _rows_of_rest(term.rest, clauses)
            literal = NOTHING if term.access == ALWAYS else literals.add_anchor(term.access)
            found.append((subscription, literal, begun + len(rows), len(own), NOTHING))
            rows += own
    prices.extended()
    owner, found_by, firsts, length, skips = np.array(found, np.int64).reshape(-1, 5).T
    more = Entries(owner, found_by, firsts, length, skips, plain.rows)
    both = joined(plain, more)
    all_rows = np.concatenate([plain.rows, np.array(rows, np.int64)])
    return Entries(both.subscription, both.literal, both.first, both.count, both.skip, all_rows)


def _alternatives(condition: Condition, clauses: Clauses) -> list[list[int]] | None:
    """The rows of each term of a few alternatives, the one that it is found by first; None for other conditions.

    As `terms_of` would have it, without what it takes to look into groups.
    """
    if not isinstance(condition, Group) or condition.negated or condition.logic is Logic.AND:
        return None
    if len(condition.children) > _FEW or any(isinstance(one, Group) or one.negated for one in condition.children):
        return None
    rows = [clauses.leaf(one) for one in leaves(condition)]
    exactly_one = condition.logic is Logic.XOR
    return [
        [row, *(other + 1 for place, other in enumerate(rows) if place < own or (exactly_one and place > own))]
        for own, row in enumerate(rows)
    ]


def _rows_of_rest(rest: Condition, clauses: Clauses) -> list[int]:
    rows = clauses.rows(rest)
    if rows is not None:
        return rows
    if isinstance(rest, Group) and rest.logic is Logic.AND and not rest.negated:
        return [clauses.tree(part) for part in rest.children]
    return [clauses.tree(rest)]
