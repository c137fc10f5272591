"""Lookup costs of subscriptions: anchors shared by many terms, and wasted matching work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from turnout.base.multivalued import ANY_KEY, Metadata, values_at
from turnout.conditions import Compare, Leaf, evaluate, leaves
from turnout.conditions.anchor import ALWAYS, Anchor, Kind, prober
from turnout.conditions.leaf import Check
from turnout.conditions.pattern import ANY, ONE, parse_pattern
from turnout.conditions.terms import Term, check_of, is_verified_always, lookups_of
from turnout.subscriptions.index.facts import alternatives_of, kind_of, parts_of


@dataclass(frozen=True, slots=True)
class HotAnchor:
    """Anchor with its cost.

    Attributes:
        anchor: as text: key, kind and text.
        terms: how many terms are looked up by it: each message that has the anchor has them verified.
        messages: how many messages of the range had it; None without a range.
        in_vain: number of verifications that were false; None without a range.
    """

    anchor: str
    terms: int
    messages: int | None = None
    in_vain: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Lookup statistics of subscriptions.

    Attributes:
        anchors: how many there are.
        terms: under all of them.
        hottest: those with the most terms, or the most verifications without a match.
        always: the subscriptions that every message has to be verified for.
        by_presence: those that every message with some key has to be verified for.
        expensive: those of which one message may need so many together that it takes more than 20 ms, by estimate.
    """

    anchors: int
    terms: int
    hottest: tuple[HotAnchor, ...]
    always: tuple[str, ...]
    by_presence: tuple[str, ...]
    expensive: tuple[str, ...]


EXPENSIVE_MS = 20.0
"""Milliseconds to verify all that one record may need, above which the subscriptions that take most are expensive."""

_TEST_MS, _TERM_MS, _BOUND_MS, _SEARCH_MS = 0.004, 0.0002, 0.002, 0.03
"""Milliseconds for a test of a value in Python, each different one once, and for each further text that is searched in
it; for the rest of a term; for a number that any value is compared with, because values below and above nearly all
numbers find nearly all terms; and for a part of a glob with ``?``, which many places in a value may nearly match."""

_ANY_VALUES = 16
"""Values of a record that a test of any value is carried out for, or elements of an array, by estimate."""

_VALUE_CHARACTERS = 4_096
"""Characters of a value, by estimate; so many can be taken by the texts that terms are found by."""

_SHORT = 3
"""Characters of a text up to which one value may contain all texts: they overlap in it."""

_TEXTS_TOGETHER = ("~", "always", "has")
"""Kinds of anchors of which one value can have several, or that have no text."""

Terms = Mapping[str, Sequence[Term]]
"""Subscription → its disjoint terms."""


class _Group(NamedTuple):
    """Terms that one record may need together.

    Attributes:
        ms: to verify them, by estimate.
        ids: their subscriptions.
    """

    ms: float
    ids: frozenset[str]


class _Load:
    """Terms that one text finds.

    Attributes:
        ids: subscriptions of its terms.
    """

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._terms: Counter[tuple[str, str]] = Counter()
        self._tests: defaultdict[tuple[str, str], set[Check]] = defaultdict(set)

    def add(self, id_: str, second: tuple[str, str], tests: Iterable[Check]) -> None:
        """Add a term, with the key and the value that it needs besides; empty for none."""
        self.ids.add(id_)
        self._terms[second] += 1
        self._tests[second].update(tests)

    @property
    def ms(self) -> float:
        """Milliseconds to verify it: a record has one value of each key."""
        most: defaultdict[str, float] = defaultdict(float)
        for second, count in self._terms.items():
            own = count * _TERM_MS + sum(map(_test_ms, self._tests[second]))
            most[second[0]] = max(most[second[0]], own)
        return sum(most.values())


def expensive(terms: Terms) -> tuple[str, ...]:
    """Return the sorted ids of the subscriptions to verify which takes more than `EXPENSIVE_MS` for one record.

    The record has the values that find most in each key. The subscriptions that take most are named, until the others
    take less time together.
    """
    slots = [sorted(groups, key=lambda group: group.ms) for groups in _slots_of(terms)]
    total = sum(groups[-1].ms for groups in slots)
    named: set[str] = set()
    while total > EXPENSIVE_MS:
        worst = max((groups for groups in slots if groups), key=lambda groups: groups[-1].ms)
        group = worst.pop()
        named |= group.ids
        total += (worst[-1].ms if worst else 0.0) - group.ms
    return tuple(sorted(named))


