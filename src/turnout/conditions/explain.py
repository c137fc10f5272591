"""Explanation of a condition's outcome for a message, down to the leaf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from turnout.base.multivalued import Metadata, text_at, values_at
from turnout.conditions.leaf import Leaf
from turnout.conditions.model import Condition, Group, Logic, evaluate, leaves
from turnout.conditions.text import format_condition

_SHOWN_VALUES = 10
"""Values of one key that an explanation names."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of one node of a condition.

    Attributes:
        condition: the node.
        holds: its truth, its own negation included.
        reason: the reason in words: the value under a leaf's key, or how many children of a group are true.
        children: the same for each child of a group.

    >>> from turnout.conditions import parse
    >>> part = explain(parse("NOT total>500"), {"total": "900"})
    >>> part.holds, part.reason, part.children
    (False, "'total' is '900'", ())
    """

    condition: Condition
    holds: bool
    reason: str
    children: tuple[Explanation, ...] = ()

    @property
    def decisive(self) -> Iterator[Explanation]:
        """The leaves that decided the outcome: if they were different, it might be too."""
        if not self.children:
            yield self
            return
        outcome = self.holds != self.condition.negated
        for child in self.children:
            if not isinstance(self.condition, Group) or _counts(self.condition, outcome, child.holds):
                yield from child.decisive

    def lines(self, indent: int = 0) -> Iterator[str]:
        """Yield the explanation as text, a line for each node, children indented."""
        mark = "+" if self.holds else "-"
        name = format_condition(self.condition) if not self.children else _name(self.condition)
        yield f"{'  ' * indent}{mark} {name}: {self.reason}"
        for child in self.children:
            yield from child.lines(indent + 1)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def explain(condition: Condition, metadata: Metadata) -> Explanation:
    """Return the truth of the condition for this metadata, and of each node in it.

    >>> from turnout.conditions import parse
    >>> explanation = explain(parse("city:Oulu AND total>500"), {"city": "Oulu", "total": "120"})
    >>> explanation.holds, explanation.reason
    (False, '1 of 2 hold')
    >>> [(part.holds, part.reason) for part in explanation.children]
    [(True, "'city' is 'Oulu'"), (False, "'total' is '120'")]
    """
    if not isinstance(condition, Group):
        observation = ", ".join(f"{key!r} {_describe_values(values_at(metadata, key))}" for key in condition.keys)
        return Explanation(condition, evaluate(condition, metadata), observation)
    children = tuple(explain(child, metadata) for child in condition.children)
    true = sum(child.holds for child in children)
    reason = f"{true} of {len(children)} hold" + (", negated" if condition.negated else "")
    return Explanation(condition, evaluate(condition, metadata), reason, children)


def _describe_values(values: tuple[str, ...]) -> str:
    """Describe the value under a key."""
    if len(values) < 2:
        return f"is {values[0]!r}" if values else "is missing"
    remaining = len(values) - _SHOWN_VALUES
    return f"has {', '.join(map(repr, values[:_SHOWN_VALUES]))}" + (f" and {remaining} more" if remaining > 0 else "")


def _name(condition: Condition) -> str:
    assert isinstance(condition, Group)
    return f"{'NOT ' if condition.negated else ''}{condition.logic.upper()}"


def _counts(group: Group, outcome: bool, child: bool) -> bool:
    """Return True if a child with this truth contributes to the group's own outcome, its negation left aside."""
    if group.logic is Logic.AND:
        return outcome or not child
    if group.logic is Logic.OR:
        return child or not outcome
    return True


MAX_REPEATED = 10
"""Tests that a condition repeats are tried in every combination up to this many; beyond that one after the other."""


@dataclass(frozen=True, slots=True)
class SeenLeaf:
    """Leaf with the tested value.

    Attributes:
        leaf: with its negation.
        value: the text under its key; None where there is none. Several values are an array of JSON.
        holds: whether the leaf is true, its negation included.

    >>> from turnout.conditions import parse
    >>> (seen,) = blame(parse("total>500"), {"total": "120"}).leaves
    >>> seen.leaf.number, seen.value, seen.holds
    (500.0, '120', False)
    """

    leaf: Leaf
    value: str | None
    holds: bool

    @classmethod
    def of(cls, leaf: Leaf, metadata: Metadata) -> SeenLeaf:
        """Return the leaf evaluated for a message."""
        return cls(leaf, text_at(metadata, leaf.key), evaluate(leaf, metadata))


@dataclass(frozen=True, slots=True)
class Blame:
    """The leaves that keep a condition from being true.

    Attributes:
        leaves: were each of them the other way round, the condition would be true. Empty where it is true already; None
            where no change of leaves makes it true, as for ``a:1 AND NOT a:1``.
        exact: whether no smaller set does; False only beyond `MAX_REPEATED`.

    >>> from turnout.conditions import parse
    >>> blame(parse("a:1"), {"a": "1"}).leaves, blame(parse("a:1 AND NOT a:1"), {}).leaves
    ((), None)
    """

    leaves: tuple[SeenLeaf, ...] | None
    exact: bool = True


def true_leaves(condition: Condition, metadata: Metadata) -> tuple[SeenLeaf, ...]:
    """Return the leaves that are true of a message, negated ones included, left to right.

    >>> from turnout.conditions import parse
    >>> [seen.leaf.key for seen in true_leaves(parse("city:Oulu OR NOT status:done OR n>5"), {"city": "Oulu"})]
    ['city', 'status']
    """
    answers = (SeenLeaf.of(leaf, metadata) for leaf in leaves(condition))
    return tuple(leaf for leaf in answers if leaf.holds)


