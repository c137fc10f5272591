"""Store in this process's memory, for tests and for routes with subscriptions from a file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from threading import Lock, RLock
from typing import NamedTuple
from urllib.parse import parse_qsl

from turnout.clocks import TrustedClock
from turnout.conditions import Kiwi, leaves
from turnout.errors import ConfigError, Mistake, SubscriptionExistsError, SubscriptionNotFoundError
from turnout.subscriptions.destinations import checked
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription
from turnout.subscriptions.past import (
    DEFAULT_RETENTION,
    Creation,
    Moment,
    PastStore,
    Span,
    due_before,
    now,
    retention_of,
)
from turnout.subscriptions.snapshot import Snapshot
from turnout.subscriptions.store import MAX_LIMIT, Store, StoreBase
from turnout.subscriptions.tenants import TenantStore, prefix_end


class _Gone(NamedTuple):
    """Deleted subscription, with the revisions of its creation and deletion."""

    subscription: Subscription
    born: int
    died: int


_named: dict[str, MemoryStore] = {}
_named_lock = Lock()


class MemoryStore(StoreBase):
    """Keeps subscriptions in a dict. Searches walk all of them."""

    def __init__(self, subscriptions: Iterable[Subscription] = (), *, retention: float = DEFAULT_RETENTION) -> None:
        self._lock = RLock()
        self._subscriptions: dict[str, Subscription] = {}
        self._ids: list[str] = []
        self._born: dict[str, int] = {}
        self._died: dict[str, tuple[int, int]] = {}
        self._revision = 0
        self._retention = retention
        self._past: deque[_Gone] = deque()
        # The time of each revision from the oldest that is remembered on.
        self._times = deque([0])
        self._clock = TrustedClock()
        self._remembered = 0
        self.create_many(subscriptions)

    @classmethod
    def open(cls, url: str) -> MemoryStore:
        """A new store for ``memory://``, and always the same one of this process for ``memory://name``."""
        name, _, query = url.partition("://")[2].partition("?")
        retention = _retention(query)
        if not name:
            return cls(retention=retention)
        with _named_lock:
            store = _named.get(name)
            if store is None:
                store = _named[name] = cls(retention=retention)
            return store

    def create(self, subscription: Subscription) -> str:
        """See `Store.create`."""
        return self.create_many([subscription])[0]

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """See `Store.create_many`."""
        new = [subscription.identified() for subscription in checked(subscriptions)]
        with self._lock:
            seen: set[str] = set()
            for subscription in new:
                if subscription.id in self._subscriptions or subscription.id in seen:
                    raise SubscriptionExistsError(subscription.id)
                seen.add(subscription.id)
            if not new:
                return []
            self._advance()
            for subscription in new:
                self._subscriptions[subscription.id] = subscription
                self._born[subscription.id] = self._revision
            # Sorting two sorted runs is linear, so this costs no more than inserting one id does.
            self._ids.extend(sorted(seen))
            self._ids.sort()
        return [subscription.id for subscription in new]

    def read(self, id: str) -> Subscription:  # noqa: A002 - the field's own name
        """See `Store.read`."""
        subscription = self._subscriptions.get(id)
        if subscription is None:
            raise SubscriptionNotFoundError(id)
        return subscription

    def delete(self, id: str) -> None:  # noqa: A002 - the field's own name
        """See `Store.delete`."""
        self.delete_many([id])

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`."""
        distinct = dict.fromkeys(ids)
        with self._lock:
            for id_ in distinct:
                if id_ not in self._subscriptions:
                    raise SubscriptionNotFoundError(id_)
            if distinct:
                self._advance()
            for id_ in distinct:
                self._forget(id_)
            if len(distinct) == 1:
                (id_,) = distinct
                del self._ids[bisect_right(self._ids, id_) - 1]
            else:
                self._ids = [id_ for id_ in self._ids if id_ not in distinct]

    def _forget(self, id_: str) -> None:
        """Move a subscription to the deleted ones of the current revision."""
        deleted = self._subscriptions.pop(id_)
        if self._retention:
            self._past.append(_Gone(deleted, self._born[id_], self._revision))
        # A reused id keeps its first creation revision, so that readers of that time still see the deletion.
        born = min(self._born.pop(id_), self._died.pop(id_, (self._revision, 0))[0])
        self._died[id_] = (born, self._revision)

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        pattern_key = (key, pattern, partial)
        matches = (
            ConditionMatch(subscription.id, leaf.id, subscription)
            for subscription in self._after(cursor, prefix)
            for leaf in islice(_kiwis(subscription, pattern_key), 1)
        )
        size = min(limit, MAX_LIMIT)
        return Page.of(islice(matches, size + 1), size, lambda match: match.subscription_id)

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        pairs = metadata.items()
        holders = (
            subscription for subscription in self._after(cursor, prefix) if pairs <= subscription.metadata.items()
        )
        size = min(limit, MAX_LIMIT)
        return Page.of(islice(holders, size + 1), size, lambda subscription: subscription.id)

    def revision(self) -> int:
        """See `Store.revision`."""
        return self._revision

    def changes(self, since: int, prefix: str = "") -> Changes:
        """See `Store.changes`."""
        with self._lock:
            if since == self._revision:
                return Changes(since)
            if not 0 <= since < self._revision:
                return Changes(self._revision, tuple(self._after("", prefix)), reset=True)
            # Both are in the order in which things happened: only what is new is walked.
            born = takewhile(lambda item: item[1] > since, reversed(self._born.items()))
            created = [id_ for id_, _ in born if id_.startswith(prefix)]
            died = takewhile(lambda item: item[1][1] > since, reversed(self._died.items()))
            deleted = tuple(id_ for id_, (first, _) in died if first <= since and id_.startswith(prefix))
            return Changes(self._revision, tuple(self._subscriptions[id_] for id_ in reversed(created)), deleted)

    def snapshot(self, prefix: str = "") -> Snapshot:
        """See `Store.snapshot`."""
        with self._lock:
            return Snapshot(tuple(self._after("", prefix)), self._revision)

    def _advance(self) -> None:
        """Begin the next revision, and forget subscriptions deleted before the retention period."""
        self._revision += 1
        self._times.append(now())
        limit = due_before(self._clock, self._retention, None)
        for _ in range(self._due(limit)):
            self._times.popleft()
            self._remembered += 1
        while self._past and self._past[0].died <= self._remembered:
            self._past.popleft()

    def _due(self, limit: int) -> int:
        """Return the number of revisions to forget: all before the last one due like its predecessor."""
        due = 0
        for index in range(1, len(self._times)):
            if self._times[index] <= limit and self._times[index - 1] <= limit:
                due = index
            elif index > due + 2:
                break
        return due

    def as_of(self, moment: Moment, prefix: str = "") -> PastStore:
        """See `VersionedStore.as_of`."""
        with self._lock:
            return PastStore(self, self._revision_at(moment), prefix)

    def _revision_at(self, moment: Moment) -> int:
        def last_until(at: int) -> int | None:
            newest_first = zip(range(self._revision, -1, -1), reversed(self._times), strict=False)
            return next((revision for revision, recorded in newest_first if recorded <= at), None)

        return Span(self._remembered, self._revision, self._times[0]).revision(moment, last_until)

    def read_at(self, revision: int, id: str) -> Subscription | None:  # noqa: A002 - the field's own name
        """See `turnout.subscriptions.past.Remembering`."""
        return next((subscription for subscription in self.snapshot_at(revision, id) if subscription.id == id), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        with self._lock:
            self._revision_at(revision)
            then = [state.subscription for state in self._past if state.born <= revision < state.died]
            then += [
                subscription for subscription in self._subscriptions.values() if self._born[subscription.id] <= revision
            ]
        return tuple(
            sorted(
                (subscription for subscription in then if subscription.id.startswith(prefix)),
                key=lambda subscription: subscription.id,
            )
        )

    def births(self, prefix: str = "") -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        with self._lock:
            return {id_: self._birth(born) for id_, born in self._born.items() if id_.startswith(prefix)}

    def _birth(self, revision: int) -> Creation:
        index = revision - self._remembered
        return Creation.of(revision, self._times[index] if index >= 0 else None)

    def for_tenant(self, name: str) -> Store:
        """See `MultiTenantStore.for_tenant`."""
        return TenantStore(self, name)

    def _after(self, cursor: str, prefix: str) -> Iterator[Subscription]:
        """Yield the subscriptions after the cursor in the range of the prefix, ordered by id."""
        with self._lock:
            first = bisect_right(self._ids, max(cursor, prefix))
            last = bisect_left(self._ids, prefix_end(prefix)) if prefix else None
            present = [self._subscriptions[id_] for id_ in self._ids[first:last]]
        return iter(present)


def _retention(query: str) -> float:
    """Parse the retention in a URL's query.

    Raises:
        ConfigError: it says something else.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    written = options.pop("retention", f"{DEFAULT_RETENTION:.0f}s")
    retention = retention_of(written)
    mistakes = [Mistake("store", f"unknown option {name!r}; there is retention") for name in options]
    if retention is None:
        mistakes.append(Mistake("store", f"retention is as 12h, 30d, 0 or forever, found {written!r}"))
    if retention is None or mistakes:
        raise ConfigError(mistakes)
    return retention


def _kiwis(subscription: Subscription, pattern_key: tuple[str, str, bool]) -> Iterator[Kiwi]:
    for leaf in leaves(subscription.condition):
        if isinstance(leaf, Kiwi) and (leaf.key, leaf.pattern, leaf.partial) == pattern_key:
            yield leaf
