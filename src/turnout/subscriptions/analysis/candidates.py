"""Candidate pairs for subsumption: only conditions with a common access anchor are compared, not all pairs.

A condition is true only where one of its terms' access anchors is there. If all of A's messages are B's, then those of
A's first term have one of B's anchors, and mostly they have it because A's own leaves give it to them: B is looked up
by the implications of A's leaves, as it is looked up by a message's values.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from types import MappingProxyType

from turnout.conditions import Condition, Group, Kiwi, Leaf, Logic, evaluate, format_condition, keys_of, leaves
from turnout.conditions.anchor import ALWAYS, Anchor, Kind, prober, weight
from turnout.conditions.leaf import Literal
from turnout.conditions.pattern import ANY, ONE, fold, parse_pattern
from turnout.conditions.terms import Term, terms_of
from turnout.subscriptions.analysis.diagram import (
    FALSE,
    TRUE,
    CanonicalForm,
    Diagrams,
    TooLargeError,
    form_of,
    message_of,
    relation,
    witness,
)

MOST_UNDER_ANCHOR = 2_000
"""Conditions under one anchor, or two, that others are compared with at most; beyond that these are left out, and
named."""

_MOST_OF_ONE = 2_000
"""Conditions that one is compared with; after this many no further anchors are inspected."""

_MAX_WITHOUT_SECOND = 32
"""This many conditions under one anchor need no second one."""

_CERTAIN = "=^"
"""Kinds of anchors that a narrower condition always implies, so that a second one can be required."""


def anchor_costs(conditions: Sequence[Condition]) -> Callable[[Anchor], float]:
    """Return the frequency of each anchor, by the number of conditions that have it."""
    askers: Counter[Anchor] = Counter()
    for condition in conditions:
        for leaf in leaves(condition):
            if not leaf.negated:
                askers.update(leaf.anchors())
    costs = {anchor: count * weight(anchor) for anchor, count in askers.items()}
    return lambda anchor: costs.get(anchor) or weight(anchor)


class Candidates:
    """Conditions by their access anchors.

    Args:
        conditions: each of a form of its own.
        forms: forms of the conditions.

    Attributes:
        terms: the disjoint terms of each condition.
        crowded: anchors, as text, that were left out, and how many conditions are under each.
        cut: how many conditions had more candidates than they were compared with.
    """

    def __init__(self, conditions: Sequence[Condition], forms: Sequence[CanonicalForm]) -> None:
        self._conditions = conditions
        cost = anchor_costs(conditions)
        self.terms = [terms_of(condition, cost) for condition in conditions]
        self._cost = cost
        self._needed = _needed_of(forms)
        under: defaultdict[Anchor, list[int]] = defaultdict(list)
        for number, terms in enumerate(self.terms):
            for anchor in {term.access for term in terms}:
                under[_bucket(anchor, self._needed[number])].append(number)
        self.crowded: dict[str, int] = {}
        self.cut = 0
        self._slots: defaultdict[str, set[Kind]] = defaultdict(set)
        self._under = {anchor: self._parted(anchor, numbers) for anchor, numbers in under.items()}
        for anchor in self._under:
            self._slots[anchor.key].add(anchor.kind)

    def wider(self, number: int) -> list[int]:
        """Return the conditions that may be true of all messages of this one."""
        terms = self.terms[number]
        keys = frozenset(keys_of(self._conditions[number]))
        implied = dict.fromkeys(self._implied(terms[0], keys)) if terms else {}
        # A condition that holds more than its terms' leaves say implies anchors that are not known here.
        exact = implied if terms and terms[0].rest is None else None
        chosen: dict[int, None] = {}
        for access in implied:
            under = self._under.get(access)
            if under is None:
                continue
            chosen.update((other, None) for other in under.wider_than(exact, keys) if self._needed[other] <= keys)
            if len(chosen) > _MOST_OF_ONE:
                self.cut += 1
                break
        chosen.pop(number, None)
        return list(chosen)

    def _parted(self, anchor: Anchor, numbers: list[int]) -> _AnchorBucket:
        """Return the conditions under an anchor; many are split by a second anchor that narrower ones imply."""
        if len(numbers) <= min(_MAX_WITHOUT_SECOND, MOST_UNDER_ANCHOR):
            return _AnchorBucket(numbers)
        by_second: defaultdict[Anchor, list[int]] = defaultdict(list)
        by_keys: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for number in numbers:
            second = self._second(number, anchor)
            if second is None:
                by_keys[self._needed[number]].append(number)
            else:
                by_second[second].append(number)
                self._slots[second.key].add(second.kind)
        parts: list[tuple[Anchor | frozenset[str], list[int]]] = [*by_second.items(), *by_keys.items()]
        for bucket, members in parts:
            if len(members) > MOST_UNDER_ANCHOR:
                self._leave_out(anchor, bucket, members)
        return _AnchorBucket([], by_second, by_keys)

    def _leave_out(self, anchor: Anchor, bucket: Anchor | frozenset[str], numbers: list[int]) -> None:
        bucket_text = str(bucket) if isinstance(bucket, Anchor) else ", ".join(sorted(bucket))
        self.crowded[f"{anchor} with {bucket_text}" if bucket_text else str(anchor)] = len(numbers)
        numbers.clear()

    def _second(self, number: int, first: Anchor) -> Anchor | None:
        """Return the rarest anchor but *first* that the condition and all narrower ones imply; None if none."""
        terms = self.terms[number]
        if len(terms) != 1:
            return None
        anchors = (
            anchor
            for leaf in terms[0].checks
            if not leaf.negated
            for anchor in leaf.anchors()
            if anchor != first and anchor.kind.op in _CERTAIN
        )
        return min(anchors, key=self._cost, default=None)

    def _implied(self, term: Term, keys: frozenset[str]) -> Iterator[Anchor]:
        """Yield the anchors that every message of the term has, as far as its leaves determine them."""
        slots = self._slots
        yield from _of_anchor(term.access, slots.get(term.access.key, ()))
        for leaf in term.checks:
            if not leaf.negated:
                yield from _of_leaf(leaf, slots.get(leaf.key, ()))
        yield from map(_key_anchor, sorted(keys))


class _AnchorBucket:
    """Conditions under one anchor.

    Args:
        numbers: of them, where they are few.
        by_second: those that have a second anchor, by that.
        by_keys: the others, by the keys that every narrower condition tests, too.
    """

    __slots__ = ("_by_keys", "_by_second", "_numbers")

    def __init__(
        self,
        numbers: list[int],
        by_second: Mapping[Anchor, list[int]] = MappingProxyType({}),
        by_keys: Mapping[frozenset[str], list[int]] = MappingProxyType({}),
    ) -> None:
        self._numbers = numbers
        self._by_second = by_second
        self._by_keys = by_keys

    def wider_than(self, implied: Collection[Anchor] | None, keys: frozenset[str]) -> Iterator[int]:
        """Yield the conditions that may be wider than one with these implied anchors (None: not all known)."""
        yield from self._numbers
        if implied is None or len(self._by_second) < len(implied):
            seconds: Iterable[Anchor] = (anchor for anchor in self._by_second if implied is None or anchor in implied)
        else:
            seconds = (anchor for anchor in implied if anchor in self._by_second)
        for second in seconds:
            yield from self._by_second[second]
        for needed, numbers in self._by_keys.items():
            if needed <= keys:
                yield from numbers


def _needed_of(forms: Sequence[CanonicalForm]) -> list[frozenset[str]]:
    """Return per form the keys that all narrower conditions use, too; empty unless it is a conjunction."""
    # Few sets of keys come with many forms: each is kept once.
    same: dict[frozenset[str], frozenset[str]] = {}
    needed = (frozenset(atom.key for atom, _ in form.literals or ()) for form in forms)
    return [same.setdefault(keys, keys) for keys in needed]


def _bucket(anchor: Anchor, keys: frozenset[str]) -> Anchor:
    """Return the anchor to store a condition under; one of its keys if it has no other."""
    return _key_anchor(min(keys)) if anchor == ALWAYS and keys else anchor


def _key_anchor(key: str) -> Anchor:
    """Return the anchor under which conditions without a usable anchor that test *key* are stored."""
    return Anchor(key, Kind("not"), "")


def _of_anchor(anchor: Anchor, slots: Collection[Kind]) -> Iterator[Anchor]:
    """Yield an anchor and the anchors that it implies on its own."""
    key, kind, text = anchor
    yield anchor
    yield Anchor(key, Kind("has"), "")
    if kind.op == "=" and not kind.lexeme:
        for slot in slots:
            if slot.op != "not" and (slot.fold or not kind.fold):
                yield from (Anchor(key, slot, probe) for probe in prober(slot)(text))
    elif kind.op == "net":
        address, _, bits = text.partition(":")
        for slot in slots:
            if slot.op == "net" and slot.length <= kind.length:
                yield Anchor(key, slot, f"{address}:{int(bits, 16) >> (kind.length - slot.length):x}")
    elif kind.op in "^$" and not kind.lexeme:
        for slot in slots:
            if slot.op == kind.op and slot.length <= kind.length and slot[2:] == kind[2:]:
                yield Anchor(key, slot, text[: slot.length] if kind.op == "^" else text[-slot.length :])


def _of_leaf(leaf: Leaf, slots: Collection[Kind]) -> Iterator[Anchor]:
    for anchor in leaf.anchors():
        yield from _of_anchor(anchor, slots)
    if isinstance(leaf, Kiwi) and not leaf.partial:
        yield from _of_ends(leaf, slots)


def _of_ends(leaf: Kiwi, slots: Collection[Kind]) -> Iterator[Anchor]:
    """Yield the anchors of a pattern's literal prefix and suffix, folded where requested."""
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


