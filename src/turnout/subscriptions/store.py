"""Store protocol, the narrow interface between the implementations and the users of stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from turnout.base.background import spread
from turnout.base.startup import entry_points
from turnout.errors import (
    ConfigError,
    HistoryForgottenError,
    Mistake,
    StoreUnavailableError,
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription
from turnout.subscriptions.past import AuditEntry, Creation, Moment, PastStore, Snapshot
from turnout.subscriptions.store_url import existing, url_problem

if TYPE_CHECKING:
    from turnout.subscriptions.lines import PlainLine


class _Deadline(threading.local):
    """Deadline of the call on this thread, by `time.monotonic`.

    Of the thread and not of the context, as gRPC runs its calls in contexts of their own.
    """

    at: float | None = None


_deadline = _Deadline()


@contextmanager
def within(seconds: float | None, *, since: float | None = None) -> Iterator[None]:
    """Give all calls of stores inside of the block *seconds* together; an earlier deadline around it stays.

    >>> with within(5.0), within(60.0):
    ...     remaining(30.0) <= 5.0
    ...
    True
    >>> remaining(30.0)
    30.0

    Args:
        seconds: how long; None for no limit of its own.
        since: when the waiting began, by `time.monotonic`; now if not given.
    """
    before = _deadline.at
    own = None if seconds is None else (time.monotonic() if since is None else since) + seconds
    _deadline.at = min((end for end in (before, own) if end is not None), default=None)
    try:
        yield
    finally:
        _deadline.at = before


def remaining(most: float) -> float:
    """Return the seconds left to wait, at most *most*.

    Raises:
        StoreUnavailableError: none are left.
    """
    if _deadline.at is None:
        return most
    seconds = _deadline.at - time.monotonic()
    if seconds <= 0:
        raise StoreUnavailableError("the store was not free before the caller's deadline; nothing was changed")
    return min(most, seconds)


STORE_SECONDS: Final = 10.0
"""Seconds that a call waits for the store in total: for a thread, for locks and for a server."""

WAITING: Final = 128
"""Maximum number of calls waiting for a thread of one kind; more are refused at once."""


class BoundedPool(ThreadPoolExecutor):
    """A few threads, and a bounded number of calls that wait for one of them.

    Args:
        name: name of the threads.
        threads: how many calls run at once.
        waiting: how many wait.
        seconds: deadline of each call, counted from its submission; see `turnout.subscriptions.store`.
        busy: said to callers that are refused.

    Attributes:
        calls: how many run and wait now.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        waiting: int = WAITING,
        seconds: float = STORE_SECONDS,
        busy: str = "the store is slow",
    ) -> None:
        super().__init__(threads, thread_name_prefix=f"turnout-{name}")
        self._busy = busy
        self._max_calls = threads + waiting
        self._seconds = seconds
        self._counting = threading.Lock()
        self.calls = 0

    @property
    def full(self) -> bool:
        """True if as many calls run and wait as allowed."""
        return self.calls >= self._max_calls

    def check(self) -> None:
        """Refuse a call while too many are waiting.

        Raises:
            StoreUnavailableError: names how many.
        """
        if self.full:
            raise StoreUnavailableError(f"{self._busy}, and {self._max_calls} calls wait already: try again later")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``concurrent.futures.Executor``; the call's deadline begins now. A full pool accepts it."""
        self._count(1)
        try:
            future = super().submit(self._run, time.monotonic(), fn, args, kwargs)
        except BaseException:
            self._count(-1)
            raise
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _run(
        self, since: float, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        with within(self._seconds, since=since):
            return fn(*args, **kwargs)

    def _count(self, more: int) -> None:
        with self._counting:
            self.calls += more


@dataclass(frozen=True, slots=True)
class StoreThreads:
    """Threads of one server's blocking calls, by purpose. ``close`` lets them end.

    Attributes:
        reads: for what reads the store.
        writes: for what changes it.
        matches: for what matches with an index: it reads the store at most once, and mostly not at all.
        servers: for calls to a route's servers: its dead letters, the ends of its streams, its latest records.
        redrives: for redrives, which wait for a route's servers and for its store.
    """

    reads: BoundedPool = field(default_factory=lambda: BoundedPool("store-read", 8))
    writes: BoundedPool = field(default_factory=lambda: BoundedPool("store-write", 8))
    matches: BoundedPool = field(default_factory=lambda: BoundedPool("store-match", 8))
    servers: BoundedPool = field(default_factory=lambda: BoundedPool("servers", 8, busy="servers of routes are slow"))
    redrives: BoundedPool = field(
        default_factory=lambda: BoundedPool("redrive", 4, waiting=16, busy="redrives are under way")
    )

    def close(self) -> None:
        """Drop the calls that have not begun; running calls are completed."""
        for pool in (self.reads, self.writes, self.matches, self.servers, self.redrives):
            pool.shutdown(wait=False, cancel_futures=True)


MAX_LIMIT = 10_000
"""The largest page that a store gives; a larger limit is taken as this one."""

_EDITS = 20
"""Attempts of an edit while others change the same subscription."""

_EDIT_PAUSE = 0.05
"""Seconds, at most, between the first two attempts; as many more between each further two."""


class Closeable(Protocol):
    """Object that holds a file or a connection; ``with`` closes it."""

    def close(self) -> None:
        """Release files and connections. A closed object is not used again."""

    def __enter__(self) -> Self:
        """Return the object itself."""

    def __exit__(self, *_: object) -> None:
        """Close the object."""


@runtime_checkable
class Store(Closeable, Protocol):
    """Keeps subscriptions. Synchronous, and safe to use from several threads.

    Every change, a create, an update or a delete, leads to a higher revision, and it is durable once it has returned
    as far as the store is. Changes are recorded with the actor of `turnout.subscriptions.past`.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Subscription
    >>> store = open_store("memory://protocol")
    >>> before = store.revision()
    >>> id_ = store.create(Subscription(["d"], parse("a:1")))
    >>> store.revision() > before, len(store.snapshot()), len(store.changes(before).created)
    (True, 1, 1)
    """

    def create(self, subscription: Subscription) -> str:
        """Store it, with ids on it and on its conditions where it has none, and give its id.

        Raises:
            SubscriptionExistsError: its id is taken.
            SubscriptionInvalidError: nothing can be published to one of its destinations.
        """

    def read(self, id: str) -> Subscription:
        """Return the subscription with this id.

        Raises:
            SubscriptionNotFoundError: there is none.
        """

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """Replace the subscription with this id by a new version, and return its revision.

        Followers of the store see one change: the old version before it, the new one from it on.

        Args:
            id: id of the subscription.
            subscription: the new version; ids of its condition's nodes stay, and are made where there are none.
            expected_revision: the `Subscription.revision` that the caller has read; None replaces any version.

        Raises:
            SubscriptionNotFoundError: there is none.
            SubscriptionConflictError: it is not at the expected revision.
            SubscriptionInvalidError: *subscription* has another id, or a destination that nothing can be published to.
        """

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """Delete the subscription with this id.

        Args:
            id: id of the subscription.
            expected_revision: the `Subscription.revision` that the caller has read; None deletes any version. It is
                not passed to a store where it is None, so that a store of a package may be without it.

        Raises:
            SubscriptionNotFoundError: there is none.
            SubscriptionConflictError: it is not at the expected revision.
        """

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = ""
    ) -> Page[ConditionMatch]:
        """Return the subscriptions with a kiwi leaf of exactly this key, pattern and partial flag.

        It is the stored pattern that is looked up, not a value. A subscription with several such leaves is
        found once, with the first of them.
        """

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = ""
    ) -> Page[Subscription]:
        """Return the subscriptions whose own metadata contains all these pairs; without pairs, all."""

    def revision(self) -> int:
        """Return the current revision; 0 for a store that was never changed."""

    def changes(self, since: int) -> Changes:
        """Return the changes after the revision *since*; a subscription created and deleted meanwhile is not mentioned.

        Asking with the present revision is cheap and gives nothing. A revision that the store never had, or
        whose past it has forgotten, gives ``reset``.
        """

    def snapshot(self) -> Snapshot:
        """Return all subscriptions in the order of ids, with the revision they belong to."""


