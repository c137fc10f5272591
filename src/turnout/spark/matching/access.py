"""How the entries of an index are found: each in one slot, under one text.

An entry has an anchor, and what has that anchor is a candidate. Where many records have it (a carrier, a day), the
entries under it are candidates in vain, over and over. An entry that needs more than one thing can be found by two of
them at once: ``carrier = UA`` and ``dest = SFO``. That is one more probe for each record, so a pair of kinds becomes a
slot only where the entries in it save more candidates than the probe costs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from turnout.conditions.anchor import ALWAYS, Anchor, Kind, anchors_of_check, prober
from turnout.conditions.check import Check
from turnout.subscriptions.entries import Entry, Tree

__all__ = ["PROBE", "Part", "Placed", "Plan", "Slot", "pair_text"]

Part: TypeAlias = tuple[str, Kind]
"""A key, and how a probe is made of its value."""

Slot: TypeAlias = tuple[Part, ...]
"""Where to probe: with the text of one part, or the texts of two at once. Empty for what cannot be looked up."""

PROBE = 0.5
"""What one more probe costs a record, in candidates that are verified in vain. Measured, roughly."""

_LOOKED_AT = 20_000
"""How many entries tell which pairs are worth a slot."""

_SINGLE = ("=", "^", "$")
"""The kinds of probes that a value gives one of, and that tell values apart."""


class Placed(NamedTuple):
    """An entry in its place: what finds it, and what is left to verify then."""

    slot: Slot
    text: str
    subscription_id: str
    destinations: tuple[str, ...]
    checks: tuple[Check, ...]
    tree: Tree | None

    @property
    def every_check(self) -> tuple[Check, ...]:
        """Its checks, and those in its tree."""
        return self.checks if self.tree is None else (*self.checks, *self.tree.checks)


def pair_text(first: str, second: str) -> str:
    """The text under which a pair stands; no two pairs have the same."""
    return f"{len(first)}:{first}{second}"


class _Shares(Protocol):
    """What share of the records has an anchor, or two of them."""

    def of(self, anchor: Anchor) -> float: ...

    def of_both(self, first: Anchor, second: Anchor) -> float: ...


class _Sampled:
    """Shares as they are in a sample of messages."""

    def __init__(self, sample: Collection[Mapping[str, str]]) -> None:
        self._sample = sample
        self._texts: dict[Part, list[Collection[str]]] = {}
        self._counts: dict[Slot, Counter[tuple[str, ...]]] = {}

    def of(self, anchor: Anchor) -> float:
        return self._share(((anchor.key, anchor.kind),), (anchor.text,))

    def of_both(self, first: Anchor, second: Anchor) -> float:
        return self._share(((first.key, first.kind), (second.key, second.kind)), (first.text, second.text))

    def _share(self, slot: Slot, texts: tuple[str, ...]) -> float:
        if slot not in self._counts:
            columns = [self._probes(part) for part in slot]
            if len(slot) == 1:
                self._counts[slot] = Counter((text,) for probes in columns[0] for text in probes)
            else:
                # A kind that gives several probes is never in a pair.
                both = zip(*columns, strict=True)
                self._counts[slot] = Counter((*one, *other) for one, other in both if one and other)
        return self._counts[slot][texts] / len(self._sample)

    def _probes(self, part: Part) -> list[Collection[str]]:
        if part not in self._texts:
            key, probe = part[0], prober(part[1])
            self._texts[part] = [tuple(probe(message[key])) if key in message else () for message in self._sample]
        return self._texts[part]


class _Guessed:
    """Shares as they would be if messages had each value as often as subscriptions ask for it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._counts: dict[Part, Counter[str]] = defaultdict(Counter)
        for entry in entries:
            for anchor in {entry.access, *_others(entry)}:
                self._counts[anchor.key, anchor.kind][anchor.text] += 1
        self._totals = {part: counts.total() for part, counts in self._counts.items()}

    def of(self, anchor: Anchor) -> float:
        part = anchor.key, anchor.kind
        if part not in self._counts:
            return 0.0
        # The entry itself does not count: what a few thousand of a million entries ask for once each is not what a few
        # thousandths of the records have. And of a few entries one cannot tell.
        return max(0, self._counts[part][anchor.text] - 1) / (self._totals[part] + _FEW)

    def of_both(self, first: Anchor, second: Anchor) -> float:
        return self.of(first) * self.of(second)