def _slots_of(terms: Terms) -> Iterator[list[_Group]]:
    """Yield the groups of each key and kind of anchor, of which a record has one."""
    slots: defaultdict[tuple[str, Kind], defaultdict[str, _Load]] = defaultdict(lambda: defaultdict(_Load))
    uses = Counter(second for own in terms.values() for term in own for second in _seconds_of(term))
    for id_, own in terms.items():
        for term in own:
            tests = _tests_of(term)
            if not tests and any(_has_lookup(leaf) for leaf in term.checks if not leaf.negated):
                # A second text or number finds it.
                continue
            second = min(_seconds_of(term), key=uses.__getitem__, default=("", ""))
            access = term.access
            slots[access.key, access.kind][_text_of(term)].add(id_, second, tests)
    for (_, kind), loads in slots.items():
        if kind.lexeme or kind.op in _TEXTS_TOGETHER:
            yield [_together(loads)]
        else:
            yield [_Group(load.ms, frozenset(load.ids)) for load in loads.values()]


def _together(loads: Mapping[str, _Load]) -> _Group:
    """Return the texts that one value may contain together: all short ones, and as many others as have room."""
    room, ms = _VALUE_CHARACTERS, 0.0
    ids: set[str] = set()
    for text, load in sorted(loads.items(), key=lambda item: -item[1].ms / max(1, len(item[0]))):
        if len(text) > _SHORT:
            if len(text) > room:
                continue
            room -= len(text)
        ms += load.ms
        ids |= load.ids
    return _Group(ms, frozenset(ids))


def _text_of(term: Term) -> str:
    """Return the text that the term is found by: of a part of a value the longest one, as the index has it."""
    key, kind, text = term.access
    if kind.op != "~":
        return text
    checks = [check_of(leaf) for leaf in term.checks if leaf.key == key and not leaf.negated]
    texts = [part[1:] for check in checks for _, parts in parts_of(check, None) for part in parts]
    return max([text, *texts], key=len)


def _seconds_of(term: Term) -> list[tuple[str, str]]:
    """Return the keys with a value that a term needs besides the anchor that it is found by."""
    found = []
    for leaf in term.checks:
        check = check_of(leaf)
        if check.op == "=" and not (check.negated or check.partial or check.key in (ANY_KEY, term.access.key)):
            found.append((check.key, check.text))
    return found


def _tests_of(term: Term) -> set[Check]:
    """Return the tests of values that a term needs, without their negations."""
    rest = () if term.rest is None else leaves(term.rest)
    tests = (check_of(leaf) for leaf in (*term.checks, *rest) if not _has_lookup(leaf))
    return {check._replace(negated=False) for check in tests}


def _test_ms(check: Check) -> float:
    if check.op[0] == "n":
        return _BOUND_MS
    ms = _glob_ms(check.text) if check.op == "glob" else _TEST_MS
    return ms * (_ANY_VALUES if check.key == ANY_KEY or check.op == "any" else 1)


def _glob_ms(pattern: str) -> float:
    """Return the milliseconds for a glob: of its parts, those between two ``*`` are searched for."""
    parts: list[list[object]] = [[]]
    for piece in parse_pattern(pattern):
        if piece is ANY:
            parts.append([])
        else:
            parts[-1].append(piece)
    inner = parts[1:-1]
    return _TEST_MS * max(1, len(inner)) + _SEARCH_MS * sum(ONE in part for part in inner)


def _has_lookup(leaf: Leaf) -> bool:
    """Return True if the index decides the leaf without a test of the value."""
    if isinstance(leaf, Compare):
        return leaf.key != ANY_KEY
    return kind_of(check_of(leaf)) is not None


class AnchorCounter:
    """Counts, over some messages, how often anchors were there, and which of several terms led to a match.

    Args:
        anchors: that messages are looked up by.
        several: the terms of the subscriptions that have more than one.
    """

    def __init__(self, anchors: Collection[Anchor], several: Terms) -> None:
        self._anchors = anchors
        self._several = several
        self._slots: defaultdict[str, set[Kind]] = defaultdict(set)
        for anchor in anchors:
            self._slots[anchor.key].add(anchor.kind)
        self.begin()

    def begin(self) -> None:
        """Count from 0 on."""
        self.messages: Counter[Anchor] = Counter()
        self.matched: Counter[Anchor] = Counter()

    def add(self, texts: Mapping[str, Sequence[str | None]], count: int) -> None:
        """Count a batch of messages.

        Args:
            texts: metadata by key, one value for each message.
            count: of messages.
        """
        for key, slots in self._slots.items():
            if not key:
                self.messages[ALWAYS] += count
                continue
            for value, times in Counter(texts.get(key, ())).items():
                if value is not None:
                    self._add_value(key, value, slots, times)

    def _add_value(self, key: str, value: str, slots: Iterable[Kind], times: int) -> None:
        for kind in slots:
            for text in prober(kind)(value):
                anchor = Anchor(key, kind, text)
                if anchor in self._anchors:
                    self.messages[anchor] += times

    def match(self, subscription: str, message: Metadata) -> None:
        """Count a match of a subscription with several terms if exactly one is true."""
        for term in self._several.get(subscription, ()):
            if _is_true(term, message):
                self.matched[term.access] += 1
                return