@runtime_checkable
class VersionedStore(Protocol):
    """Optional ability of a store: it knows its past, as far back as it keeps deleted subscriptions."""

    def as_of(self, moment: Moment) -> PastStore:
        """Return a read-only view of the store at a revision or a time.

        Raises:
            HistoryForgottenError: the store does not remember so far back, or was never at the revision.
        """

    def births(self) -> Mapping[str, Creation]:
        """Return the revision and time of each current subscription's version, by id; empty if unknown."""

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """Return the changes of this subscription that the store remembers, oldest first.

        Raises:
            SubscriptionNotFoundError: there is none, and none is remembered.
        """


@runtime_checkable
class MultiTenantStore(Protocol):
    """Optional ability of a store: several owners share it."""

    def for_tenant(self, name: str) -> Store:
        """Return the store as one tenant sees it, with nothing of others in it; see `turnout.subscriptions.tenants`.

        Raises:
            SubscriptionInvalidError: no tenant can have that name.
        """


@runtime_checkable
class BulkStore(Protocol):
    """Optional ability of a store: it creates and deletes many subscriptions as one change."""

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """Store all subscriptions, or none if one fails, and return their ids in order."""

    def delete_many(self, ids: Iterable[str]) -> None:
        """Delete all these subscriptions, or none if one fails, as one revision; an id may be repeated.

        Raises:
            SubscriptionNotFoundError: one of them does not exist.
        """


