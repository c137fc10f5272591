"""Cost model of literals, and the choice of the literal by which each clause is indexed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.anchor import Anchor, Kind, parsed_number, weight
from turnout.conditions.pattern import fold
from turnout.subscriptions.index.arrays import EQUAL, HOLDS, JUST_ONE, MANY, Indices, expanded
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.facts import (
    BEGIN,
    CELL,
    END,
    PART,
    SPAN,
    Fact,
    Intervals,
    Nodes,
    Numbers,
    cells_of,
    cover_of,
    encoded_all,
    marked,
    nodes_of,
    probes_of,
    size_of,
)

_LEAST_INTERVALS = 1024
"""Fewer intervals of a key say little of how its values are spread: a text is preferred to half of them."""

_PART_WEIGHTS = np.array([64.0, 64.0, 16.0, 4.0, 1.5])
"""Weight of a part by its length, the last one for longer parts."""


_RUN = 3
"""Bytes of a part by which sample values are found that may have it."""


class Background(Protocol):
    """Frequency of a text among the subscriptions of other segments."""

    def use_counts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of uses of each text of the fact."""
        ...


class Costs:
    """Cost of literals, from the number of subscriptions and of sample messages that have them.

    Args:
        sample: metadata of typical messages.
        background: other uses of literals, if only a few subscriptions are counted.
    """

    def __init__(self, sample: Collection[Mapping[str, str]] = (), background: Background | None = None) -> None:
        self._sample = tuple(sample)
        self._frequencies: dict[Fact, Counter[str]] = {}
        self._background = background

    def with_background(self, background: Background) -> Costs:
        """Return these costs with another background, for a few additional subscriptions."""
        other = Costs((), background)
        other._sample, other._frequencies = self._sample, self._frequencies
        return other

    def of(self, fact: Fact, texts: Sequence[str], use_counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the cost of each text of a fact; *use_counts* is the number of subscriptions that use it."""
        if self._background is not None:
            use_counts = use_counts + self._background.use_counts(fact, texts)
        is_part = fact[1].op == PART.op
        weights = _weights_of_parts(texts) if is_part else weight(Anchor(fact[0], fact[1], ""))
        guess = np.maximum(use_counts, 1) * weights
        if not self._sample:
            return guess
        counts = self._counts_of_parts(fact, texts) if is_part else self._counts(fact, texts)
        # The guess only decides between texts that the sample shows alike.
        return np.asarray(counts + guess / (guess + 1), np.float64)

    def _counts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.float64]:
        return np.fromiter(map(self.frequencies(fact).get, texts, repeat(0)), np.float64, len(texts))

    def _counts_of_parts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.float64]:
        key, kind = fact
        values = [message[key] for message in self._sample if key in message]
        raws = [BEGIN + raw + END for raw in encoded_all(map(fold, values) if kind.fold else values)]
        with_run: defaultdict[bytes, set[int]] = defaultdict(set)
        for number, raw in enumerate(raws):
            for offset in range(len(raw) - _RUN + 1):
                with_run[raw[offset : offset + _RUN]].add(number)
        counts = []
        for text in map(marked, encoded_all(texts)):
            runs = [text[offset : offset + _RUN] for offset in range(len(text) - _RUN + 1)]
            likely = min((with_run.get(run, ()) for run in runs), key=len, default=range(len(raws)))
            counts.append(sum([text in raws[number] for number in likely]))
        return np.array(counts, np.float64)

    def of_nodes(self, key: str, cuts: Numbers, nodes: Indices, use_count: int) -> NDArray[np.float64]:
        """Return the cost of nodes over the cells of a key, which *use_count* intervals use."""
        depth = np.frexp(nodes)[1] - 1
        guess: NDArray[np.float64] = np.ldexp(float(max(use_count, _LEAST_INTERVALS)), -depth)
        if not self._sample:
            return guess
        found = cells_of(cuts, self._numbers(key)) + size_of(cuts)
        counts = np.bincount(found, minlength=2 * size_of(cuts))
        for node in range(size_of(cuts) - 1, 0, -1):
            counts[node] = counts[2 * node] + counts[2 * node + 1]
        return np.asarray(counts.take(nodes) + guess / (guess + 1), np.float64)

    def _numbers(self, key: str) -> Numbers:
        read = (parsed_number(message[key]) for message in self._sample if key in message)
        return np.array([number for number in read if number is not None], np.float64)

    def frequencies(self, fact: Fact) -> Counter[str]:
        """Return the number of sample messages with each text."""
        if fact not in self._frequencies:
            key, probes = fact[0], probes_of(fact[1])
            values = (message[key] for message in self._sample if key in message)
            self._frequencies[fact] = Counter(text for value in values for text in probes(value))
        return self._frequencies[fact]


def _weights_of_parts(texts: Sequence[str]) -> NDArray[np.float64]:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) - 1
    return _PART_WEIGHTS.take(lengths, mode="clip")


NOTHING = -1
"""In place of a literal or of a row: there is none."""

WIDEST = 8
"""A set with more members than this is no second thing to be found by: each member is an entry of its own."""

_NODES_OF_SECOND = 1
"""Nodes of an interval that an entry is found by after another literal."""

_NODES_OF_TWO = 4
"""Nodes of each of two intervals that an entry is found by: more of them have fewer candidates, and more entries."""


class _Several:
    """The literals of clauses that have several, one after another.

    Attributes:
        clause: numbers of the clauses.
    """

    def __init__(self, literals: Mapping[int, Sequence[int]]) -> None:
        self.clause: Indices = np.fromiter(literals, np.int64, len(literals))
        self._count: Indices = np.fromiter(map(len, literals.values()), np.int64, len(literals))
        self._literals: Indices = np.fromiter(chain.from_iterable(literals.values()), np.int64)

    def pairs(self) -> tuple[Indices, Indices]:
        """Clause and literal, for each literal."""
        return np.repeat(self.clause, self._count), self._literals

    def cheapest(self, costs: NDArray[np.float64]) -> Indices:
        """Return the literal of least cost of each clause; `NOTHING` for clauses without literals."""
        some = np.flatnonzero(self._count)
        best = np.full(len(self.clause), NOTHING, np.int64)
        if len(some):
            first = (np.cumsum(self._count) - self._count).take(some)
            best[some] = self._literals.take(cheapest(costs.take(self._literals), first, self._count.take(some)))
        return best


class Unions:
    """Clauses that are true where a message has any of several literals.

    Attributes:
        of_clause: number of each clause's union, `NOTHING` for other clauses.
        literal: the literals of all unions.
    """

    def __init__(self, clause: Indices, literal: Indices, inside: NDArray[np.bool_], some: Indices, count: int) -> None:
        """Sort the pairs of clause and literal by clause.

        Args:
            clause: clause of each pair.
            literal: literal of each pair.
            inside: True where a message that has the literal need not be verified.
            some: the clauses, also those without literals.
            count: count of all clauses.
        """
        order = np.argsort(clause, kind="stable")
        self.literal, self._inside = literal.take(order), inside.take(order)
        some = np.sort(some)
        self._at = np.append(np.searchsorted(clause.take(order), some), len(order))
        self.of_clause = np.full(count, NOTHING, np.int64)
        self.of_clause[some] = np.arange(len(some))

    def members(self, unions: Indices) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Return for each member of each union: which of the unions, the literal, and if it need not be verified."""
        first = self._at.take(unions)
        which, indexes = expanded(first, self._at.take(unions + 1) - first)
        return which, self.literal.take(indexes), self._inside.take(indexes)

    def sums(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the costs of each union's literals."""
        sums = np.append(0.0, np.cumsum(costs.take(self.literal)))
        return np.asarray(sums.take(self._at[1:]) - sums.take(self._at[:-1]), np.float64)

    def extended(self, count: int) -> None:
        """Take clauses in that are no unions, so that there are *count* in all."""
        more = np.full(count - len(self.of_clause), NOTHING, np.int64)
        self.of_clause = np.concatenate([self.of_clause, more])


def _unions(
    clauses: Clauses,
    sets: Mapping[int, Sequence[int]],
    intervals: Mapping[int, Intervals],
    nodes_of_intervals: Callable[[Numbers, Numbers, Numbers], Nodes],
    kind: Kind,
) -> Unions:
    """Return the unions of sets, and of the nodes of intervals, which are literals of facts of this kind."""
    members = _Several(sets)
    clause, literal = members.pairs()
    # Of alternatives that exclude each other for one value, several values may have two.
    inside = np.array(clauses.op, np.int64).take(clause) != JUST_ONE
    parts = [(clause, literal, inside)]
    some = [members.clause]
    for key, (own, low, high, cuts) in intervals.items():
        nodes = nodes_of_intervals(cuts, low, high)
        parts.append((own.take(nodes.interval), clauses.literals.add_nodes(key, kind, nodes.node), nodes.inside))
        some.append(own)
    clause, literal, inside = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Unions(clause, literal, inside, np.concatenate(some), len(clauses.op))


class Prices:
    """The cost of each literal, and of each clause that something can be found by.

    Attributes:
        uses: number of uses of each literal.
        literal: cost of each literal.
        clause: cost of each clause, infinite if nothing can be found by it.
        access: the literal that is the cheapest for each clause; `NOTHING` for unions and where there is none.
        decided: True where a message that has the literal need not be verified.
        intervals: intervals of each key that has some.
        unions: clauses that are found by several literals.
        seconds: likewise, for entries that are found by a literal and one of these.
        covers: intervals, for entries that are found by two of them.
    """

    def __init__(self, clauses: Clauses, clause_uses: NDArray[np.int64], costs: Costs) -> None:
        self._clauses = clauses
        self._costs = costs
        self._choices = _Several(clauses.choices)
        self.intervals = clauses.intervals_by_key()
        few = {clause: own for clause, own in clauses.members.items() if len(own) <= WIDEST}
        self.unions = _unions(clauses, clauses.members, self.intervals, nodes_of, CELL)
        self.seconds = _unions(clauses, few, self.intervals, partial(cover_of, most=_NODES_OF_SECOND), SPAN)
        self.covers = _unions(clauses, {}, self.intervals, partial(cover_of, most=_NODES_OF_TWO), SPAN)
        self.uses = self._uses_of_literals(clause_uses)
        self.literal = self._of_literals()
        op, b = np.array(clauses.op, np.int32), np.array(clauses.b, np.int64)
        direct = (op == EQUAL) | (op == MANY)
        self.access = np.where(direct, b, NOTHING)
        self.clause = np.full(len(op), inf)
        if len(self.literal):
            self.clause[direct] = self.literal.take(b[direct])
        # A clause's check differs from its literals if a text was cut or has several parts.
        self.decided = direct
        choosing, best = self._choices.clause, self._choices.cheapest(self.literal)
        self.access[choosing] = best
        # `NOTHING` takes the last one.
        self.clause[choosing] = np.append(self.literal, inf).take(best, mode="wrap")
        self.decided[choosing] &= best == b.take(choosing)
        united = np.flatnonzero(self.unions.of_clause != NOTHING)
        self.clause[united] = self.unions.sums(self.literal).take(self.unions.of_clause.take(united))
        self.decided[united] = True

    def _uses_of_literals(self, clause_uses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of uses of each literal, given the number of uses of each clause."""
        clauses = self._clauses
        uses = np.zeros(len(clauses.literals.text), np.int64)
        op = np.array(clauses.op, np.int32)
        b = np.array(clauses.b, np.int64)
        direct = np.flatnonzero((op == EQUAL) | (op == MANY))
        np.add.at(uses, b[direct], clause_uses[direct])
        clause, literal = self._choices.pairs()
        counted = np.isin(op.take(clause), (EQUAL, MANY)) & (literal == b.take(clause))
        np.add.at(uses, literal[~counted], clause_uses.take(clause[~counted]))
        united = np.flatnonzero(self.unions.of_clause != NOTHING)
        which, literal, _ = self.unions.members(self.unions.of_clause.take(united))
        np.add.at(uses, literal, clause_uses.take(united.take(which)))
        return uses

    def _of_literals(self) -> NDArray[np.float64]:
        uses, literals, costs = self.uses, self._clauses.literals, self._costs
        cost = np.empty(len(uses), np.float64)
        of_fact = np.array(literals.fact, np.int64)
        order = np.argsort(of_fact, kind="stable")
        edges = np.searchsorted(of_fact[order], np.arange(len(literals.facts) + 1))
        for number, fact in enumerate(literals.facts):
            # In order of insertion, as those of one fact are in its dict.
            mine = order[edges[number] : edges[number + 1]]
            texts = list(literals.by_fact[number])
            if fact[1] in (CELL, SPAN):
                of_key = self.intervals[literals.keys[fact[0]]]
                cost[mine] = costs.of_nodes(fact[0], of_key.cuts, np.array(texts, np.int64), len(of_key.clause))
            elif len(mine):
                cost[mine] = costs.of(fact, texts, uses[mine])
        return cost

    def of_anchor(self, anchor: Anchor) -> float:
        """The cost of an anchor."""
        fact = (anchor.key, anchor.kind)
        number = self._clauses.literals.facts.get(fact)
        literal = None if number is None else self._clauses.literals.by_fact[number].get(anchor.text)
        if literal is not None and literal < len(self.literal):
            return float(self.literal[literal])
        return float(self._costs.of(fact, [anchor.text], np.ones(1, np.int64))[0])

    def forerunners(self) -> Indices:
        """For each clause that has to be carried out, one that spares that mostly: a literal, or one of some literals.

        It is found by that then, or checks it first. `NOTHING` for the other clauses.
        """
        clauses, literals = self._clauses, self._clauses.literals
        access = self.access.take(self._choices.clause)
        spares = np.array([literals.kind(fact).op != "has" for fact in range(len(literals.facts))], np.bool_)
        holds = np.array(clauses.op, np.int32).take(self._choices.clause) == HOLDS
        some = np.flatnonzero(holds & (access != NOTHING))
        some = some[spares.take(np.array(literals.fact, np.int64).take(access.take(some)))]
        clause = self._choices.clause.take(some)
        first = np.array([clauses.literal(literal) for literal in access.take(some).tolist()], np.int64)
        self.extended()
        forerunner = np.full(len(self.clause), NOTHING, np.int64)
        forerunner[clause] = first
        for one, required in clauses.required.items():
            if self.clause[required] < self.clause[one]:
                forerunner[one] = required
        self.clause[forerunner != NOTHING] = inf
        return forerunner

    def extended(self) -> None:
        """Add the literals and clauses that were created after the prices."""
        literals, clauses = self._clauses.literals, self._clauses
        facts = list(literals.facts)
        more = [
            # Late parts are members of sets that are only verified.
            inf
            if facts[literals.fact[number]][1].op == PART.op
            else self.of_anchor(Anchor(*facts[literals.fact[number]], literals.text[number]))
            for number in range(len(self.literal), len(literals.text))
        ]
        self.literal = np.concatenate([self.literal, more])
        self.uses = np.concatenate([self.uses, np.ones(len(more), np.int64)])
        known = len(self.clause)
        new = len(clauses.op) - known
        op, b = np.array(clauses.op[known:], np.int32), np.array(clauses.b[known:], np.int64)
        direct = (op == EQUAL) | (op == MANY)
        cost = np.full(new, inf)
        cost[direct] = self.literal.take(b[direct])
        self.clause = np.concatenate([self.clause, cost])
        self.access = np.concatenate([self.access, np.where(direct, b, NOTHING)])
        self.decided = np.concatenate([self.decided, direct])
        self.unions.extended(len(clauses.op))
        self.seconds.extended(len(clauses.op))
        self.covers.extended(len(clauses.op))


def cheapest(costs: NDArray[np.float64], first: Indices, count: Indices) -> Indices:
    """The place of the least cost in each range; `NOTHING` where none is finite. No range is empty."""
    owner, indexes = expanded(first, count)
    of_indices = costs.take(indexes)
    begins = np.cumsum(count) - count
    least = np.minimum.reduceat(of_indices, begins)
    hits = np.flatnonzero((of_indices == least.take(owner)) & (of_indices < inf))
    chosen = np.full(len(first), NOTHING, np.int64)
    # Backwards, so that the first of several wins.
    chosen[owner.take(hits[::-1])] = indexes.take(hits[::-1])
    return chosen
