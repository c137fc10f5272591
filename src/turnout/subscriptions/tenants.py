"""Tenants: subscriptions of several owners in one store, each with access to its own only.

A subscription of a tenant has an id of its own kind in the store: ``@acme/3426d090`` is the tenant acme's ``3426d090``.
The tenant is a part of the id, which every store keeps, indexes and orders by already: a query on behalf of a
tenant is a range of ids and nothing outside of it, and one id never belongs to two.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Protocol, Self

from turnout.conditions import Compare, leaves
from turnout.conditions.terms import Term, is_verified_always, terms_of
from turnout.errors import (
    QuotaExceededError,
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.lines import PlainLine, create_read
from turnout.subscriptions.model import MAX_DELIVERIES, Changes, ConditionMatch, Page, Subscription, new_id
from turnout.subscriptions.past import AuditEntry, Creation, Moment, PastStore, Snapshot
from turnout.subscriptions.store import (
    ChangeSet,
    Store,
    StoreBase,
    VersionedStore,
    apply,
    create_many,
    delete,
    delete_many,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OWNED = re.compile(rf"@({_NAME.pattern})/")


def check_tenant(name: str) -> str:
    """Return the name if it is valid for a tenant.

    Raises:
        SubscriptionInvalidError: it is empty, too long, or has characters that no tenant's name has.
    """
    if not _NAME.fullmatch(name):
        raise SubscriptionInvalidError(
            f"no tenant is named {name[:80]!r}: expected up to 63 letters, digits, dots, dashes and underscores"
        )
    return name


def prefix_of(tenant: str) -> str:
    """Return the prefix of a tenant's subscription ids."""
    return f"@{check_tenant(tenant)}/"


