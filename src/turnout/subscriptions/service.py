"""Use cases of the subscriptions service, without wire formats and SQL."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from turnout.base.files import private_file
from turnout.conditions import Kiwi, leaves
from turnout.conditions.pattern import check_pattern
from turnout.errors import StoreUnavailableError, SubscriptionError, SubscriptionInvalidError
from turnout.subjects.pattern import Rights
from turnout.subscriptions.destinations import refusals_of
from turnout.subscriptions.lines import PlainLine, create_read, read_lines, whole_subscription
from turnout.subscriptions.model import ConditionMatch, Page, Subscription
from turnout.subscriptions.past import AuditEntry
from turnout.subscriptions.search import SCANNED, Search, find
from turnout.subscriptions.store import (
    ChangeSet,
    PlainLineStore,
    Store,
    apply,
    create_many,
    delete,
    delete_many,
    history_of,
)
from turnout.subscriptions.tenants import Quota, UsageCounter
from turnout.subscriptions.validation import check, check_id

LOCK_SECONDS = 30.0
"""Seconds after which a lock expires, so that a dead holder does not block the pair for ever."""


class PairNotFoundError(SubscriptionError, LookupError):
    """Raised when a pair that is to be removed is not registered."""


class PatternRegistry(Protocol):
    """Registry of (key, pattern) pairs in use by subscriptions."""

    def create(self, key: str, pattern: str) -> None:
        """Register a pair; nothing changes if it is registered.

        Raises:
            StoreUnavailableError: the pair is locked; try again.
        """
        ...

    def lock_create(self, key: str, pattern: str) -> None:
        """Stop the creation of a pair.

        Raises:
            StoreUnavailableError: it is locked already; try again.
        """
        ...

    def unlock_create(self, key: str, pattern: str) -> None:
        """Allow it again; nothing changes if it is not locked."""
        ...

    def delete(self, key: str, pattern: str) -> None:
        """Remove a pair.

        Raises:
            PairNotFoundError: it is not registered.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class KiwiTree:
    """A registry in one SQLite file, or in memory. Locks live in this process and end by themselves.

    Args:
        path: the file; memory if there is none.
        clock: seconds that only grow.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._locked: dict[tuple[str, str], float] = {}
        self._pairs = sqlite3.connect(
            private_file(path) if path else ":memory:", isolation_level=None, check_same_thread=False
        )
        self._pairs.execute("PRAGMA journal_mode = wal")
        self._pairs.execute(
            "CREATE TABLE IF NOT EXISTS pair (key TEXT, pattern TEXT, PRIMARY KEY (key, pattern)) WITHOUT ROWID"
        )

    def create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.create`.

        Raises:
            SubscriptionInvalidError: there is no key.
            ConditionError: the pattern is not one of kiwi tree's.
        """
        if not key:
            raise SubscriptionInvalidError("a pair needs a key")
        check_pattern(pattern, tree=True)
        with self._alone():
            self._need_unlocked(key, pattern)
            self._pairs.execute("INSERT INTO pair VALUES (?, ?) ON CONFLICT DO NOTHING", (key, pattern))

    def lock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.lock_create`."""
        with self._alone():
            self._need_unlocked(key, pattern)
            self._locked[key, pattern] = self._clock() + LOCK_SECONDS

    def unlock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.unlock_create`."""
        with self._alone():
            self._locked.pop((key, pattern), None)

    def delete(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.delete`."""
        with self._alone():
            deleted = self._pairs.execute("DELETE FROM pair WHERE (key, pattern) = (?, ?)", (key, pattern))
            if not deleted.rowcount:
                raise PairNotFoundError(f"the pair {key!r}, {pattern!r} is not registered")

    def pairs(self) -> list[tuple[str, str]]:
        """Return every pair, sorted."""
        with self._alone():
            return self._pairs.execute("SELECT key, pattern FROM pair").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._pairs.close()

    def _need_unlocked(self, key: str, pattern: str) -> None:
        until = self._locked.get((key, pattern))
        if until is not None and until > self._clock():
            raise StoreUnavailableError(f"the pair {key!r}, {pattern!r} is locked: try again")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as failure:
                raise StoreUnavailableError(f"the kiwi tree's file failed: {failure}") from failure


_USUAL = Rights()

_Read = TypeVar("_Read", Subscription, Subscription | PlainLine)

DEFAULT_LIMIT = 100
"""The page size for callers who give none: a limit of 0 in the original meant all of them."""

