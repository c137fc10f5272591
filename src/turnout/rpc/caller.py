"""Caller of a request: its tenant and its rights, and the use cases and index of its tenant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import grpc

from turnout.base.caches import LruCache
from turnout.base.untrusted import decimal
from turnout.rpc.status import RefusedError
from turnout.subjects.pattern import Rights
from turnout.subscriptions import Subscription
from turnout.subscriptions.destinations import refusals_of
from turnout.subscriptions.lines import PlainLine, doubts
from turnout.subscriptions.matcher import ChangeCount, LiveMatcher
from turnout.subscriptions.service import KiwiTrees, SubscriptionService
from turnout.subscriptions.store import Store, tenant_store
from turnout.subscriptions.tenants import Quota, UsageCounter, check_tenant

TENANT_KEY = "turnout-tenant"
"""Metadata key that names the tenant to act for; needs access to the whole store."""

ACTOR_KEY = "turnout-actor-bin"
"""Metadata key of the name that changes are recorded under, for callers without a token. Binary, as it is any text."""

MAX_ACTOR = 256
"""Characters of that name."""

MAX_RESPONSE_KEY = "turnout-max-response"
"""Metadata key of the largest response in bytes that the client takes."""

MAX_RESPONSE = 4 << 20
"""Bytes of the largest response that a gRPC client takes if it is not told otherwise."""

OPEN = ("grpc.health.v1.Health",)
"""Services that need no token: a load balancer has none."""


class Right(StrEnum):
    """Right granted by a token."""

    READ = "read"
    WRITE = "write"
    MATCH = "match"
    UNMASKED = "unmasked"
    """See the fields that routes mask, in every view of a record."""


USUAL_RIGHTS = (Right.READ, Right.WRITE, Right.MATCH)
"""The rights of a token whose entry names none: `Right.UNMASKED` has to be named."""


_SERVICE = "subscriptions.Service"
_MATCHING = "turnout.subscriptions.v1.Matching"
_STORAGE = "turnout.subscriptions.v1.Storage"
_FEEDS = "turnout.feeds.v1.Feeds"
_KIWI_TREE = "kiwiTree.Service"

NEEDS: dict[tuple[str, str], Right] = {
    (_SERVICE, "Create"): Right.WRITE,
    (_SERVICE, "Read"): Right.READ,
    (_SERVICE, "Update"): Right.WRITE,
    (_SERVICE, "Delete"): Right.WRITE,
    (_SERVICE, "SearchByCondition"): Right.READ,
    (_SERVICE, "SearchByMetadata"): Right.READ,
    (_MATCHING, "Match"): Right.MATCH,
    (_MATCHING, "MatchStream"): Right.MATCH,
    # An explanation shows the condition.
    (_MATCHING, "Explain"): Right.READ,
    (_MATCHING, "Watch"): Right.READ,
    (_STORAGE, "CreateMany"): Right.WRITE,
    (_STORAGE, "CreateLines"): Right.WRITE,
    (_STORAGE, "DeleteMany"): Right.WRITE,
    (_STORAGE, "Apply"): Right.WRITE,
    (_STORAGE, "Search"): Right.READ,
    # The answers have ids.
    (_STORAGE, "Replace"): Right.WRITE,
    (_STORAGE, "EditMany"): Right.WRITE,
    (_STORAGE, "Revision"): Right.READ,
    (_STORAGE, "GetChanges"): Right.READ,
    (_STORAGE, "GetSnapshot"): Right.READ,
    (_STORAGE, "AsOf"): Right.READ,
    (_STORAGE, "GetPast"): Right.READ,
    (_STORAGE, "GetBirths"): Right.READ,
    (_STORAGE, "GetHistory"): Right.READ,
    (_FEEDS, "Read"): Right.READ,
    (_KIWI_TREE, "Create"): Right.WRITE,
    (_KIWI_TREE, "LockCreate"): Right.WRITE,
    (_KIWI_TREE, "UnlockCreate"): Right.WRITE,
    (_KIWI_TREE, "Delete"): Right.WRITE,
}
"""The right that a method needs. A method that is not here, as of reflection, needs a token and no right."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity behind a token. Without arguments: unrestricted.

    Attributes:
        tenant: tenant of the visible subscriptions; None for the whole store.
        rights: granted rights.
        destinations: patterns of the destinations that new subscriptions may have; None for any.
        name: recorded with changes.
        quota: limits of the tenant, for changes by this caller; None for none.
    """

    tenant: str | None = None
    rights: frozenset[Right] = frozenset(Right)
    destinations: tuple[str, ...] | None = None
    name: str = field(default="", compare=False)
    quota: Quota | None = None

    def admit(self, service: str, method: str) -> None:
        """Refuse a method that this caller has no right to.

        Raises:
            RefusedError: with PERMISSION_DENIED.
        """
        needed = NEEDS.get((service, method))
        if needed is not None:
            self.demand(needed)
        if service == _KIWI_TREE and self.tenant is not None:
            raise _denied("a registry of patterns belongs to no tenant")

    def demand(self, right: Right) -> None:
        """Refuse what this caller has no right to.

        Raises:
            RefusedError: with PERMISSION_DENIED.
        """
        if right not in self.rights:
            raise _denied(f"this token does not give the right to {right}")

    def acting_for(self, tenant: str) -> Caller:
        """Return this caller restricted to one tenant; "" names no tenant.

        Raises:
            RefusedError: with PERMISSION_DENIED, if a tenant names another one.
            SubscriptionInvalidError: no tenant can have that name.
        """
        if not tenant or tenant == self.tenant:
            return self
        if self.tenant is not None:
            raise _denied(f"this token is not for the tenant {tenant!r}")
        return replace(self, tenant=check_tenant(tenant))

    def check_destinations(self, subscriptions: Iterable[Subscription | PlainLine]) -> None:
        """Refuse subscriptions that send where this caller may not.

        Raises:
            RefusedError: with PERMISSION_DENIED.
        """
        if self.destinations is None:
            return
        rights = Rights(self.destinations)
        for subscription in subscriptions:
            refusals = list(refusals_of(rights, subscription))
            if refusals:
                raise _denied("; ".join(refusals))


class CallContext:
    """gRPC context of a call, with its caller."""

    __slots__ = ("_context", "caller")

    def __init__(self, context: grpc.ServicerContext, caller: Caller) -> None:
        self._context = context
        self.caller = caller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def max_response(self) -> int:
        """Largest response that the client takes, in bytes: as it says, or as gRPC clients do if they say nothing."""
        length = dict(self._context.invocation_metadata() or ()).get(MAX_RESPONSE_KEY, "")
        return decimal(length) or MAX_RESPONSE

    def warn(self, stored: Sequence[Subscription | PlainLine], ids: Sequence[str]) -> None:
        """Add trailing metadata with the doubts about what was stored."""
        if problems := doubts(stored, ids):
            text = "; ".join(problems)[:_LONGEST_WARNING].encode("unicode_escape").decode()
            self._context.set_trailing_metadata(((WARNING_KEY, text),))


WARNING_KEY: Final = "turnout-warning"
"""The trailing metadata of a creation or an update with what is probably not meant in its conditions."""

_LONGEST_WARNING: Final = 1_000
"""Characters of the warning of a call."""


def _denied(details: str) -> RefusedError:
    return RefusedError(grpc.StatusCode.PERMISSION_DENIED, details)


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
