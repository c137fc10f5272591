"""Finding, in this process, every subscription that wants a message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from threading import RLock

from turnout.conditions import evaluate, leaves
from turnout.conditions.anchor import ALWAYS, Anchor
from turnout.subscriptions.entries import Popularity, entries_of
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.postings import Postings
from turnout.subscriptions.snapshot import Snapshot
from turnout.subscriptions.store import Store

__all__ = ["IndexStats", "Match", "Matcher"]


@dataclass(frozen=True, slots=True)
class Match:
    """A subscription that wants a message.

    Attributes:
        subscription_id: which one.
        destinations: where it wants the message to go.
        leaf_ids: the ids of the leaves that are true of the message, negated ones included, left to right.
    """

    subscription_id: str
    destinations: tuple[str, ...]
    leaf_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexStats:
    """What an index looks like from inside.

    Attributes:
        subscriptions: how many there are.
        terms: how many entries they make.
        anchors: how many different anchors these are under.
        always: how many terms have no anchor: each of them is verified on every message.
        hottest: the anchors with the most terms, and how many; these cost most when a message has them.
    """

    subscriptions: int
    terms: int
    anchors: int
    always: int
    hottest: tuple[tuple[Anchor, int], ...]


class Matcher:
    """An index of subscriptions that follows its store by revision.

    It is safe to use from several threads; a match sees a change as a whole or not at all.

    Args:
        subscriptions: what to begin with. Each needs an id.
        sample: metadata of typical messages: what is rare in it is preferred to look subscriptions up by.
        revision: the store's revision that the subscriptions are of.
    """

    def __init__(
        self,
        subscriptions: Iterable[Subscription] = (),
        *,
        sample: Collection[Mapping[str, str]] = (),
        revision: int = 0,
    ) -> None:
        self._lock = RLock()
        self._sample = sample
        self._start(tuple(subscriptions), revision)

    @classmethod
    def from_store(cls, store: Store | Snapshot, *, sample: Collection[Mapping[str, str]] = ()) -> Matcher:
        """A matcher of everything in the store, at its present revision."""
        snapshot = store if isinstance(store, Snapshot) else store.snapshot()
        return cls(snapshot.subscriptions, sample=sample, revision=snapshot.revision)

    def _start(self, subscriptions: tuple[Subscription, ...], revision: int) -> None:
        self._popularity = Popularity(subscriptions, self._sample)
        self._subscriptions: dict[str, Subscription] = {}
        self._anchors: dict[str, tuple[Anchor, ...]] = {}
        self._postings = Postings()
        self.revision = revision
        for subscription in subscriptions:
            self.add(subscription)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(self, subscription: Subscription) -> None:
        """Take a subscription in; one of the same id makes way."""
        if not subscription.id:
            raise ValueError("a subscription needs an id to be matched: store it first")
        entries = entries_of(subscription, self._popularity)
        with self._lock:
            self.remove(subscription.id)
            self._subscriptions[subscription.id] = subscription
            self._anchors[subscription.id] = tuple({entry.access for entry in entries})
            for entry in entries:
                self._postings.add(entry)

    def remove(self, id: str) -> None:  # noqa: A002 - the field's own name
        """Forget a subscription; an unknown id is forgotten already."""
        with self._lock:
            if self._subscriptions.pop(id, None) is not None:
                for anchor in self._anchors.pop(id):
                    self._postings.remove(anchor, id)

    def apply(self, changes: Changes) -> None:
        """Follow what happened in the store since this matcher's revision."""
        with self._lock:
            if changes.reset:
                self._start(changes.created, changes.revision)
                return
            for gone in changes.deleted_ids:
                self.remove(gone)
            for subscription in changes.created:
                self.add(subscription)
            self.revision = changes.revision

    def refresh(self, store: Store) -> bool:
        """Catch up with the store; whether anything had changed."""
        changes = store.changes(self.revision)
        self.apply(changes)
        return bool(changes)

    def match(self, metadata: Mapping[str, str]) -> list[Match]:
        """Every subscription whose condition is true of the message, each once, in no particular order."""
        with self._lock:
            found = [self._subscriptions[entry.subscription_id] for entry in self._postings.match(metadata)]
        return [
            Match(
                subscription.id,
                tuple(subscription.destinations),
                tuple(leaf.id for leaf in leaves(subscription.condition) if evaluate(leaf, metadata)),
            )
            for subscription in found
        ]

    def stats(self, hottest: int = 10) -> IndexStats:
        """What the index looks like; it walks all of it."""
        with self._lock:
            sizes = dict(self._postings.sizes())
        always = sizes.pop(ALWAYS, 0)
        return IndexStats(
            len(self),
            sum(sizes.values()) + always,
            len(sizes),
            always,
            tuple(nlargest(hottest, sizes.items(), key=lambda sized: sized[1])),
        )