@runtime_checkable
class PlainLineStore(Protocol):
    """Optional ability of a `BulkStore`: it stores plain lines of JSON as they are."""

    def create_read(self, subscriptions: Iterable[Subscription | PlainLine]) -> list[str]:
        """Store what was read from lines and keeps the rules, as `BulkStore.create_many` does."""


class FullStore(Store, VersionedStore, MultiTenantStore, BulkStore, Protocol):
    """Store with all optional abilities, as turnout's own are."""


def create_many(store: Store, subscriptions: Iterable[Subscription]) -> list[str]:
    """Store subscriptions and return their ids in order: all or none in a `BulkStore`, otherwise until one fails."""
    if isinstance(store, BulkStore):
        return store.create_many(subscriptions)
    return [store.create(subscription) for subscription in subscriptions]


def delete(store: Store, id: str, expected_revision: int | None) -> None:
    """Delete a subscription; stores of packages may lack the parameter, which they need for a revision alone.

    Raises:
        SubscriptionNotFoundError: there is none.
        SubscriptionConflictError: it is not at the expected revision.
    """
    if expected_revision is None:
        store.delete(id)
    else:
        store.delete(id, expected_revision)


def delete_many(store: Store, ids: Iterable[str]) -> None:
    """Delete subscriptions: all or none in a `BulkStore`, otherwise one after the other until one fails.

    Raises:
        SubscriptionNotFoundError: one of them does not exist.
    """
    if isinstance(store, BulkStore):
        store.delete_many(ids)
        return
    for id_ in dict.fromkeys(ids):
        store.delete(id_)


def view_as_of(store: Store, moment: Moment) -> PastStore:
    """Return a read-only view of a store at a revision or a time.

    Raises:
        HistoryForgottenError: the store keeps no history, or does not remember so far back.
    """
    if not isinstance(store, VersionedStore):
        raise HistoryForgottenError(f"this store keeps no history: its state at {moment} is not known")
    return store.as_of(moment)


def creations_of(store: Store) -> Mapping[str, Creation]:
    """Return the revision and time of each current subscription's version, by id; empty if unknown."""
    return store.births() if isinstance(store, VersionedStore) else {}


def history_of(store: Store, id: str) -> tuple[AuditEntry, ...]:
    """Return the changes of a subscription that the store remembers, oldest first.

    Raises:
        HistoryForgottenError: the store keeps no history.
        SubscriptionNotFoundError: there is none, and none is remembered.
    """
    if not isinstance(store, VersionedStore):
        raise HistoryForgottenError("this store keeps no history of its subscriptions")
    return store.history(id)


class Editable(Protocol):
    """Store, or the service over it, with the subscription to edit."""

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """See `Store.update`."""


