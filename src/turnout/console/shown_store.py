"""Store whose subscriptions are shown: the server's, or read only the store of a route."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.errors import ConfigError, Mistake
from turnout.routes import Route
from turnout.server.errors import NoStoreError
from turnout.server.rest.dependencies import Parts
from turnout.server.sandbox import route_of
from turnout.server.security import Principal
from turnout.subscriptions.matcher import LiveMatcher
from turnout.subscriptions.service import SubscriptionService


@dataclass(frozen=True, slots=True)
class ShownStore:
    """Subscriptions of a store, and their index.

    Attributes:
        of: the route that has it; "" for the server's own, which alone can be changed here.
    """

    service: SubscriptionService
    live: LiveMatcher
    of: str = ""


def shown_store(parts: Parts, principal: Principal, of: str) -> ShownStore:
    """Return the store of a route, or without one the server's; the first route's where the server has none.

    The first call for the store of a route reads all of it.

    Raises:
        NoStoreError: neither the server nor any route has one.
        ConfigError: the route has no subscriptions, or no such store is there.
        StoreUnavailableError: it is away.
    """
    if not of:
        if parts.subscriptions is not None:
            return ShownStore(parts.subscriptions.service(principal.caller), parts.subscriptions.live(principal.caller))
        of = next(iter(routes_with_stores(parts)), "")
        if not of:
            raise NoStoreError
    live = parts.matchers.of(route_of(parts.routes.entry(of)))
    if live is None:
        raise ConfigError([Mistake("of", f"route {of} has no subscriptions")], what="bad request")
    return ShownStore(SubscriptionService(live.store), live, of)


def store_name(parts: Parts, route: Route) -> str:
    """Return the name by which `shown_store` finds the store of a route: "" for the server's, which others share."""
    return "" if route.subscriptions is None or parts.matchers.is_known(route.subscriptions.store) else route.name


def routes_with_stores(parts: Parts) -> list[str]:
    """Return the names of the routes that match subscriptions."""
    return [entry.name for entry in parts.routes.entries() if entry.version and entry.version.route.subscriptions]
