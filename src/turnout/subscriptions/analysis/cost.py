"""What it costs to look subscriptions up: which anchors many terms are under, and what is verified in vain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest

from turnout.conditions import evaluate
from turnout.conditions.anchor import ALWAYS, Anchor, Kind, prober
from turnout.conditions.terms import Term
from turnout.subscriptions.analysis.findings import Access, HotAnchor

__all__ = ["AnchorTraffic", "Terms", "access_of"]

Terms = Mapping[str, Sequence[Term]]
"""Subscription → its disjoint terms."""


class AnchorTraffic:
    """Counts, over the messages of a range, how often an anchor was there and how often that led to a match.

    Args:
        terms: of all subscriptions.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._slots: defaultdict[str, set[Kind]] = defaultdict(set)
        self.size = Counter(term.access for own in terms.values() for term in own)
        for anchor in self.size:
            self._slots[anchor.key].add(anchor.kind)
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
                if anchor in self.size:
                    self.messages[anchor] += times

    def match(self, subscription: str, message: Mapping[str, str]) -> None:
        """Count a match: exactly one of the subscription's terms is true."""
        terms = self._terms[subscription]
        if len(terms) == 1:
            self.matched[terms[0].access] += 1
            return
        for term in terms:
            if _is_true(term, message):
                self.matched[term.access] += 1
                return

    def in_vain(self, anchor: Anchor) -> int:
        """How many verifications under an anchor came out false."""
        return self.messages[anchor] * self.size[anchor] - self.matched[anchor]


def _is_true(term: Term, message: Mapping[str, str]) -> bool:
    key, kind, text = term.access
    if term.access != ALWAYS and (key not in message or text not in prober(kind)(message[key])):
        return False
    return all(evaluate(check, message) for check in term.checks) and (
        term.rest is None or evaluate(term.rest, message)
    )


def access_of(terms: Terms, hottest: int, traffic: AnchorTraffic | None = None) -> Access:
    """How subscriptions are looked up, by their terms; the hottest anchors by what was verified in vain, if known."""
    size = traffic.size if traffic else Counter(term.access for own in terms.values() for term in own)
    always = sorted(id_ for id_, own in terms.items() if any(term.access == ALWAYS for term in own))

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
    return Access(len(size), size.total(), shown, tuple(always))
