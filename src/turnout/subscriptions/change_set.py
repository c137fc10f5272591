"""Several changes of a store as one: creations, new versions and deletions under one revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from turnout.errors import (
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.store import Store, create_many, delete


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
        ...


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
