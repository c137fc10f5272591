"""Decomposition of a condition into disjoint terms, each with its lookup anchor.

A condition's *cover* is a set of leaves, at least one of which is true whenever the condition is. Going
through the cover in order, the n-th term says: the n-th leaf is true, the ones before it are false, and so
is what remains of the condition when that is known. No two terms are true at once, so a message that finds a
term finds its subscription once, and nothing has to be made distinct. There are as many terms as the cover
has leaves: nothing multiplies out, as it would in a normal form.

Earlier leaves that have to be false do add up: n overlapping alternatives need n²/2 checks. Where a condition
needs more than `MAX_CHECKS`, it becomes one term under ``always`` that is verified whole: slow, but exact.
Alternatives for one key without wildcards (``carrier:UA OR carrier:AA …``) exclude each other and add nothing.

The analysis of subscriptions needs disjoint terms, and the index for conditions with XOR. Other conditions have terms
in the index that may overlap, see `turnout.subscriptions.index.postings`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias, TypeGuard

from turnout.base.multivalued import ANY_KEY, Metadata, seen_texts, values_at
from turnout.conditions.anchor import ALWAYS, PRESENCE, Anchor, Lookups
from turnout.conditions.leaf import Check, Leaf, ValueTest
from turnout.conditions.leaves import LEAVES
from turnout.conditions.leaves.compare_fields import is_met
from turnout.conditions.leaves.exists import Exists
from turnout.conditions.leaves.kiwi import Kiwi
from turnout.conditions.model import Condition, Group, Logic, inverse, leaves, nodes
from turnout.conditions.pattern import Piece, parse_pattern

TESTS: Final[dict[str, ValueTest]] = {test.op: test for spec in LEAVES for test in spec.tests}
"""Operations of checks by name."""

_PASSES: Final = {op: test.passes for op, test in TESTS.items()}


def check_of(leaf: Leaf) -> Check:
    """Return the leaf as data."""
    return leaf.check()


def holds(check: Check, metadata: Metadata) -> bool:
    """Return True if the check, its negation included, is true of a message's metadata."""
    if check.other is not None:
        return holds_between(check, values_at(metadata, check.key), values_at(metadata, check.other)) != check.negated
    texts = seen_texts(metadata, check[0])
    if isinstance(texts, tuple):
        return any(passes(check, value) for value in texts) != check[7]
    return (texts is not None and passes(check, texts)) != check[7]


def passes(check: Check, value: str) -> bool:
    """Return True if the check, without its negation, is true of a present value of its only key."""
    return _PASSES[check[1]](check, value)


def holds_between(check: Check, values: Iterable[str], others: Collection[str]) -> bool:
    """Return True if the check of two keys, without its negation, is true of a value of each."""
    return any(is_met(check.last, value, other, ignore_case=check.fold) for value in values for other in others)


def lookups_of(check: Check, glob: tuple[Piece, ...] | None = None) -> Lookups:
    """Return the lookup texts of a check, by kind; any one suffices; empty if the check is negated.

    Runs of characters inside a beginning or an end that can be looked up are not among them: more messages have those.

    Args:
        check: the check.
        glob: the pieces of its pattern, where that has been read before and is not to be folded.
    """
    if check.negated:
        return []
    lookups = TESTS[check.op].lookups
    return [(PRESENCE, ("",))] if lookups is None else lookups(check, glob)


MAX_CHECKS = 4096
"""Maximum number of checks in all terms of one condition."""

