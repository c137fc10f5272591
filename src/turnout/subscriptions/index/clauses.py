"""Distinct parts of conditions: their checks, and the literals that find a message for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf, nextafter

import numpy as np

from turnout.conditions import Compare, Condition, Group, Kiwi, Leaf, Logic, Operator
from turnout.conditions.anchor import PRESENCE, Anchor, Kind
from turnout.conditions.leaf import Check
from turnout.conditions.leaves.kiwi import shape_of
from turnout.conditions.pattern import Piece, pieces_of
from turnout.conditions.terms import check_of, disjuncts, lookups_of
from turnout.subscriptions.index.arrays import EQUAL, GROUP, HOLDS, JUST_ONE, LIMITS, MANY, ONE_OF, TREE
from turnout.subscriptions.index.facts import (
    PART,
    WHOLE,
    Intervals,
    Literals,
    alternatives_of,
    cuts_of,
    is_many,
    is_text,
    kind_of,
    parts_of,
    text_of,
)
from turnout.subscriptions.index.segment import form_of

Row = int
"""A clause, times two, one more if it is negated."""


_MOST_ENDS, _ENDS_OF_PART = 1_000, 4
"""A key is searched for so many beginnings and ends, and so many for each of its parts; with more they are hashed."""


@dataclass(slots=True)
class Trees:
    """Nodes of all trees, parents before their children."""

    at: list[int] = field(default_factory=lambda: [0])
    op: list[int] = field(default_factory=list)
    a: list[int] = field(default_factory=list)
    b: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)


class Clauses:
    """The clauses of some conditions, by number.

    Attributes:
        literals: literals of the clauses.
        op: operation of each; see `turnout.subscriptions.index.arrays.EQUAL` and the others.
        a: see there.
        b: see there.
        choices: the literals that a message can be found by, for clauses that have others than *b*: any one will do.
        members: the literals of sets, by clause.
        required: a set of which a message has one, by the clause that it is needed for.
        overlapping: True if a message can have several literals that find one subscription.
        intervals: the clauses of numeric intervals, by the numbers of their key and of their limits.
    """

    def __init__(self) -> None:
        self.literals = Literals()
        self.op: list[int] = []
        self.a: list[int] = []
        self.b: list[int] = []
        self.choices: dict[int, tuple[int, ...]] = {}
        self.members: dict[int, tuple[int, ...]] = {}
        self.required: dict[int, int] = {}
        self.sets: list[tuple[int, ...]] = []
        self.limits: list[tuple[float, float]] = []
        self.tests: list[tuple[int, str, str]] = []
        self.trees = Trees()
        self.overlapping = False
        self.intervals: dict[tuple[int, int], int] = {}
        self.plain: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._whole: dict[str, int] = {}
        self._leaves: dict[Leaf, int] = {}
        self._of_literal: dict[int, int] = {}
        self._sets: dict[tuple[int, tuple[int, ...]], int] = {}
        self._limits: dict[tuple[float, float], int] = {}

    def _new(self, op: int, a: int, b: int) -> int:
        self.op.append(op)
        self.a.append(a)
        self.b.append(b)
        return len(self.op) - 1

    def literal(self, literal: int) -> int:
        """The clause that a message has the literal."""
        fact = self.literals.fact[literal]
        clause = self._of_literal.get(literal)
        if clause is None:
            op = MANY if is_many(self.literals.kind(fact)) else EQUAL
            clause = self._of_literal[literal] = self._new(op, fact, literal)
        return clause

    def rows(self, condition: Condition) -> list[Row] | None:
        """The clauses that all have to be true; None for a condition that is more than that."""
        if not isinstance(condition, Group):
            return [self.leaf(condition)]
        if condition.negated or (condition.logic is not Logic.AND and len(condition.children) > 1):
            row = self._one_of(condition)
            return None if row is None else [row]
        rows: list[Row] = []
        limits: dict[str, tuple[float, float]] = {}
        nested = False
        plain = self.plain
        for child in condition.children:
            if type(child) is Kiwi and not child.partial and not child.ignore_case:
                # What most conditions consist of, so without another call.
                clause = plain[child.key].get(child.pattern)
                if clause is None:
                    clause = self._literal(child.key, child.pattern)
                rows.append(clause * 2 + child.negated)
            elif isinstance(child, Group):
                inner = self.rows(child)
                if inner is None:
                    return None
                rows += inner
                nested = True
            elif type(child) is Compare and not child.negated and child.op is not Operator.EQUAL:
                low, high = _LIMITS[child.op](child.number)
                least, most = limits.get(child.key, _UNLIMITED)
                limits[child.key] = max(low, least), min(high, most)
            else:
                rows.append(self.leaf(child))
        for key, own in limits.items():
            if _is_wide(own):
                rows.append(self._interval(self.literals.key_number(key), own) * 2)
            else:
                bounds = [child for child in condition.children if type(child) is Compare and child.key == key]
                rows += [self.leaf(bound) for bound in bounds if not bound.negated and bound.op is not Operator.EQUAL]
        return self.with_joined_limits(rows) if nested and self.intervals else rows

    def row(self, condition: Condition) -> Row | None:
        """The clause of a leaf, or of alternatives that are a set; None for other groups."""
        return self._one_of(condition) if isinstance(condition, Group) else self.leaf(condition)

    def with_joined_limits(self, rows: list[Row]) -> list[Row]:
        """Return the rows of a conjunction with one interval for all bounds of a key.

        What is left of the line has to be wide: of several values, one may be above a bound and another one below.
        """
        limited = [row for row in rows if not row & 1 and self.op[row >> 1] == LIMITS and self._is_bound(row)]
        if len({self.a[row >> 1] for row in limited}) == len(limited):
            return rows
        by_key: dict[int, tuple[float, float]] = {}
        for row in limited:
            low, high = self.limits[self.b[row >> 1]]
            least, most = by_key.get(self.a[row >> 1], _UNLIMITED)
            by_key[self.a[row >> 1]] = max(low, least), min(high, most)
        by_key = {key: limits for key, limits in by_key.items() if _is_wide(limits)}
        joined = {row for row in limited if self.a[row >> 1] in by_key}
        others = [row for row in rows if row not in joined]
        return others + [self._interval(key, limits) * 2 for key, limits in by_key.items()]

    def _is_bound(self, row: Row) -> bool:
        """Return True for an interval that is no single number."""
        low, high = self.limits[self.b[row >> 1]]
        return low < high

    def _interval(self, key: int, limits: tuple[float, float]) -> int:
        """Return the clause that the number of a key is between two limits."""
        number = self._limits.setdefault(limits, len(self.limits))
        if number == len(self.limits):
            self.limits.append(limits)
        clause = self.intervals.get((key, number))
        if clause is None:
            clause = self.intervals[key, number] = self._new(LIMITS, key, number)
        return clause

    def intervals_by_key(self) -> dict[int, Intervals]:
        """Return the intervals of each key that has some."""
        of_key: defaultdict[int, list[int]] = defaultdict(list)
        for (key, _), clause in self.intervals.items():
            of_key[key].append(clause)
        by_key = {}
        for key, own in of_key.items():
            low, high = np.array([self.limits[self.b[clause]] for clause in own], np.float64).T
            by_key[key] = Intervals(np.array(own, np.int64), low, high, cuts_of(low, high))
        return by_key

    def leaf(self, leaf: Leaf) -> Row:
        """The clause of a leaf."""
        if type(leaf) is Kiwi and not leaf.partial and not leaf.ignore_case:
            clause = self.plain[leaf.key].get(leaf.pattern)
            if clause is None:
                clause = self._literal(leaf.key, leaf.pattern)
            return clause * 2 + leaf.negated
        test = replace(leaf, negated=False) if leaf.negated else leaf
        clause = self._leaves.get(test)
        if clause is None:
            clause = self._leaves[test] = self._checked(check_of(test))
        return clause * 2 + leaf.negated

    def _literal(self, key: str, pattern: str) -> int:
        """A new clause for a pattern, which mostly is a text to be equal to."""
        patterns = self.plain[key]
        if "*" in pattern or "?" in pattern or "\\" in pattern:
            pieces = pieces_of(pattern)
            clause = patterns[pattern] = self._checked(Check(key, *shape_of(pieces, pattern)), pieces)
            return clause
        fact = self._whole.get(key)
        if fact is None:
            fact = self._whole[key] = self.literals.fact_number((key, WHOLE))
        clause = patterns[pattern] = len(self.op)
        self.op.append(EQUAL)
        self.a.append(fact)
        self.b.append(self.literals.add(fact, pattern))
        return clause

    def _checked(self, check: Check, glob: tuple[Piece, ...] | None = None) -> int:
        """A new clause for a check that is not negated; *glob* as for `lookups_of`."""
        kind = kind_of(check)
        if kind is not None:
            fact = self.literals.fact_number((check.key, kind))
            literal = self.literals.add(fact, text_of(kind, check))
            clause = self._new(MANY if is_many(kind) else EQUAL, fact, literal)
            if kind.op in "^$":
                # The prefix or the suffix itself is first; its parts add nothing.
                self._choose(clause, check.key, lookups_of(check)[:1])
            return clause
        if check.op[0] == "n" and (limits := _LIMITS.get(check.op[1:])) is not None:
            return self._interval(self.literals.key_number(check.key), limits(check.number))
        assert not check.number, f"{check.op}: of no comparison, and only their number is kept"
        self.tests.append((form_of(check), check.text, check.last))
        clause = self._new(HOLDS, self.literals.key_number(check.key), len(self.tests) - 1)
        self._choose(clause, check.key, parts_of(check, glob) or lookups_of(check, glob))
        kind, texts = alternatives_of(check)
        if texts:
            fact = self.literals.fact_number((check.key, kind))
            members = tuple(self.literal(self.literals.add(fact, text)) for text in texts)
            required = self._set(members)
            assert required is not None, "they are of one fact"
            self.required[clause] = required
        if check.other is not None:
            # Both keys have to be there: the rarer one finds a message.
            other = self.literals.add_anchor(Anchor(check.other, PRESENCE, ""))
            self.choices[clause] = (*self.choices.get(clause, (self.b[clause],)), other)
        return clause

    def _choose(self, clause: int, key: str, lookups: Iterable[tuple[Kind, Iterable[str]]]) -> None:
        literals = self.literals
        numbers: list[int] = []
        for kind, texts in lookups:
            fact = literals.fact_number((key, kind))
            # Most are known: without another call for those.
            known = list(map(literals.by_fact[fact].get, texts))
            numbers += [literals.add(fact, text) for text in texts] if None in known else known  # type: ignore[arg-type]
        if numbers != [self.b[clause]]:
            self.choices[clause] = tuple(numbers)

    def _one_of(self, group: Group) -> Row | None:
        """The clause of alternatives that are literals of one fact; with XOR they exclude each other. Else None."""
        if group.logic is Logic.AND:
            return None
        usable = (EQUAL,) if group.logic is Logic.XOR else (EQUAL, MANY)
        clauses: list[int] = []
        for child in group.children:
            if isinstance(child, Group) or child.negated:
                return None
            clause = self.leaf(child) >> 1
            if self.op[clause] not in usable:
                return None
            clauses.append(clause)
        members = tuple(dict.fromkeys(clauses))
        if group.logic is Logic.XOR and len(members) < len(clauses):
            return None
        clause_ = self._set(members, group.logic)
        return None if clause_ is None else clause_ * 2 + group.negated

    def _set(self, members: tuple[int, ...], logic: Logic = Logic.OR) -> int | None:
        """Return the clause that any of these is true, as literals of one fact; None if there is no such fact."""
        if len(members) == 1:
            return members[0]
        op = JUST_ONE if logic is Logic.XOR else ONE_OF
        clause = self._sets.get((op, members))
        if clause is None:
            literals = self._of_one_fact([self.b[member] for member in members], logic)
            if literals is None:
                return None
            fact = self.literals.fact[literals[0]]
            clause = self._sets[op, members] = self._new(op, fact, len(self.sets))
            self.members[clause] = literals
            self.sets.append(literals)
            self.overlapping |= is_many(self.literals.kind(fact))
        return clause

    def _of_one_fact(self, literals: list[int], logic: Logic) -> tuple[int, ...] | None:
        """Return alternatives as literals of one fact: of theirs, or of parts; None if there is no such fact."""
        facts = [self.literals.of_number(self.literals.fact[literal]) for literal in literals]
        if len(set(facts)) == 1:
            return tuple(literals)
        kinds = {(key, kind.fold) for key, kind in facts}
        if logic is Logic.XOR or len(kinds) > 1 or not all(is_text(kind) for _, kind in facts):
            return None
        return tuple(dict.fromkeys(map(self._part, literals)))

    def _part(self, literal: int) -> int:
        """Return the part that is needed where a text, a beginning or an end is."""
        key, kind = self.literals.of_number(self.literals.fact[literal])
        if kind.op == PART.op:
            return literal
        fact = self.literals.fact_number((key, PART._replace(fold=kind.fold)))
        return self.literals.add(fact, kind.op + self.literals.text[literal])

    def unite_parts(self) -> None:
        """Make parts of the beginnings and ends of keys that are searched for parts anyway, unless these are few."""
        facts, texts = self.literals.facts, self.literals.by_fact
        ends: defaultdict[int, list[int]] = defaultdict(list)
        for (key, kind), number in facts.items():
            part = facts.get((key, PART._replace(fold=kind.fold)))
            if part is not None and kind.op in ("^", "$") and is_text(kind):
                ends[part] += texts[number].values()
        moved = {
            literal: self._part(literal)
            for part, literals in ends.items()
            if len(literals) <= _MOST_ENDS + _ENDS_OF_PART * len(texts[part])
            for literal in literals
        }
        if not moved:
            return
        for clause, (op, literal) in enumerate(zip(self.op, self.b, strict=True)):
            if op == EQUAL and literal in moved:
                self.op[clause], self.b[clause] = MANY, moved[literal]
                self.a[clause] = self.literals.fact[moved[literal]]
                self.choices.pop(clause, None)
        for clause, own in self.choices.items():
            self.choices[clause] = tuple(moved.get(literal, literal) for literal in own)
        for clause, own in self.members.items():
            if own[0] in moved:
                self.members[clause] = self.sets[self.b[clause]] = tuple(moved[literal] for literal in own)
                self.a[clause] = self.literals.fact[moved[own[0]]]
                self.overlapping = True

    def tree(self, condition: Condition) -> Row:
        """A clause for any condition; nothing can be found by it."""
        rows = self.rows(condition) if isinstance(condition, Group) else [self.leaf(condition)]
        if rows is not None and len(rows) == 1:
            return rows[0]
        self._nodes(condition, -1, 0)
        self.trees.at.append(len(self.trees.op))
        clause = self._new(TREE, 0, len(self.trees.at) - 2)
        self.choices[clause] = ()
        return clause * 2

    def _nodes(self, part: Condition, parent: int, depth: int) -> None:
        trees = self.trees
        number = len(trees.op)
        trees.parent.append(number - parent if parent >= 0 else 0)
        trees.depth.append(depth)
        row = self.row(part)
        if row is not None:
            self._add_node(row)
            return
        assert isinstance(part, Group)
        rows, children = self._gathered(part) if part.logic is Logic.OR else ([], list(part.children))
        count = len(rows) + len(children)
        trees.op.append(GROUP * 2 + part.negated)
        trees.a.append(count if part.logic is Logic.AND else 1)
        trees.b.append(1 if part.logic is Logic.XOR else count)
        for own in rows:
            trees.parent.append(len(trees.op) - number)
            trees.depth.append(depth + 1)
            self._add_node(own)
        for child in children:
            self._nodes(child, number, depth + 1)

    def _add_node(self, row: Row) -> None:
        clause = row >> 1
        self.trees.op.append(self.op[clause] * 2 + (row & 1))
        self.trees.a.append(self.a[clause])
        self.trees.b.append(self.b[clause])

    def _gathered(self, group: Group) -> tuple[list[Row], list[Condition]]:
        """Return alternatives as sets of literals of one fact, and those that are no literals."""
        by_fact: defaultdict[tuple[str, Kind], dict[int, None]] = defaultdict(dict)
        others: list[Condition] = []
        for child in disjuncts(replace(group, negated=False)):
            clause = None if isinstance(child, Group) or child.negated else self.leaf(child) >> 1
            if clause is None or self.op[clause] not in (EQUAL, MANY):
                others.append(child)
                continue
            key, kind = self.literals.of_number(self.a[clause])
            by_fact[key, PART._replace(fold=kind.fold) if is_text(kind) else kind][clause] = None
        sets = [self._set(tuple(members)) for members in by_fact.values()]
        return [clause * 2 for clause in sets if clause is not None], others


_UNLIMITED = (-inf, inf)


def _is_wide(limits: tuple[float, float]) -> bool:
    """Return True if there is a number between two limits."""
    low, high = limits
    return nextafter(low, inf) < high


_LIMITS: dict[str, Callable[[float], tuple[float, float]]] = {
    Operator.LESS: lambda number: (-inf, nextafter(number, -inf)),
    Operator.AT_MOST: lambda number: (-inf, number),
    Operator.EQUAL: lambda number: (number, number),
    Operator.AT_LEAST: lambda number: (number, inf),
    Operator.MORE: lambda number: (nextafter(number, inf), inf),
}
"""The least and the greatest number that a comparison is true of."""