def prefix_end(prefix: str) -> str:
    """Return the first text, in the order of ids, after all texts that begin with *prefix*."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def tenant_of(id: str) -> str:
    """Return the tenant of a stored id; "" if it has none.

    >>> tenant_of("@acme/3426d090"), tenant_of("3426d090")
    ('acme', '')
    """
    owned = _OWNED.match(id)
    return owned[1] if owned else ""


class RangedStore(Store, VersionedStore, Protocol):
    """Store with queries that can be restricted to the subscriptions whose ids begin with *prefix*.

    Every search has to be bounded by the range itself: reading past its end would reveal, by its duration, the data of
    other tenants.
    """

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        ...

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        ...

    def changes(self, since: int, prefix: str = "") -> Changes:
        """See `Store.changes`. Revisions count the changes of the whole store."""
        ...

    def snapshot(self, prefix: str = "") -> Snapshot:
        """See `Store.snapshot`."""
        ...

    def as_of(self, moment: Moment, prefix: str = "") -> PastStore:
        """See `VersionedStore.as_of`."""
        ...

    def births(self, prefix: str = "") -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        ...


class TenantStore(StoreBase):
    """View of a store restricted to one tenant, without the prefix of the ids in the store.

    It is a store like others; closing it leaves the one behind it open. Revisions are shared: their numbers tell that
    something has changed in the store, and not what. Secrets are hidden: deliveries need access to the whole store.
    """

    def __init__(self, store: RangedStore, tenant: str) -> None:
        self._store = store
        self._prefix = prefix_of(tenant)
        self.tenant = tenant

    def for_tenant(self, name: str) -> Store:
        """Itself: a tenant has no tenants.

        Raises:
            SubscriptionInvalidError: for another tenant's name.
        """
        if name != self.tenant:
            raise SubscriptionInvalidError(f"this is the store of the tenant {self.tenant!r}, not of {name!r}")
        return self

    def create(self, subscription: Subscription) -> str:
        """See `Store.create`."""
        return self.create_many([subscription])[0]

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """See `BulkStore.create_many`; one after the other if the store behind it has no such ability."""
        owned = (
            replace(subscription, id=self._prefix + (subscription.id or new_id())) for subscription in subscriptions
        )
        with self._known_ids():
            return [self._bare(id_) for id_ in create_many(self._store, owned)]

    def create_read(self, subscriptions: Iterable[Subscription | PlainLine]) -> list[str]:
        """See `PlainLineStore`; subscriptions are made of plain lines if the store behind it has no such ability."""
        owned = (self._owned(subscription) for subscription in subscriptions)
        with self._known_ids():
            return [self._bare(id_) for id_ in create_read(self._store, owned)]

    def _owned(self, subscription: Subscription | PlainLine) -> Subscription | PlainLine:
        id_ = self._prefix + (subscription.id or new_id())
        return subscription.with_id(id_) if isinstance(subscription, PlainLine) else replace(subscription, id=id_)

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""
        with self._known_ids():
            return self._with_bare_id(self._store.read(self._prefix + id))

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """See `Store.update`."""
        renamed = replace(subscription, id=self._prefix + subscription.id) if subscription.id else subscription
        with self._known_ids():
            return self._store.update(self._prefix + id, renamed, expected_revision)

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """See `Store.delete`."""
        with self._known_ids():
            delete(self._store, self._prefix + id, expected_revision)

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`; one after the other if the store behind it has no such ability."""
        with self._known_ids():
            delete_many(self._store, (self._prefix + id_ for id_ in ids))

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.store.AtomicStore`; one by one if the store behind it has no such ability."""
        with self._known_ids():
            return apply(self._store, changes.prefixed(self._prefix, iter(new_id, "")))

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        page = self._store.search_by_condition(
            key, pattern, partial, limit=limit, cursor=self._prefix + cursor, prefix=self._prefix
        )
        items = (
            ConditionMatch(
                self._bare(match.subscription_id), match.condition_id, self._with_bare_id(match.subscription)
            )
            for match in page.items
        )
        return Page(tuple(items), self._bare(page.cursor))

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        page = self._store.search_by_metadata(metadata, limit=limit, cursor=self._prefix + cursor, prefix=self._prefix)
        return Page(tuple(map(self._with_bare_id, page.items)), self._bare(page.cursor))

    def revision(self) -> int:
        """See `Store.revision`."""
        return self._store.revision()

    def changes(self, since: int) -> Changes:
        """See `Store.changes`."""
        changes = self._store.changes(since, self._prefix)
        return Changes(
            changes.revision,
            tuple(map(self._with_bare_id, changes.created)),
            tuple(map(self._bare, changes.deleted_ids)),
            changes.reset,
        )

    def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""
        snapshot = self._store.snapshot(self._prefix)
        return Snapshot(tuple(map(self._with_bare_id, snapshot.subscriptions)), snapshot.revision)

    def as_of(self, moment: Moment) -> PastStore:
        """See `VersionedStore.as_of`."""
        return self._store.as_of(moment, self._prefix)

    def births(self) -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        return {self._bare(id_): birth for id_, birth in self._store.births(self._prefix).items()}

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """See `VersionedStore.history`."""
        with self._known_ids():
            return tuple(entry.with_id(id).hidden() for entry in self._store.history(self._prefix + id))

    def _bare(self, id_: str) -> str:
        return id_.removeprefix(self._prefix)

    def _with_bare_id(self, subscription: Subscription) -> Subscription:
        return replace(subscription.hidden(), id=self._bare(subscription.id))

    @contextmanager
    def _known_ids(self) -> Iterator[None]:
        """Errors about an id name it as the tenant does."""
        try:
            yield
        except SubscriptionNotFoundError as failure:
            raise SubscriptionNotFoundError(self._bare(failure.id)) from None
        except SubscriptionExistsError as failure:
            raise SubscriptionExistsError(self._bare(failure.id)) from None
        except SubscriptionConflictError as failure:
            raise SubscriptionConflictError(self._bare(failure.id), failure.expected, failure.found) from None


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of the subscriptions of one tenant, disabled ones included; None for no limit.

    Attributes:
        subscriptions: number of them.
        leaves: leaves of all their conditions.
        unselective: terms that nothing can be looked up for, or the presence of a key alone: each is verified on every
            record, or on every record with the key.
        deliveries: requests of a second to HTTP destinations. It is recorded with each subscription that is stored,
            and the dispatcher holds the requests back.

    >>> Quota.from_mapping({"subscriptions": 1000})
    Quota(subscriptions=1000, leaves=None, unselective=None, deliveries=None)
    """

    subscriptions: int | None = None
    leaves: int | None = None
    unselective: int | None = None
    deliveries: int | None = None

    @classmethod
    def from_mapping(cls, mapping: object) -> Self:
        """Return the quota of plain values.

        Raises:
            SubscriptionInvalidError: they mean nothing; the message names the field, the value and the expectation.
        """
        if not isinstance(mapping, Mapping):
            raise SubscriptionInvalidError(f"quota: expected an object, found {mapping!r:.60}")
        names = [field.name for field in fields(cls)]
        for name, value in mapping.items():
            if name not in names:
                raise SubscriptionInvalidError(f"quota.{name}: unknown field; there are {', '.join(names)}")
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SubscriptionInvalidError(f"quota.{name}: expected a whole number, found {value!r:.60}")
            if name == "deliveries" and not 1 <= value <= MAX_DELIVERIES:
                raise SubscriptionInvalidError(
                    f"quota.deliveries: expected 1 to {MAX_DELIVERIES:,} a second, found {value}"
                )
        return cls(**mapping)


class Usage(NamedTuple):
    """Amounts that subscriptions take of each quota, by the names of `Quota`."""

    subscriptions: int = 0
    leaves: int = 0
    unselective: int = 0

    @classmethod
    def of(cls, subscription: Subscription) -> Usage:
        """Return what one subscription takes."""
        condition = subscription.condition
        terms = terms_of(condition, lambda anchor: float(anchor.kind.op == "has"), several=True)
        return cls(1, sum(1 for _ in leaves(condition)), sum(map(_is_unselective, terms)))

    def plus(self, other: Usage, sign: int = 1) -> Usage:
        """Return the sum."""
        return Usage(*(own + sign * change for own, change in zip(self, other, strict=True)))


class UsageCounter:
    """Usage of one store, or of a tenant's part of it, that follows the store. Thread-safe.

    The first look reads all of the subscriptions; each one takes some hundred bytes here.

    Args:
        store: store whose subscriptions are counted.
    """

    def __init__(self, store: Store) -> None:
        self.lock = threading.RLock()
        """Held from the check of a quota to the write, so that two threads do not use the same remainder."""
        self._store = store
        self._revision = -1
        self._of: dict[str, Usage] = {}
        self._total = Usage()

    def check(self, quota: Quota, new: Iterable[Subscription], replaced: Collection[str] = ()) -> None:
        """Refuse subscriptions that exceed a quota.

        Args:
            quota: the limits.
            new: subscriptions to be stored.
            replaced: ids of the subscriptions that new ones replace, or that go.

        Raises:
            QuotaExceededError: names the quota, its value, and what would be used.
        """
        with self.lock:
            self._follow()
            added = Usage()
            for subscription in new:
                added = added.plus(Usage.of(subscription))
            before = Usage()
            for id_ in replaced:
                before = before.plus(self._of.get(id_, Usage()))
            after = self._total.plus(added).plus(before, -1)
            for name, used, own, old in zip(Usage._fields, after, added, before, strict=True):
                limit = getattr(quota, name)
                # A use above a lowered quota may decrease.
                if limit is not None and used > limit and own > old:
                    raise QuotaExceededError(name, limit, used)

    def _follow(self) -> None:
        changes = self._store.changes(self._revision)
        if changes.reset:
            self._of, self._total = {}, Usage()
        for id_ in (*changes.deleted_ids, *(one.id for one in changes.created)):
            self._total = self._total.plus(self._of.pop(id_, Usage()), -1)
        for one in changes.created:
            usage = self._of[one.id] = Usage.of(one)
            self._total = self._total.plus(usage)
        self._revision = changes.revision


def _is_unselective(term: Term) -> bool:
    if term.access.kind.op != "has":
        return is_verified_always(term)
    # The index looks numbers up by intervals.
    return not any(isinstance(check, Compare) and check.key == term.access.key for check in term.checks)