class Verdict(StrEnum):
    """The answer to a question that may be too hard."""

    YES = "yes"
    """Proven."""

    NO = "no"
    """There is a message that shows it, or no message is common to both."""

    UNKNOWN = "unknown"


def subsumed(condition: Condition, form: CanonicalForm, other: Condition, other_form: CanonicalForm) -> Verdict:
    """Decide if every message of *condition* is also one of *other*.

    Args:
        condition: the one that may be the narrower.
        form: its normal form.
        other: the one that may be the wider.
        other_form: its normal form.
    """
    if form.digest == other_form.digest:
        return Verdict.YES
    if form.literals is not None and other_form.literals is not None:
        missing = _missing(form.literals, other_form.literals)
        if missing is None:
            return Verdict.YES
        if form.always is None and any(_follows(literal, (missing[0], not missing[1])) for literal in form.literals):
            # The two share no messages, and this one matches some, as far as can be proven.
            return Verdict.NO
        if _separates(condition, other, message_of(sorted({*form.literals, (missing[0], not missing[1])}))):
            return Verdict.NO
    try:
        diagrams = Diagrams()
        outside = diagrams.choose(diagrams.of(other), FALSE, TRUE)
        counterexamples = diagrams.reduced(diagrams.choose(diagrams.of(condition), outside, FALSE))
    except TooLargeError:
        return Verdict.UNKNOWN
    if counterexamples == FALSE:
        return Verdict.YES
    return Verdict.NO if _separates(condition, other, witness(diagrams, counterexamples)) else Verdict.UNKNOWN


