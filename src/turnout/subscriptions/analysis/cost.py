"""Lookup costs of subscriptions: anchors shared by many terms, and wasted matching work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest

from turnout.base.multivalued import Metadata, values_at
from turnout.conditions import Compare, Leaf, evaluate
from turnout.conditions.anchor import ALWAYS, Anchor, Kind, prober
from turnout.conditions.check import check_of, lookups_of
from turnout.conditions.terms import Term, is_verified_always
from turnout.subscriptions.analysis.expensive import Terms, expensive
from turnout.subscriptions.analysis.findings import Access, HotAnchor
from turnout.subscriptions.index.facts import kind_of, parts_of


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
    return isinstance(leaf, Compare) or any(kind.op != "has" for kind in kinds)
