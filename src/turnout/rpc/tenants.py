"""Per-tenant use cases and index of a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from turnout.base.caches import LruCache
from turnout.rpc.caller import Caller
from turnout.subjects.rights import Rights
from turnout.subscriptions.live_matcher import ChangeCount, LiveMatcher
from turnout.subscriptions.quotas import UsageCounter
from turnout.subscriptions.service import KiwiTrees, SubscriptionService
from turnout.subscriptions.store import Store, tenant_store

_VISITORS = 64
"""This many indexes are kept of tenants that callers only act for; a tenant with a token of its own keeps its index."""


class Tenants:
    """Services and indexes by tenant; None is the whole store. Safe to use from several threads.

    Each tenant has an index of its own: a match reads no data of others, and takes no time for them.

    Args:
        store: the subscriptions of all tenants.
        residents: tenants whose indexes are built now and kept.
        kiwi_trees: the registries to keep in step with the store.
        max_page: the largest page of a search.
        rights: the destinations that every caller may name.
    """

    def __init__(
        self,
        store: Store,
        residents: Iterable[str | None] = (None,),
        *,
        kiwi_trees: KiwiTrees | None = None,
        max_page: int = 1_000,
        rights: Rights | None = None,
    ) -> None:
        self.store = store
        self._kiwi_trees = kiwi_trees
        self._max_page = max_page
        self._rights = rights or Rights()
        self._changes = ChangeCount()
        self._residents = {name: self._follow(name) for name in set(residents)}
        self._usages: dict[str | None, UsageCounter] = {}
        self._visitors = LruCache[str | None, LiveMatcher](_VISITORS)

    def service(self, caller: Caller) -> SubscriptionService:
        """The use cases, on the caller's view."""
        store = self._of(caller.tenant)
        usage = None
        if caller.quota is not None:
            usage = self._usages.setdefault(caller.tenant, UsageCounter(store))
        return SubscriptionService(
            store,
            quota=caller.quota,
            usage=usage,
            kiwi_trees=self._kiwi_trees,
            max_page=self._max_page,
            rights=self._rights,
            everybodys=self.store,
            by_tenant=caller.tenant is not None,
        )

    def live(self, caller: Caller) -> LiveMatcher:
        """The index of the caller's view; the first match of a tenant without one builds it."""
        name = caller.tenant
        resident = self._residents.get(name)
        if resident is not None:
            return resident
        return self._visitors.get_or_add(name, lambda: self._follow(name))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Note that this process changes the store, for all indexes, those included that are being built.

        A change that fails is noted too: the store may have made it and lost the connection before it could say so.
        """
        try:
            yield
        finally:
            self.changed()

    def changed(self) -> None:
        """Note that this process has changed the store."""
        self._changes.note()

    def indexed(self) -> int:
        """Number of subscriptions in the indexes that are kept."""
        whole = self._residents.get(None)
        return len(whole.matcher) if whole else sum(len(live.matcher) for live in self._residents.values())

    def revision(self) -> int:
        """Return the lowest revision of the permanent indexes."""
        return min((live.revision for live in self._residents.values()), default=0)

    def _follow(self, name: str | None) -> LiveMatcher:
        return LiveMatcher(self._of(name), changes=self._changes)

    def _of(self, name: str | None) -> Store:
        return self.store if name is None else tenant_store(self.store, name)