Cost: TypeAlias = Callable[[Anchor], float]
"""Returns the number of messages, in any unit, that an anchor selects."""


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a condition that is true of a message only where the message has *access*.

    Attributes:
        access: look-up of the term.
        checks: leaves, with their negations, that all have to be true.
        rest: a condition that has to be true besides, where the term is no plain conjunction.
    """

    access: Anchor
    checks: tuple[Leaf, ...] = ()
    rest: Condition | None = None


class _Choice(NamedTuple):
    """Leaf without its negation, and its cheapest lookup anchor."""

    test: Leaf
    anchor: Anchor


class _Cover(NamedTuple):
    cost: float
    choices: tuple[_Choice, ...]


def terms_of(condition: Condition, cost: Cost, *, several: bool = False) -> tuple[Term, ...]:
    """Return the disjoint terms of the condition; none if it can never be true.

    Args:
        condition: any condition.
        cost: cost of anchors; the terms are looked up by the rarest ones.
        several: whether the terms have to be exact for messages with several values of a key, too; of these, more
            than one term may be true.
    """
    if _is_plain(condition):
        return (_plain(condition.children, cost),)
    cover = _cover(condition, True, cost)
    if cover is None:
        return _single_term(condition)
    terms: list[Term] = []
    total = 0
    before: list[Leaf] = []
    for test, anchor in dict.fromkeys(cover.choices):
        term = _term(condition, test, anchor, before, several=several)
        if term is not None:
            terms.append(term)
            total += len(term.checks) + (sum(1 for _ in leaves(term.rest)) if term.rest else 0)
            if total > MAX_CHECKS:
                return _single_term(condition)
        before.append(test)
    return tuple(terms)


def is_verified_always(term: Term) -> bool:
    """Return True if the index verifies the term's condition for every message.

    A condition whose alternatives need too many checks to be disjoint is one term without an anchor; the index lets
    them overlap, and finds it by each, unless it has XOR.
    """
    if term.access != ALWAYS:
        return False
    parts = term.checks if term.rest is None else (*term.checks, term.rest)
    condition = Group(Logic.AND, parts) if parts else None
    return (
        condition is None
        or any(isinstance(node, Group) and node.logic is Logic.XOR for node in nodes(condition))
        or _cover(condition, True, lambda _: 0.0) is None
    )


def _is_plain(condition: Condition) -> TypeGuard[Group]:
    return (
        isinstance(condition, Group)
        and condition.logic is Logic.AND
        and not condition.negated
        and not any(isinstance(child, Group) for child in condition.children)
    )


def _plain(children: tuple[Condition, ...], cost: Cost) -> Term:
    """The term of a conjunction of leaves: what most conditions are, so it skips the machinery for the others."""
    best, price, access = None, float("inf"), ALWAYS
    for leaf in children:
        if not isinstance(leaf, Group) and not leaf.negated:
            for anchor in leaf.anchors():
                if best is None or cost(anchor) < price:
                    best, price, access = leaf, cost(anchor), anchor
    if best is None or not best.is_decided_by(access):
        best = None
    checks = dict.fromkeys(leaf for leaf in children if leaf is not best and not isinstance(leaf, Group))
    return Term(access, tuple(checks))


def _single_term(condition: Condition) -> tuple[Term, ...]:
    """Return a single term for the whole condition, without a lookup anchor."""
    parts = list(conjuncts(condition))
    rest = _conjunction([part for part in parts if isinstance(part, Group)])
    return (Term(ALWAYS, tuple(part for part in parts if not isinstance(part, Group)), rest),)


def _term(condition: Condition, test: Leaf, anchor: Anchor, before: list[Leaf], *, several: bool) -> Term | None:
    """Return the term left to verify once *test* is true and *before* are false; None if it cannot be true."""
    alone = _KnownTruths(test)
    outcomes = [alone.of_value(earlier) for earlier in before]
    if True in outcomes:
        return None
    # Alternatives that exclude each other as the only value of a key need no check, and as one of several none either:
    # then more than one term may be true. But nothing follows from that about the rest.
    negated = [earlier for earlier, outcome in zip(before, outcomes, strict=True) if outcome is None]
    rest = _KnownTruths(test, negated if several else before, several=several).simplify(condition)
    if rest is False:
        return None
    checks = [] if test.is_decided_by(anchor) else [test]
    checks += [replace(earlier, negated=True) for earlier in negated]
    parts = [] if rest is True else list(conjuncts(rest))
    checks += [part for part in parts if not isinstance(part, Group)]
    groups = [part for part in parts if isinstance(part, Group)]
    return Term(anchor, tuple(dict.fromkeys(checks)), _conjunction(groups))


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """Yield the conditions that all have to be true, with plain conjunctions opened up."""
    if isinstance(condition, Group) and not condition.negated:
        if condition.logic is Logic.AND or len(condition.children) == 1:
            for child in condition.children:
                yield from conjuncts(child)
            return
    elif isinstance(condition, Group) and condition.logic is Logic.OR:
        for child in condition.children:
            yield from conjuncts(inverse(child))
        return
    yield condition


def disjuncts(condition: Condition) -> Iterator[Condition]:
    """Yield the conditions, at least one of which has to be true, with plain alternatives expanded."""
    if isinstance(condition, Group) and not condition.negated:
        if condition.logic is Logic.OR or len(condition.children) == 1:
            for child in condition.children:
                yield from disjuncts(child)
            return
    elif isinstance(condition, Group) and condition.logic is Logic.AND:
        for child in condition.children:
            yield from disjuncts(inverse(child))
        return
    yield condition


def _conjunction(groups: list[Group]) -> Condition | None:
    if len(groups) > 1:
        return Group(Logic.AND, tuple(groups))
    return groups[0] if groups else None


def _cover(condition: Condition, truth: bool, cost: Cost) -> _Cover | None:
    """The cheapest cover of the condition having this truth; None if it can have it while no leaf's test is true."""
    if not isinstance(condition, Group):
        if condition.negated == truth:
            return None
        price, anchor = min((cost(anchor), anchor) for anchor in condition.anchors())
        test = replace(condition, negated=False) if condition.negated else condition
        return _Cover(price, (_Choice(test, anchor),))
    truth = truth != condition.negated
    of_children = [_cover(child, truth, cost) for child in condition.children]
    match condition.logic, truth:
        case (Logic.AND, True) | (Logic.OR, False):
            return _best(of_children)
        case (Logic.OR, True) | (Logic.AND, False) | (Logic.XOR, True):
            return _union(of_children)
    # Not exactly one: none at all, or at least two, and those two are still one when any child is left out.
    none_true = _best(of_children)
    true = [_cover(child, True, cost) for child in condition.children]
    costliest = max(range(len(true)), key=lambda n: float("inf") if (clause := true[n]) is None else clause.cost)
    several = _union(true[:costliest] + true[costliest + 1 :])
    return _union([none_true, several])


