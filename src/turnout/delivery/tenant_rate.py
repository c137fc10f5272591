"""Rate of a tenant: the requests of a second over all of its lanes, by the quota ``deliveries``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions import Store, Subscription
from turnout.subscriptions.store import tenant_store
from turnout.subscriptions.tenants import tenant_of

BURST_SECONDS: Final = 0.05
"""Unused rate of so long may be caught up with: timers are not exact."""


@dataclass(slots=True)
class TenantRate:
    """Slots of requests in time that the lanes of a tenant take one after the other.

    Each lane reserves one slot at a time, so lanes take turns, and none wakes before it may send.

    Attributes:
        rate: requests of a second.
        revision: revision of the store whose version of a subscription has this rate.

    >>> tenant = TenantRate(2, 1)
    >>> [round(tenant.reserve(100.0) - 100.0, 3) for _ in range(3)]
    [-0.05, 0.45, 0.95]
    """

    rate: float
    revision: int
    _next: float = 0.0

    def reserve(self, now: float) -> float:
        """Return the time of the next free slot, and take it."""
        slot = max(self._next, now - BURST_SECONDS)
        self._next = slot + 1 / self.rate
        return slot


class TenantRates:
    """Rates of the tenants that deliveries belong to, as recorded with their subscriptions.

    The newest subscription with a quota counts. A tenant's subscriptions are read with its first delivery, and
    changes followed from then on.

    Args:
        store: the store of all tenants.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rates: dict[str, TenantRate] = {}
        self._read: set[str] = set()

    def of(self, subscription: str) -> TenantRate | None:
        """Return the rate of a subscription's tenant; None without a tenant or a quota. It may read the store.

        Raises:
            SubscriptionError: the store does not answer.
        """
        tenant = tenant_of(subscription)
        if tenant and tenant not in self._read:
            versions = self._versions(tenant)
            newest = max(versions, key=lambda one: one.revision, default=None)
            if newest is not None:
                self._set(tenant, newest)
            self._read.add(tenant)
        return self._rates.get(tenant)

    def _versions(self, tenant: str) -> list[Subscription]:
        """Return the tenant's subscriptions that have a quota."""
        try:
            return [one for one in tenant_store(self._store, tenant).snapshot() if one.deliveries is not None]
        except SubscriptionInvalidError:
            # A store without tenants: the id only looks like that of one.
            return []

    def follow(self, changed: Iterable[Subscription]) -> bool:
        """Take new versions of subscriptions; return True if a tenant has its first quota."""
        is_first = False
        for one in changed:
            tenant = tenant_of(one.id)
            known = self._rates.get(tenant)
            if tenant not in self._read or one.deliveries is None or (known and one.revision < known.revision):
                continue
            is_first = is_first or known is None
            self._set(tenant, one)
        return is_first

    def reset(self) -> None:
        """Read the subscriptions of each tenant again with its next delivery of an unknown subject."""
        self._read.clear()

    def _set(self, tenant: str, version: Subscription) -> None:
        """Take the quota of a version; lanes have the same object, and see the change."""
        assert version.deliveries is not None
        rate = self._rates.setdefault(tenant, TenantRate(version.deliveries, version.revision))
        rate.rate, rate.revision = version.deliveries, version.revision
