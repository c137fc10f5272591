"""Caller of a request: its tenant and its rights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import grpc

from turnout.base.untrusted import decimal
from turnout.rpc.status import RefusedError
from turnout.subjects.rights import Rights
from turnout.subscriptions import Subscription
from turnout.subscriptions.destinations import refusals_of
from turnout.subscriptions.lines import doubts
from turnout.subscriptions.plain_lines import PlainLine
from turnout.subscriptions.quotas import Quota
from turnout.subscriptions.tenants import check_tenant

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