_FEW = 16


class Plan:
    """Decides how entries are found: by the pairs that were worth a slot when an index was built.

    Args:
        entries: of the index.
        sample: metadata of typical messages; without, subscriptions are taken for as many messages.
    """

    def __init__(self, entries: Sequence[Entry], sample: Collection[Mapping[str, str]] = ()) -> None:
        looked_at = entries
        if len(entries) > _LOOKED_AT:
            looked_at = Random(len(entries)).sample(entries, _LOOKED_AT)  # noqa: S311 - reproducible on purpose
        self._shares: _Shares = _Sampled(sample) if sample else _Guessed(looked_at)
        self._pairs = self._worthwhile(looked_at, len(entries) / max(1, len(looked_at)))

    def _worthwhile(self, entries: Sequence[Entry], scale: float) -> frozenset[Slot]:
        """The pairs of parts that save more candidates than they cost."""
        options: list[dict[Slot, float]] = []
        for entry in entries:
            saved = {_slot(entry.access, other): self._saving(entry.access, other) for other in _others(entry)}
            saved = {slot: saving * scale for slot, saving in saved.items() if saving > 0}
            if saved:
                options.append(saved)
        slots = {slot for saved in options for slot in saved}
        while slots:
            total = dict.fromkeys(slots, 0.0)
            for saved in options:
                best = max((slot for slot in saved if slot in slots), key=saved.__getitem__, default=None)
                if best is not None:
                    total[best] += saved[best]
            # Without the one that saves least, its entries may make another worthwhile.
            least = min(total, key=lambda slot: (total[slot], slot))
            if total[least] > PROBE:
                break
            slots = {slot for slot in slots if slot != least and total[slot] > PROBE / 8}
        return frozenset(slots)

    def _saving(self, access: Anchor, other: Anchor) -> float:
        share = self._shares.of(access)
        return share - self._shares.of_both(*_in_order(access, other)) if share else 0.0

    def place(self, entry: Entry) -> Placed:
        """Where the entry belongs."""
        access, id_, destinations, checks, tree = entry
        if access == ALWAYS:
            return Placed((), "", id_, destinations, checks, tree)
        other = self._best(entry) if self._pairs else None
        if other is None:
            return Placed(((access.key, access.kind),), access.text, id_, destinations, checks, tree)
        first, second = _in_order(access, other)
        left = tuple(check for check in checks if not _told(other, check))
        return Placed(_slot(first, second), pair_text(first.text, second.text), id_, destinations, left, tree)

    def _best(self, entry: Entry) -> Anchor | None:
        """What the entry's anchor is best paired with; None if with nothing."""
        best, most = None, 0.0
        for other in _others(entry):
            if _slot(entry.access, other) in self._pairs and (saving := self._saving(entry.access, other)) >= most:
                best, most = other, saving
        return best


def _others(entry: Entry) -> Iterator[Anchor]:
    """What else a record needs to have for the entry to be true, if it can be paired with its anchor."""
    if entry.access.kind.op not in _SINGLE or entry.access.kind.lexeme:
        return
    for check in entry.checks:
        for anchor in anchors_of_check(check):
            if anchor.kind.op in _SINGLE and not anchor.kind.lexeme and anchor != entry.access:
                yield anchor


def _told(anchor: Anchor, check: Check) -> bool:
    """Whether the anchor is all that the check asks for."""
    if check.negated or check.partial or (anchor.key, anchor.kind.fold) != (check.key, check.fold):
        return False
    return anchor.kind.op == check.op and anchor.text == check.text


def _in_order(first: Anchor, second: Anchor) -> tuple[Anchor, Anchor]:
    return (first, second) if first <= second else (second, first)


def _slot(first: Anchor, second: Anchor) -> Slot:
    return tuple((anchor.key, anchor.kind) for anchor in _in_order(first, second))