def _best(covers: list[_Cover | None]) -> _Cover | None:
    return min((cover for cover in covers if cover is not None), key=lambda cover: cover.cost, default=None)


def _union(covers: list[_Cover | None]) -> _Cover | None:
    cost, choices = 0.0, list[_Choice]()
    for cover in covers:
        if cover is None:
            return None
        cost += cover.cost
        choices += cover.choices
    return _Cover(cost, tuple(choices))


class _KnownTruths:
    """Known truths of leaves when one test is true and others are false.

    Args:
        test: the one that is true.
        false: the others.
        several: whether the test's key may have other values, too.
    """

    def __init__(self, test: Leaf, false: Sequence[Leaf] = (), *, several: bool = False) -> None:
        self.key = test.key
        self.truth: dict[Leaf, bool] = {test: True} | dict.fromkeys(false, False)
        self.value = _only_value(test)
        self.several = several

    def of_value(self, test: Leaf) -> bool | None:
        """Return the outcome of a test that follows from the known value; None if nothing follows."""
        if test.key != self.key:
            return None
        if isinstance(test, Exists):
            return True
        if self.value is None or len(test.keys) > 1:
            return None
        return test.holds(self.value) or (None if self.several else False)

    def of(self, test: Leaf) -> bool | None:
        outcome = self.of_value(test)
        return self.truth.get(test) if outcome is None else outcome

    def simplify(self, condition: Condition) -> Condition | bool:
        """Simplify the condition by known facts: its truth if they decide it, else the remainder."""
        if not isinstance(condition, Group):
            outcome = self.of(replace(condition, negated=False) if condition.negated else condition)
            return condition if outcome is None else outcome != condition.negated
        children = [self.simplify(child) for child in condition.children]
        if condition.logic is Logic.XOR:
            settled = _exactly_one(children)
        else:
            deciding = condition.logic is Logic.OR
            undecided = [child for child in children if not isinstance(child, bool)]
            settled = deciding if deciding in children else _group(condition.logic, undecided, empty=not deciding)
        if not condition.negated:
            return settled
        return not settled if isinstance(settled, bool) else inverse(settled)


def _exactly_one(children: list[Condition | bool]) -> Condition | bool:
    undecided = [child for child in children if not isinstance(child, bool)]
    true = children.count(True)
    if true > 1:
        return False
    if true == 1:
        return _group(Logic.AND, [inverse(child) for child in undecided], empty=True)
    return _group(Logic.XOR, undecided, empty=False)


def _group(logic: Logic, children: list[Condition], *, empty: bool) -> Condition | bool:
    if not children:
        return empty
    return children[0] if len(children) == 1 else Group(logic, tuple(children))


def _only_value(test: Leaf) -> str | None:
    """Return the only value that makes the test true; None if it is not unique, or the message may have others."""
    if test.key == ANY_KEY or not isinstance(test, Kiwi) or test.partial or test.ignore_case:
        return None
    match parse_pattern(test.pattern):
        case ():
            return ""
        case (str(text),):
            return text
    return None