class AnchorTraffic(AnchorCounter):
    """Counts, over the messages of a range, how often an anchor was there and how often that led to a match.

    Args:
        terms: terms of all subscriptions.

    Attributes:
        size: how many terms are under each anchor.
        several: the terms of the subscriptions that have more than one.
    """

    def __init__(self, terms: Terms) -> None:
        self.size = Counter(term.access for own in terms.values() for term in own)
        self.several = {id_: own for id_, own in terms.items() if len(own) > 1}
        self._single = {id_: own[0].access for id_, own in terms.items() if len(own) == 1}
        super().__init__(self.size, self.several)

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """Anchors, in the order of the counts, see `counted`."""
        return tuple(self.size)

    def match(self, subscription: str, message: Metadata) -> None:
        """Count a match: exactly one of the subscription's terms is true."""
        anchor = self._single.get(subscription)
        if anchor is None:
            super().match(subscription, message)
        else:
            self.matched[anchor] += 1

    def counted(self, messages: Mapping[int, int], matched: Mapping[int, int], fired: Mapping[str, int]) -> None:
        """Add the counts that other counters have collected over some messages.

        Args:
            messages: place among the `anchors` → how many messages had it.
            matched: likewise → how often it led to a match of a subscription with several terms.
            fired: subscription → how often it matched.
        """
        anchors = self.anchors
        for indexes, counts in ((messages, self.messages), (matched, self.matched)):
            counts.update({anchors[index]: count for index, count in indexes.items()})
        for id_, count in fired.items():
            anchor = self._single.get(id_)
            if anchor is not None:
                self.matched[anchor] += count

    def in_vain(self, anchor: Anchor) -> int:
        """Return the number of verifications under an anchor that were false."""
        return self.messages[anchor] * self.size[anchor] - self.matched[anchor]


def _is_true(term: Term, message: Metadata) -> bool:
    key, kind, text = term.access
    if term.access != ALWAYS and not any(text in prober(kind)(value) for value in values_at(message, key)):
        return False
    return all(evaluate(check, message) for check in term.checks) and (
        term.rest is None or evaluate(term.rest, message)
    )


def access_of(terms: Terms, hottest: int, traffic: AnchorTraffic | None = None) -> Access:
    """Return the access statistics of terms; the hottest anchors are chosen by wasted verifications, if known."""
    size = traffic.size if traffic else Counter(term.access for own in terms.values() for term in own)
    always = sorted(id_ for id_, own in terms.items() if any(map(is_verified_always, own)))

    def coldness(anchor: Anchor) -> tuple[int, int, str]:
        return (0 if traffic is None else -traffic.in_vain(anchor), -size[anchor], str(anchor))

    chosen = nsmallest(hottest, (anchor for anchor in size if anchor != ALWAYS), key=coldness)
    shown = tuple(
        HotAnchor(
            str(anchor),
            size[anchor],
            None if traffic is None else traffic.messages[anchor],
            None if traffic is None else traffic.in_vain(anchor),
        )
        for anchor in chosen
    )
    by_presence = sorted(id_ for id_, own in terms.items() if any(map(_is_found_by_presence, own)))
    return Access(len(size), size.total(), shown, tuple(always), tuple(by_presence), expensive(terms))


def _is_found_by_presence(term: Term) -> bool:
    """Return True if the index verifies the term for every message that has a key."""
    if term.access.kind.op != "has" or not (term.checks or term.rest):
        return False
    return not any(_is_looked_up(leaf) for leaf in term.checks if not leaf.negated)


def _is_looked_up(leaf: Leaf) -> bool:
    """Return True if the index finds the leaf by more than the presence of its key."""
    check = check_of(leaf)
    kind = kind_of(check)
    kinds = [kind] if kind is not None else [kind for kind, _ in parts_of(check, None) or lookups_of(check)]
    return isinstance(leaf, Compare) or any(kind.op != "has" for kind in kinds) or bool(alternatives_of(check)[1])