def edit(
    store: Editable, id: str, change: Callable[[Subscription], Subscription], expected_revision: int | None = None
) -> int:
    """Update a subscription by a function of its present version, and return the new revision.

    Without an expected revision, after a concurrent update *change* is called again.

    Raises:
        SubscriptionNotFoundError: there is none.
        SubscriptionConflictError: it is not at the expected revision, or others keep changing it.

    >>> from dataclasses import replace
    >>> store = open_store("memory://edit")
    >>> id_ = store.create(Subscription(["d"], "a:1", id="one"))
    >>> edit(store, "one", lambda found: replace(found, destinations=["e"]))
    2
    >>> store.read("one").destinations
    ('e',)
    """
    for attempt in range(1, _EDITS + 1):
        found = store.read(id)
        expected = found.revision if expected_revision is None else expected_revision
        try:
            return store.update(id, change(found), expected)
        except SubscriptionConflictError:
            if expected_revision is not None or attempt == _EDITS:
                raise
            time.sleep(spread(attempt * remaining(_EDIT_PAUSE), 0.0))
    raise AssertionError("the last attempt raises")


def tenant_store(store: Store, name: str) -> Store:
    """Return the store as one tenant sees it.

    Raises:
        SubscriptionInvalidError: no tenant can have that name, or the store has no tenants.
    """
    if not isinstance(store, MultiTenantStore):
        raise SubscriptionInvalidError(f"this store has no tenants; found the tenant {name!r}")
    return store.for_tenant(name)


class StoreBase:
    """Base class of stores that implement `Store`: ``with`` closes them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release files and connections; does nothing unless a store overrides it."""


def open_store(url: str) -> FullStore:
    """The store that a URL names: ``sqlite:///file.db``, ``postgresql://host/db``, ``mongodb://host/db`` or ``memory://name``.

    The part before ``://`` is the name of an entry point in the group ``turnout.stores``, whose object is
    called with the URL. A package's store may lack the optional abilities, `VersionedStore` and `MultiTenantStore`.

    Raises:
        ConfigError: no store has that scheme.
        MissingExtraError: the store's driver is not installed.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Subscription
    >>> with open_store("memory://example") as store:
    ...     id_ = store.create(Subscription(["orders.oulu"], parse("city:Oulu")))
    ...     store.read(id_).destinations
    ...
    ('orders.oulu',)
    >>> open_store("oracle://host/db")
    Traceback (most recent call last):
        ...
    turnout.errors.ConfigError: bad configuration: 1 mistake
      store: no store is named 'oracle://host/db'; expected one of grpc://, memory://, mongodb://, postgresql://, sqlite://
    """
    problem = url_problem(url)
    if problem:
        raise ConfigError([Mistake("store", problem)])
    scheme = url.partition("://")[0].partition("+")[0]
    entry = next(entry for entry in entry_points(group="turnout.stores") if entry.name == scheme)
    opener: Callable[[str], FullStore] = entry.load()
    return opener(url)


def snapshot_of(url: str, moment: Moment | None = None, ids: Iterable[str] | None = None) -> Snapshot:
    """Return a snapshot of a store, now or at a past moment.

    Args:
        url: the store.
        moment: a revision or a time; None for the present.
        ids: ids of the subscriptions that are meant, in this order; all of them if not given.

    Raises:
        SubscriptionNotFoundError: there is, or was, none of an id.
        HistoryForgottenError: the store does not remember so far back.
    """
    store = open_store(existing(url))
    try:
        if moment is None or moment == store.revision():
            return _present(store, ids)
        return _snapshot_of(view_as_of(store, moment), ids)
    finally:
        store.close()


def _present(store: Store, ids: Iterable[str] | None) -> Snapshot:
    if ids is None:
        return store.snapshot()
    try:
        # All of one revision, also during concurrent changes.
        return _snapshot_of(view_as_of(store, store.revision()), ids)
    except HistoryForgottenError:
        revision = store.revision()
        return Snapshot(tuple(store.read(id_) for id_ in dict.fromkeys(ids)), revision)


