"""Pairs of conditions that one may subsume the other: those that share an access anchor, so that not all meet all.

A condition is true only where one of its terms' access anchors is there. If all of A's messages are B's, then those of
A's first term have one of B's anchors, and mostly they have it because A's own leaves give it to them: B is looked up
by what A's leaves imply, as it is looked up by what a message has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from turnout.conditions import Condition, Kiwi, Leaf
from turnout.conditions.anchor import ALWAYS, Anchor, Kind, anchors_of, prober, weight
from turnout.conditions.model import leaves
from turnout.conditions.pattern import ANY, ONE, fold, parse_pattern
from turnout.conditions.terms import Term, terms_of
from turnout.subscriptions.analysis.canonical import Form, keys_of

__all__ = ["MOST_UNDER_ANCHOR", "Candidates", "anchor_costs"]

MOST_UNDER_ANCHOR = 2_000
"""Conditions under one anchor that others are compared with at most; beyond that the anchor is left out, and named."""

_MOST_OF_ONE = 2_000
"""Conditions that one is looked at beside; after so many no further anchors are looked at."""


def anchor_costs(conditions: Sequence[Condition]) -> Callable[[Anchor], float]:
    """How common each anchor is, by how many conditions ask for it."""
    askers: Counter[Anchor] = Counter()
    for condition in conditions:
        for leaf in leaves(condition):
            if not leaf.negated:
                askers.update(anchors_of(leaf))
    costs = {anchor: count * weight(anchor) for anchor, count in askers.items()}
    return lambda anchor: costs.get(anchor) or weight(anchor)


class Candidates:
    """Conditions by their access anchors.

    Args:
        conditions: each of a form of its own.
        forms: of the conditions.

    Attributes:
        terms: the disjoint terms of each condition.
        crowded: anchors that were left out, and how many conditions are under each.
        cut: how many conditions had more candidates than they were compared with.
    """

    def __init__(self, conditions: Sequence[Condition], forms: Sequence[Form]) -> None:
        self._conditions = conditions
        cost = anchor_costs(conditions)
        self.terms = [terms_of(condition, cost) for condition in conditions]
        self._needed = [_needed_keys(form) for form in forms]
        self._under: defaultdict[Anchor, list[int]] = defaultdict(list)
        for number, terms in enumerate(self.terms):
            for anchor in {term.access for term in terms}:
                self._under[_place(anchor, self._needed[number])].append(number)
        self.crowded = {anchor: len(them) for anchor, them in self._under.items() if len(them) > MOST_UNDER_ANCHOR}
        self.cut = 0
        self._slots: defaultdict[str, set[Kind]] = defaultdict(set)
        for anchor in self._under:
            self._slots[anchor.key].add(anchor.kind)

    def wider(self, number: int) -> list[int]:
        """The conditions that may be true of all messages of this one."""
        terms = self.terms[number]
        keys = keys_of(self._conditions[number])
        chosen: dict[int, None] = {}
        seen = 0
        for access in self._implied(terms[0], keys) if terms else ():
            under = () if access in self.crowded else self._under.get(access, ())
            seen += len(under)
            chosen.update((other, None) for other in under if self._needed[other] <= keys)
            if seen > _MOST_OF_ONE:
                self.cut += 1
                break
        chosen.pop(number, None)
        return list(chosen)

    def _implied(self, term: Term, keys: frozenset[str]) -> Iterator[Anchor]:
        """The anchors that a message of the term has, as far as its leaves say."""
        slots = self._slots
        yield from _of_anchor(term.access, slots.get(term.access.key, ()))
        for leaf in term.checks:
            if not leaf.negated:
                yield from _of_leaf(leaf, slots.get(leaf.key, ()))
        yield from map(_beside, sorted(keys))


def _needed_keys(form: Form) -> frozenset[str]:
    """The keys that whatever is narrower looks at too: known of conjunctions only."""
    return frozenset(atom.key for atom, _ in form.literals or ())


def _place(anchor: Anchor, keys: frozenset[str]) -> Anchor:
    """Where a condition is kept; what nothing can be looked up by, under one of its keys."""
    return _beside(min(keys)) if anchor == ALWAYS and keys else anchor


def _beside(key: str) -> Anchor:
    """The place of conditions that nothing can be looked up by, and that ask about a key."""
    return Anchor(key, Kind("not"), "")


def _of_anchor(anchor: Anchor, slots: Collection[Kind]) -> Iterator[Anchor]:
    """An anchor, and what follows from it alone."""
    key, kind, text = anchor
    yield anchor
    yield Anchor(key, Kind("has"), "")
    if kind.op == "=" and not kind.lexeme:
        for slot in slots:
            if slot.op != "not" and (slot.fold or not kind.fold):
                yield from (Anchor(key, slot, probe) for probe in prober(slot)(text))
    elif kind.op in "^$" and not kind.lexeme:
        for slot in slots:
            if slot.op == kind.op and slot.length <= kind.length and slot[2:] == kind[2:]:
                yield Anchor(key, slot, text[: slot.length] if kind.op == "^" else text[-slot.length :])


def _of_leaf(leaf: Leaf, slots: Collection[Kind]) -> Iterator[Anchor]:
    for anchor in anchors_of(leaf):
        yield from _of_anchor(anchor, slots)
    if isinstance(leaf, Kiwi) and not leaf.partial:
        yield from _of_ends(leaf, slots)


def _of_ends(leaf: Kiwi, slots: Collection[Kind]) -> Iterator[Anchor]:
    """What follows from how a pattern begins and ends, folded where that is asked for."""
    pieces = parse_pattern(leaf.pattern)
    if not pieces or leaf.ignore_case:
        return
    first, last = pieces[0], pieces[-1]
    for slot in slots:
        if slot.lexeme or slot.op not in ("^", "$"):
            continue
        piece = first if slot.op == "^" else last
        if piece in (ANY, ONE) or not isinstance(piece, str):
            continue
        text = fold(piece) if slot.fold else piece
        if len(text) >= slot.length:
            yield Anchor(leaf.key, slot, text[: slot.length] if slot.op == "^" else text[-slot.length :])
