"""Quotas of a tenant: how much of a store, of each record's matching, and of deliveries its subscriptions may take."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

from turnout.conditions import Compare, leaves
from turnout.conditions.terms import Term, is_verified_always, terms_of
from turnout.errors import QuotaExceededError, SubscriptionInvalidError
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.settings import MAX_DELIVERIES
from turnout.subscriptions.store import Store


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

    def check(self, quota: Quota, new: Iterable[Subscription], replaced: str = "") -> None:
        """Refuse subscriptions that exceed a quota.

        Args:
            quota: the limits.
            new: subscriptions to be stored.
            replaced: id of the subscription that the new one replaces; "" for none.

        Raises:
            QuotaExceededError: names the quota, its value, and what would be used.
        """
        with self.lock:
            self._follow()
            added = Usage()
            for subscription in new:
                added = added.plus(Usage.of(subscription))
            before = self._of.get(replaced, Usage())
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