def _separates(condition: Condition, other: Condition, message: Mapping[str, str] | None) -> bool:
    """Return True if the message matches the condition and not the other one."""
    return message is not None and evaluate(condition, message) and not evaluate(other, message)


def _missing(literals: tuple[Literal, ...], required: tuple[Literal, ...]) -> Literal | None:
    """Return the first of the literals that are *required* which follows from none of the others; None if all do."""
    return next((needed for needed in required if not any(_follows(literal, needed) for literal in literals)), None)


def _follows(premise: Literal, conclusion: Literal) -> bool:
    (atom, holds), (other, required) = premise, conclusion
    if atom.key != other.key:
        return False
    if holds:
        return relation(atom, other) is required
    return not required and relation(other, atom) is True


_MOST_LEAVES = 64


def clash(condition: Condition) -> str:
    """Return the contradiction in a condition that is never true: two leaves of a conjunction that exclude each other.

    The whole condition where it is not as simple as that.

    >>> from turnout.conditions import parse
    >>> clash(parse("a:x AND n<5 AND b:* AND n>9"))
    'n<5 and n>9'
    """
    required = _required(condition)
    for leaf in required:
        if form_of(leaf).always is False:
            return format_condition(leaf)
    if len(required) <= _MOST_LEAVES:
        for one, other in combinations(required, 2):
            if one.key == other.key and form_of(Group(Logic.AND, (one, other))).always is False:
                return f"{format_condition(one)} and {format_condition(other)}"
    return format_condition(condition)


def _required(condition: Condition) -> list[Leaf]:
    """Return the leaves that all have to be true, as far as they are on the surface."""
    if not isinstance(condition, Group):
        return [condition]
    if condition.logic is not Logic.AND or condition.negated:
        return []
    return [leaf for child in condition.children for leaf in _required(child)]
