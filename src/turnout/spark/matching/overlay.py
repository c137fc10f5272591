"""An index and what has changed since it was built, so that one new subscription does not build it anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from turnout.spark.matching.access import Placed, Plan
from turnout.spark.matching.sparing import spared
from turnout.subscriptions import Changes, Subscription
from turnout.subscriptions.entries import Entry, Popularity, entries_of

__all__ = ["Base", "Overlay"]

_LEAST = 1000
_SHARE = 20
"""An overlay is folded into its base when it is larger than a twentieth of it, and than `_LEAST`."""


class Base:
    """The entries of all subscriptions at one moment. Built once, never changed."""

    def __init__(self, subscriptions: Iterable[Subscription], sample: Collection[Mapping[str, str]] = ()) -> None:
        self.sample = sample
        self.subscriptions = {one.id: one for one in subscriptions}
        popularity = Popularity(self.subscriptions.values(), sample)
        terms = {one.id: entries_of(one, popularity) for one in self.subscriptions.values()}
        self.popularity = spared(self.subscriptions, terms, popularity) if sample else popularity
        self.entries: list[Entry] = list(chain.from_iterable(terms.values()))
        self.plan = Plan(self.entries, sample)
        self.placed = [*map(self.plan.place, self.entries)]


class Overlay:
    """What was created and deleted since *base* was built."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.gone: set[str] = set()
        self.new: dict[str, Subscription] = {}

    def __bool__(self) -> bool:
        return bool(self.gone or self.new)

    def entries(self) -> list[Entry]:
        """The entries of what is new."""
        return [entry for one in self.new.values() for entry in entries_of(one, self.base.popularity)]

    def placed(self) -> list[Placed]:
        """The same, in the base's slots where these have a place for them."""
        return [*map(self.base.plan.place, self.entries())]

    def apply(self, changes: Changes) -> Overlay:
        """The overlay after these changes: this one, or an empty one over a new base where it would be too large."""
        if changes.reset:
            return Overlay(Base(changes.created, self.base.sample))
        for id_ in changes.deleted_ids:
            self.new.pop(id_, None)
            if id_ in self.base.subscriptions:
                self.gone.add(id_)
        self.new |= {one.id: one for one in changes.created}
        if len(self.gone) + len(self.new) <= max(_LEAST, len(self.base.subscriptions) // _SHARE):
            return self
        left = (one for one in self.base.subscriptions.values() if one.id not in self.gone)
        return Overlay(Base([*left, *self.new.values()], self.base.sample))
