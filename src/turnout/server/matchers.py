"""Live indexes of the routes' stores, for requests outside a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Self

from turnout.caches import LruCache
from turnout.errors import SubscriptionNotFoundError
from turnout.routes import Route
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.address import existing
from turnout.subscriptions.index import Index
from turnout.subscriptions.live import LiveMatcher

_KEPT = 4
"""Indexes of stores that are not the server's own; the one that was asked for longest ago makes way."""


class StoredSubscriptions(Mapping[str, Subscription]):
    """Subscriptions of a store by id, each read on access."""

    def __init__(self, live: LiveMatcher) -> None:
        self._live = live

    def __getitem__(self, id_: str) -> Subscription:
        try:
            return self._live.subscription(id_)
        except SubscriptionNotFoundError as missing:
            raise KeyError(id_) from missing

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a store may hold millions: search it")

    def __len__(self) -> int:
        return len(self._live.matcher)


class Matchers:
    """Live indexes of stores. Safe to use from several threads; ``with`` closes the stores that it has opened.

    Args:
        open_: opens a store by its URL.
    """

    def __init__(self, open_: Callable[[str], Store] = open_store) -> None:
        self._open = open_
        self._lock = threading.Lock()
        self._own: dict[str, LiveMatcher] = {}
        self._opened = LruCache[str, tuple[Store, LiveMatcher]](_KEPT, on_evict=lambda opened: opened[0].close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for store, _live in self._opened.values():
                store.close()
            self._opened.clear()

    def know(self, url: str, live: LiveMatcher) -> None:
        """Register the index of a store that another component maintains."""
        self._own[existing(url)] = live

    def of(self, route: Route) -> LiveMatcher | None:
        """Return the matcher of a route; None without subscriptions. The first call for a store reads all of it.

        Raises:
            StoreUnavailableError: the store is away.
            ConfigError: there is no such store.
        """
        if route.subscriptions is None:
            return None
        url = existing(route.subscriptions.store)
        with self._lock:
            if url in self._own:
                return self._own[url]
            return self._opened.get_or_add(url, lambda: self._matcher(url))[1]

    def _matcher(self, url: str) -> tuple[Store, LiveMatcher]:
        store = self._open(url)
        return store, LiveMatcher(store)

    def index(self, route: Route) -> Index | None:
        """Return the current index of the route's subscriptions; see `of`."""
        live = self.of(route)
        return None if live is None else live.index()
