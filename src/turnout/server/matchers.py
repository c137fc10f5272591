"""Live indexes of the routes' stores, for requests outside a run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Self

from turnout.errors import StoreUnavailableError, SubscriptionNotFoundError
from turnout.routes import Route
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.deadline import remaining
from turnout.subscriptions.index import Index
from turnout.subscriptions.live_matcher import LiveMatcher
from turnout.subscriptions.store_threads import STORE_SECONDS
from turnout.subscriptions.store_url import existing, without_timeout

_CACHED_INDEXES = 4
"""Maximum number of indexes of other stores than the server's; the least recently used is evicted."""


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
        """For the tables, never held while a store is opened."""
        self._own: dict[str, LiveMatcher] = {}
        self._opened: OrderedDict[str, Future[tuple[Store, LiveMatcher]]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            opened = list(self._opened.values())
            self._opened.clear()
        for opening in opened:
            opening.add_done_callback(_close)

    def know(self, url: str, live: LiveMatcher) -> None:
        """Register the index of a store that another component maintains."""
        self._own[existing(without_timeout(url))] = live

    def is_known(self, url: str) -> bool:
        """Return True if another component maintains the index of a store."""
        return existing(without_timeout(url)) in self._own

    def of(self, route: Route) -> LiveMatcher | None:
        """Return the matcher of a route; None without subscriptions. The first call for a store reads all of it.

        Calls for one store wait for the first; those for others do not.

        Raises:
            StoreUnavailableError: the store is away, or is not read before the caller's deadline.
            ConfigError: there is no such store.
        """
        if route.subscriptions is None:
            return None
        url = existing(route.subscriptions.store)
        own = self._own.get(without_timeout(url))
        if own is not None:
            return own
        with self._lock:
            is_first = url not in self._opened
            opening = self._opened.setdefault(url, Future())
            self._opened.move_to_end(url)
            evicted = self._opened.popitem(last=False)[1] if len(self._opened) > _CACHED_INDEXES else None
        if evicted is not None:
            evicted.add_done_callback(_close)
        if is_first:
            self._read(url, opening)
        try:
            return opening.result(remaining(STORE_SECONDS))[1]
        except TimeoutError:
            raise StoreUnavailableError("the store is still being read: try again later") from None

    def _read(self, url: str, opening: Future[tuple[Store, LiveMatcher]]) -> None:
        """Open and read a store for all waiting callers; the next call retries a failure."""
        try:
            store = self._open(url)
            try:
                opening.set_result((store, LiveMatcher(store)))
            except BaseException:
                store.close()
                raise
        except BaseException as failure:  # noqa: BLE001 - it is raised from the future
            with self._lock:
                if self._opened.get(url) is opening:
                    del self._opened[url]
            opening.set_exception(failure)

    def index(self, route: Route) -> Index | None:
        """Return the current index of the route's subscriptions; see `of`."""
        live = self.of(route)
        return None if live is None else live.index()


def _close(opened: Future[tuple[Store, LiveMatcher]]) -> None:
    if opened.exception() is None:
        opened.result()[0].close()
