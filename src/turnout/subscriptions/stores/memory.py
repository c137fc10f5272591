"""Store in this process's memory, for tests and for routes with subscriptions from a file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, takewhile
from threading import Lock, RLock
from urllib.parse import parse_qsl

from turnout.base.clocks import TrustedClock
from turnout.conditions import Kiwi, leaves
from turnout.errors import (
    ConfigError,
    Mistake,
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.destinations import checked
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription
from turnout.subscriptions.past import (
    DEFAULT_RETENTION,
    AuditEntry,
    Creation,
    Moment,
    PastStore,
    RecordedMoment,
    Snapshot,
    Span,
    Version,
    audit_entries,
    current_actor,
    due_before,
    now,
    retention_of,
)
from turnout.subscriptions.sealing import sealed_all, stored_version
from turnout.subscriptions.store import MAX_LIMIT, ChangeSet, Store, StoreBase
from turnout.subscriptions.tenants import TenantStore, prefix_end

_named: dict[str, MemoryStore] = {}
_named_lock = Lock()


class MemoryStore(StoreBase):
    """Keeps subscriptions in a dict. Searches walk all of them."""

    def __init__(self, subscriptions: Iterable[Subscription] = (), *, retention: float = DEFAULT_RETENTION) -> None:
        self._lock = RLock()
        self._subscriptions: dict[str, Subscription] = {}
        self._ids: list[str] = []
        # In the order of revisions.
        self._born: dict[str, int] = {}
        self._died: dict[str, tuple[int, int]] = {}
        self._revision = 0
        self._retention = retention
        self._past: deque[Version] = deque()
        # Time and actor of each revision from the oldest that is remembered on.
        self._moments = deque([RecordedMoment(0, "")])
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
        """See `BulkStore.create_many`."""
        new = [subscription.identified() for subscription in sealed_all(checked(subscriptions))]
        with self._lock:
            new_ids: set[str] = set()
            for subscription in new:
                if subscription.id in self._subscriptions or subscription.id in new_ids:
                    raise SubscriptionExistsError(subscription.id)
                new_ids.add(subscription.id)
            if not new:
                return []
            self._advance()
            for subscription in new:
                self._keep(subscription)
            # Sorting two sorted runs is linear, so this costs no more than inserting one id does.
            self._ids.extend(sorted(new_ids))
            self._ids.sort()
        return [subscription.id for subscription in new]

    def _keep(self, subscription: Subscription) -> None:
        """Take a version in, of the current revision."""
        self._subscriptions[subscription.id] = replace(subscription, revision=self._revision)
        self._born[subscription.id] = self._revision

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """See `Store.update`."""
        version = stored_version(id, subscription, self.read).identified()
        with self._lock:
            born = self.read(id).revision
            if expected_revision is not None and expected_revision != born:
                raise SubscriptionConflictError(id, expected_revision, born)
            self._advance()
            self._forget(id)
            self._keep(version)
            return self._revision

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""
        subscription = self._subscriptions.get(id)
        if subscription is None:
            raise SubscriptionNotFoundError(id)
        return subscription

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """See `Store.delete`."""
        with self._lock:
            born = self.read(id).revision
            if expected_revision is not None and expected_revision != born:
                raise SubscriptionConflictError(id, expected_revision, born)
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

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.store.AtomicStore`."""
        created = [one.identified() for one in sealed_all(checked(changes.created))]
        updated = [stored_version(one.id, one, self.read).identified() for one in changes.updated]
        with self._lock:
            stored = ((id_, self._subscriptions.get(id_)) for id_ in changes.ids())
            changes.check({id_: one.revision for id_, one in stored if one is not None})
            self._advance()
            for id_ in changes.replaced():
                self._forget(id_)
            for one in (*created, *updated):
                self._keep(one)
            self._ids = sorted(
                [*(id_ for id_ in self._ids if id_ not in changes.deleted), *(one.id for one in created)]
            )
            return self._revision

    def _forget(self, id_: str) -> None:
        """Move a subscription to the deleted ones of the current revision."""
        deleted = self._subscriptions.pop(id_)
        if self._retention:
            self._past.append(Version(deleted, self._born[id_], self._revision))
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
            # Both are in chronological order: only new entries are read.
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
        self._moments.append(RecordedMoment(now(), current_actor()))
        limit = due_before(self._clock, self._retention, None)
        for _ in range(self._due(limit)):
            self._moments.popleft()
            self._remembered += 1
        while self._past and (self._past[0].died or 0) <= self._remembered:
            self._past.popleft()

    def _due(self, limit: int) -> int:
        """Return the number of revisions to forget: all before the last one due like its predecessor."""
        due = 0
        for index in range(1, len(self._moments)):
            if self._moments[index].at <= limit and self._moments[index - 1].at <= limit:
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
            newest_first = zip(range(self._revision, -1, -1), reversed(self._moments), strict=False)
            return next((revision for revision, recorded in newest_first if recorded.at <= at), None)

        return Span(self._remembered, self._revision, self._moments[0].at).revision(moment, last_until)

    def read_at(self, revision: int, id: str) -> Subscription | None:
        """See `turnout.subscriptions.past.Remembering`."""
        return next((subscription for subscription in self.snapshot_at(revision, id) if subscription.id == id), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        with self._lock:
            self._revision_at(revision)
            then = [old.subscription for old in self._past if old.born <= revision < (old.died or 0)]
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
        moment = self._moment(revision)
        return Creation.of(revision, moment.at if moment else None)

    def _moment(self, revision: int) -> RecordedMoment | None:
        index = revision - self._remembered
        return self._moments[index] if index >= 0 else None

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """See `VersionedStore.history`."""
        with self._lock:
            versions = [version for version in self._past if version.subscription.id == id]
            if not versions or id in self._subscriptions:
                versions.append(Version(self.read(id), self._born[id], None))
            return audit_entries(versions, self._remembered, self._moment) if self._retention else ()

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