def blame(condition: Condition, metadata: Metadata) -> Blame:
    """Return the smallest set of leaves whose change makes the condition true.

    Leaves with the same test are one, whatever their negations; different tests are taken to be independent of each
    other, although ``n<5`` and ``n>9`` are not. Of several smallest sets it is one, and always the same.

    Where no test is repeated, the fewest changes of a group follow from those of its children, in one walk. Repeated
    tests are decided first, in every combination if they are few, and the walk is made for each.

    >>> from turnout.conditions import parse
    >>> missed = blame(parse("city:Oulu AND (total>500 OR urgent exists)"), {"city": "Oulu", "total": "120"})
    >>> [(seen.leaf.key, seen.value) for seen in missed.leaves]
    [('total', '120')]
    """
    counts = Counter(map(_test_of, leaves(condition)))
    repeated = tuple(test for test, count in counts.items() if count > 1)
    exact = len(repeated) <= MAX_REPEATED
    search = _each if exact else _one_by_one
    cheapest = min(search(condition, metadata, repeated), key=len, default=None)
    if cheapest is None:
        return Blame(None, exact)
    changed = {_test_of(leaf): leaf for leaf in reversed(list(leaves(condition))) if _test_of(leaf) in cheapest}
    return Blame(tuple(SeenLeaf.of(changed[test], metadata) for test in counts if test in cheapest), exact)


_Changes = tuple[Leaf, ...]
"""Tests to turn around."""


def _each(condition: Condition, metadata: Metadata, repeated: _Changes) -> Iterator[_Changes]:
    """Yield the changes for each combination of outcomes of the repeated tests, fewest inversions first."""
    for choice in sorted(product((False, True), repeat=len(repeated)), key=sum):
        changes = _Search(metadata, dict(zip(repeated, choice, strict=True))).of(condition)
        if changes is not None:
            yield changes


def _one_by_one(condition: Condition, metadata: Metadata, repeated: _Changes) -> Iterator[_Changes]:
    """Yield the changes after a greedy choice for each repeated test, in two passes."""
    decided: dict[Leaf, bool] = {}
    for test in (*repeated, *repeated):
        outcomes = [(turned, _Search(metadata, decided | {test: turned}).of(condition)) for turned in (False, True)]
        possible = [(len(changes), turned) for turned, changes in outcomes if changes is not None]
        decided[test] = min(possible)[1] if possible else False
    changes = _Search(metadata, decided).of(condition)
    if changes is not None:
        yield changes


class _Search:
    """Finds the fewest changes that give a node a truth.

    Args:
        metadata: metadata of the message.
        decided: tests whose outcome is settled, and whether they are turned around.
    """

    def __init__(self, metadata: Metadata, decided: Mapping[Leaf, bool]) -> None:
        self._metadata = metadata
        self._decided = decided

    def of(self, condition: Condition) -> _Changes | None:
        """Return the tests to turn around so that the condition is true, the decided ones among them."""
        changes, _ = self._outcomes(condition)
        if changes is None:
            return None
        return (*(test for test, turned in self._decided.items() if turned), *changes)

    def _outcomes(self, condition: Condition) -> tuple[_Changes | None, _Changes | None]:
        """Return the changes that make the condition true, and false; None for an impossible outcome."""
        if not isinstance(condition, Group):
            return self._leaf(condition)
        outcomes = [self._outcomes(child) for child in condition.children]
        true, false = [outcome[0] for outcome in outcomes], [outcome[1] for outcome in outcomes]
        match condition.logic:
            case Logic.AND:
                holds, fails = _together(true), _cheapest(false)
            case Logic.OR:
                holds, fails = _cheapest(true), _together(false)
            case Logic.XOR:
                holds, fails = _exactly_one(true, false), _none_or_two(true, false)
        return (fails, holds) if condition.negated else (holds, fails)

    def _leaf(self, leaf: Leaf) -> tuple[_Changes | None, _Changes | None]:
        test = _test_of(leaf)
        turned = self._decided.get(test)
        holds = evaluate(leaf, self._metadata) != bool(turned)
        change: _Changes | None = (test,) if turned is None else None
        return ((), change) if holds else (change, ())


def _test_of(leaf: Leaf) -> Leaf:
    return replace(leaf, negated=False)


def _together(changes: list[_Changes | None]) -> _Changes | None:
    """Return all changes joined; None if one of them is impossible."""
    joined: _Changes = ()
    for part in changes:
        if part is None:
            return None
        joined += part
    return joined


def _cheapest(changes: list[_Changes | None]) -> _Changes | None:
    return min((part for part in changes if part is not None), key=len, default=None)


def _exactly_one(true: list[_Changes | None], false: list[_Changes | None]) -> _Changes | None:
    choices = [_together([*false[:at], change, *false[at + 1 :]]) for at, change in enumerate(true)]
    return _cheapest(choices)


def _none_or_two(true: list[_Changes | None], false: list[_Changes | None]) -> _Changes | None:
    """Return the cheapest changes for no true child, or for at least two; other children do not matter then."""
    cheap = sorted((change for change in true if change is not None), key=len)[:2]
    return _cheapest([_together(false), _together(list(cheap)) if len(cheap) == 2 else None])