def _snapshot_of(past: PastStore, ids: Iterable[str] | None) -> Snapshot:
    if ids is None:
        return past.snapshot()
    return Snapshot(tuple(past.read(id_) for id_ in dict.fromkeys(ids)), past.revision)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes that a store makes together, as one revision; each id has one.

    Attributes:
        created: new subscriptions.
        updated: new versions. `Subscription.revision` of each is that of the version it replaces.
        deleted: id → revision of the version to delete.

    >>> from turnout.subscriptions import open_store
    >>> store = open_store("memory://change-set")
    >>> ids = store.create_many([Subscription(["d"], "a:1", id="one"), Subscription(["d"], "a:2", id="two")])
    >>> new = replace(store.read("one"), destinations=["e"])
    >>> apply(store, ChangeSet((Subscription(["d"], "a:3", id="three"),), (new,), {"two": 1}))
    2
    >>> [(one.id, one.destinations, one.revision) for one in store.snapshot()]
    [('one', ('e',), 2), ('three', ('d',), 2)]
    """

    created: tuple[Subscription, ...] = ()
    updated: tuple[Subscription, ...] = ()
    deleted: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.created or self.updated or self.deleted)

    def replaced(self) -> dict[str, int]:
        """Return the revision that is expected of each stored version, by id: of those to replace or to delete.

        Raises:
            SubscriptionInvalidError: an id has two changes, or a new version has none.
        """
        expected = {one.id: one.revision for one in self.updated}
        ids = [*expected, *self.deleted, *(one.id for one in self.created if one.id)]
        if len(expected) != len(self.updated) or len(set(ids)) != len(ids) or "" in expected:
            raise SubscriptionInvalidError("a change set names each subscription once, and new versions by their ids")
        return {**expected, **self.deleted}

    def check(self, found: Mapping[str, int]) -> None:
        """Refuse the changes if they are about other versions than those that are stored.

        Args:
            found: revision of each stored subscription that has an id of the set.

        Raises:
            SubscriptionExistsError: an id of a new one is taken.
            SubscriptionNotFoundError: one to replace or to delete does not exist.
            SubscriptionConflictError: one of these is not at the expected revision.
        """
        for one in self.created:
            if one.id in found:
                raise SubscriptionExistsError(one.id)
        for id_, expected in self.replaced().items():
            if id_ not in found:
                raise SubscriptionNotFoundError(id_)
            if found[id_] != expected:
                raise SubscriptionConflictError(id_, expected, found[id_])

    def ids(self) -> list[str]:
        """Return the ids of all changes; without those that new subscriptions are still to get."""
        return [*self.replaced(), *(one.id for one in self.created if one.id)]

    def prefixed(self, prefix: str, made: Iterator[str]) -> ChangeSet:
        """Return the same changes with *prefix* before each id; new ones without an id get the next of *made*."""
        created = (replace(one, id=prefix + (one.id or next(made))) for one in self.created)
        updated = (replace(one, id=prefix + one.id) for one in self.updated)
        return ChangeSet(tuple(created), tuple(updated), {prefix + id_: at for id_, at in self.deleted.items()})


@runtime_checkable
class AtomicStore(Protocol):
    """Optional ability of a store: it makes a change set as one change."""

    def apply(self, changes: ChangeSet) -> int:
        """Make all changes or, if one fails, none, and return the revision that they led to.

        Raises:
            SubscriptionExistsError: see `ChangeSet.check`.
            SubscriptionNotFoundError: likewise.
            SubscriptionConflictError: likewise.
            SubscriptionInvalidError: nothing can be published to a destination.
        """


def apply(store: Store, changes: ChangeSet) -> int:
    """Make changes and return the revision: all or none in an `AtomicStore`, otherwise one after the other.

    Raises:
        SubscriptionExistsError: see `ChangeSet.check`.
        SubscriptionNotFoundError: likewise.
        SubscriptionConflictError: likewise.
    """
    if not changes:
        return store.revision()
    if isinstance(store, AtomicStore):
        return store.apply(changes)
    changes.check(_revisions(store, changes.ids()))
    create_many(store, changes.created)
    for one in changes.updated:
        store.update(one.id, one, one.revision)
    for id_, expected in changes.deleted.items():
        delete(store, id_, expected)
    return store.revision()


def _revisions(store: Store, ids: Iterable[str]) -> dict[str, int]:
    found = {}
    for id_ in ids:
        try:
            found[id_] = store.read(id_).revision
        except SubscriptionNotFoundError:
            continue
    return found