_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds between attempts to register a pair that is locked: a delete holds it for milliseconds."""


@dataclass(frozen=True, slots=True)
class KiwiTrees:
    """Two pattern registries in addition to the store: for whole values, and for lexemes."""

    complete: PatternRegistry
    partial: PatternRegistry

    def of(self, leaf: Kiwi) -> PatternRegistry:
        """Return the one that a leaf's pattern belongs into."""
        return self.partial if leaf.partial else self.complete


class SubscriptionService:
    """Validates, stores, reads, deletes and searches.

    Args:
        store: store of the subscriptions.
        kiwi_trees: the registries to keep in step with the store, as the original did.
        max_page: the largest page; a larger limit is taken as this one.
        everybodys: store of all subscriptions whose patterns the registries hold, if *store* is only a tenant's.
        rights: destinations that callers may name.
        quota: limits of what is in *store*.
        usage: counts that; needed with a quota.
        by_tenant: True if the caller is a tenant, or acts for one: it does not choose the quota of deliveries that is
            recorded with a subscription.
    """

    def __init__(
        self,
        store: Store,
        *,
        kiwi_trees: KiwiTrees | None = None,
        max_page: int = 1_000,
        everybodys: Store | None = None,
        rights: Rights = _USUAL,
        quota: Quota | None = None,
        usage: UsageCounter | None = None,
        by_tenant: bool = False,
    ) -> None:
        self.store = store
        self._quota = quota
        self._usage = usage
        self._by_tenant = by_tenant
        self._everybodys = store if everybodys is None else everybodys
        self._kiwi_trees = kiwi_trees
        self._max_page = max_page
        self._rights = rights

    def create(self, subscription: Subscription) -> str:
        """Store a new subscription and return its id.

        Raises:
            SubscriptionInvalidError: it breaks a rule; see `turnout.subscriptions.validation`.
            SubscriptionExistsError: its id is taken.
            StoreUnavailableError: the same call may work later.
        """
        return self.create_many([subscription])[0]

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """Store all subscriptions, or none if one is refused, and return their ids."""
        new = list(map(self._with_quota, subscriptions))
        for number, subscription in enumerate(new, 1):
            try:
                check(subscription)
                self._check_rights(subscription)
            except SubscriptionInvalidError as problem:
                if len(new) == 1:
                    raise
                raise SubscriptionInvalidError(f"subscription {number} of {len(new)}: {problem}") from problem
        with self._within_quota(new):
            if self._kiwi_trees is None:
                return create_many(self.store, new)
            return self._create_registered(new, self._kiwi_trees)

    def read_lines(self, lines: Iterable[str | bytes]) -> list[Subscription | PlainLine]:
        """Read JSON lines for `create_read`, which stores usual ones without making subscriptions of them.

        Raises:
            SubscriptionInvalidError: a line breaks a rule; the message has its number.
        """
        plain = self._kiwi_trees is None and self._quota is None and isinstance(self.store, PlainLineStore)
        return list(read_lines(lines, plain=plain))

    def create_read(self, new: Sequence[Subscription | PlainLine]) -> list[str]:
        """Store what `read_lines` gave, all or none, and return the ids.

        Raises:
            SubscriptionInvalidError: this service may not publish to a destination.
        """
        allowed: set[str] = set()
        for number, subscription in enumerate(new, 1):
            if not allowed.issuperset(subscription.destinations):
                try:
                    self._check_rights(subscription)
                except SubscriptionInvalidError as problem:
                    raise SubscriptionInvalidError(f"subscription {number} of {len(new)}: {problem}") from problem
                allowed.update(subscription.destinations)
        if self._kiwi_trees is None and self._quota is None:
            return create_read(self.store, map(self._with_quota, new))
        return self.create_many(map(whole_subscription, new))

    def _with_quota(self, subscription: _Read) -> _Read:
        """Return a subscription with the caller's quota of deliveries; that in a tenant's request does not count."""
        if not isinstance(subscription, Subscription):
            return subscription
        own = self._quota.deliveries if self._quota is not None else None
        recorded = None if self._by_tenant else subscription.deliveries
        return replace(subscription, deliveries=own or recorded)

    def _with_lasting_quota(self, id_: str, version: Subscription) -> Subscription:
        """Return a version with the caller's quota of deliveries, or that of the version before."""
        version = self._with_quota(version)
        if version.deliveries is not None:
            return version
        return replace(version, deliveries=self.store.read(id_).deliveries)

    @contextlib.contextmanager
    def _within_quota(self, new: list[Subscription], replaced: Collection[str] = ()) -> Iterator[None]:
        """Refuse a change above the quota; other threads wait until the block has stored it.

        Raises:
            QuotaExceededError: names the quota and its value.
        """
        if self._quota is None or self._usage is None:
            yield
            return
        with self._usage.lock:
            self._usage.check(self._quota, new, replaced)
            yield

    def _check_rights(self, subscription: Subscription | PlainLine) -> None:
        refusals = list(refusals_of(self._rights, subscription))
        if refusals:
            raise SubscriptionInvalidError("; ".join(refusals))

    def _create_registered(self, new: list[Subscription], trees: KiwiTrees) -> list[str]:
        """Store with the pairs registered: a pair too many in a registry is harmless, one too few is not."""
        pairs = _tree_leaves(new)
        for leaf in pairs:
            trees.of(leaf).create(leaf.key, leaf.pattern)
        ids = create_many(self.store, new)
        # A delete may have found a pair unused before this was stored. From now on each one finds it in use.
        try:
            for leaf in pairs:
                _insist(trees.of(leaf), leaf)
        except BaseException:
            delete_many(self.store, ids)
            raise
        return ids

    def read(self, id: str) -> Subscription:
        """Return the subscription with this id.

        Raises:
            SubscriptionNotFoundError: there is none.
            SubscriptionInvalidError: the id is longer than an id may be.
        """
        check_id(id)
        return self.store.read(id)

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """Replace a subscription by a new version and return its revision; see `Store.update`.

        Raises:
            SubscriptionInvalidError: the new version breaks a rule, or the id is longer than an id may be.
            SubscriptionNotFoundError: there is none.
            SubscriptionConflictError: it is not at the expected revision.
        """
        check_id(id)
        # A rule for new ids must not keep a subscription from being changed that has its id from before.
        check(replace(subscription, id=""))
        self._check_rights(subscription)
        version = self._with_lasting_quota(id, subscription)
        with self._within_quota([version], [id]):
            return self._update(id, version, expected_revision)

    def _update(self, id: str, subscription: Subscription, expected_revision: int | None) -> int:
        trees = self._kiwi_trees
        if trees is None:
            return self.store.update(id, subscription, expected_revision)
        before = self.store.read(id)
        new, old = _tree_leaves([subscription]), _tree_leaves([before])
        for leaf in new:
            trees.of(leaf).create(leaf.key, leaf.pattern)
        # The version whose patterns are released has to be the one that is replaced.
        revision = self.store.update(
            id, subscription, before.revision if expected_revision is None else expected_revision
        )
        for leaf in new:
            _insist(trees.of(leaf), leaf)
        for leaf in old:
            self._release(trees.of(leaf), leaf)
        return revision

    def apply(self, changes: ChangeSet, *, planned: bool = False) -> int:
        """Make changes as one and return the revision; see `turnout.subscriptions.store.apply`.

        Args:
            changes: the changes.
            planned: True if the new versions were made from stored ones by this process: they have their quotas.

        Raises:
            SubscriptionInvalidError: a new subscription or version breaks a rule; the message has its number.
        """
        created = tuple(map(self._with_quota, changes.created))
        updated = tuple(self._changed(one, planned) for one in changes.updated)
        new = [*created, *updated]
        # A rule for new ids must not keep a subscription from being changed that has its id from before.
        checked = [*created, *(replace(one, id="") for one in updated)]
        for number, one in enumerate(checked, 1):
            try:
                check(one)
                self._check_rights(one)
            except SubscriptionInvalidError as problem:
                name = new[number - 1].id or f"{number} of {len(new)}"
                raise SubscriptionInvalidError(f"subscription {name}: {problem}") from problem
        changes = ChangeSet(created, updated, changes.deleted)
        with self._within_quota(new, changes.replaced()):
            return self._apply(changes)

    def _changed(self, version: Subscription, planned: bool) -> Subscription:
        own = self._quota.deliveries if self._quota is not None else None
        if own is not None:
            return replace(version, deliveries=own)
        if planned or not self._by_tenant:
            return version
        return replace(version, deliveries=self.store.read(version.id).deliveries)

    def _apply(self, changes: ChangeSet) -> int:
        trees = self._kiwi_trees
        if trees is None:
            return apply(self.store, changes)
        new, old = (
            _tree_leaves([*changes.created, *changes.updated]),
            _tree_leaves(map(self.store.read, changes.replaced())),
        )
        for leaf in new:
            trees.of(leaf).create(leaf.key, leaf.pattern)
        revision = apply(self.store, changes)
        for leaf in new:
            _insist(trees.of(leaf), leaf)
        for leaf in old:
            self._release(trees.of(leaf), leaf)
        return revision

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """Delete the subscription with this id, and its patterns if no other subscription uses them.

        Raises:
            SubscriptionNotFoundError: there is none.
            SubscriptionInvalidError: the id is longer than an id may be.
            SubscriptionConflictError: it is not at the expected revision.
        """
        check_id(id)
        deleted = self.store.read(id) if self._kiwi_trees is not None else None
        delete(self.store, id, expected_revision)
        if deleted is not None and self._kiwi_trees is not None:
            for leaf in _tree_leaves([deleted]):
                self._release(self._kiwi_trees.of(leaf), leaf)

    def delete_many(self, ids: Iterable[str]) -> int:
        """Delete all subscriptions, or none if one does not exist; return their number. See `delete`.

        A store that is no `BulkStore` deletes one after the other, up to the first that does not exist.
        """
        distinct = list(dict.fromkeys(ids))
        for id_ in distinct:
            check_id(id_)
        trees = self._kiwi_trees
        patterns = [] if trees is None else _tree_leaves(map(self.store.read, distinct))
        delete_many(self.store, distinct)
        if trees is not None:
            for leaf in patterns:
                self._release(trees.of(leaf), leaf)
        return len(distinct)

    def _release(self, registry: PatternRegistry, leaf: Kiwi) -> None:
        """Remove a pair that no subscription uses; keep it if this cannot be determined now."""
        try:
            registry.lock_create(leaf.key, leaf.pattern)
        except StoreUnavailableError:
            # Another delete is at work on the pair, or the registry is away: a pair too many is harmless.
            return
        try:
            if not self._everybodys.search_by_condition(leaf.key, leaf.pattern, leaf.partial, limit=1).items:
                with contextlib.suppress(PairNotFoundError):
                    registry.delete(leaf.key, leaf.pattern)
        finally:
            with contextlib.suppress(StoreUnavailableError):
                registry.unlock_create(leaf.key, leaf.pattern)

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """Return the changes of this subscription that the store remembers, oldest first.

        Raises:
            SubscriptionNotFoundError: there is none, and none is remembered.
            HistoryForgottenError: the store keeps no history.
        """
        check_id(id)
        return history_of(self.store, id)

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 0, cursor: str = ""
    ) -> Page[ConditionMatch]:
        """Return the subscriptions that contain a leaf with exactly this key, pattern and partial flag."""
        if not key:
            raise SubscriptionInvalidError("kiwiConditionQuery.key: a query needs the key of the leaf it looks for")
        return self.store.search_by_condition(key, pattern, partial, limit=self._page(limit), cursor=cursor)

    def search(self, search: Search, *, limit: int = 0, cursor: str = "") -> Page[Subscription]:
        """Return what a search finds; a page may be short with a cursor, as so many subscriptions are read at most."""
        return find(self.store, search, limit=self._page(limit), cursor=cursor, scanned=SCANNED)

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 0, cursor: str = ""
    ) -> Page[Subscription]:
        """Return the subscriptions whose metadata contains all of these pairs."""
        return self.store.search_by_metadata(metadata, limit=self._page(limit), cursor=cursor)

    def _page(self, limit: int) -> int:
        if limit < 0:
            raise SubscriptionInvalidError(f"limit: expected 0 or more, found {limit}")
        return min(limit or DEFAULT_LIMIT, self._max_page)


def _insist(registry: PatternRegistry, leaf: Kiwi) -> None:
    """Register a pair, waiting for the delete that has it locked."""
    for pause in _PAUSES:
        try:
            registry.create(leaf.key, leaf.pattern)
        except StoreUnavailableError:
            time.sleep(pause)
        else:
            return
    registry.create(leaf.key, leaf.pattern)


def _tree_leaves(subscriptions: Iterable[Subscription]) -> list[Kiwi]:
    """Return the kiwi tree leaves, each pair once."""
    by_pair = {
        (leaf.key, leaf.pattern, leaf.partial): leaf
        for subscription in subscriptions
        for leaf in leaves(subscription.condition)
        if isinstance(leaf, Kiwi) and leaf.tree
    }
    return list(by_pair.values())
