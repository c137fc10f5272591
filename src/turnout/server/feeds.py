"""Feeds of a server's routes, for REST and gRPC: readers that requests share, and the limit of followers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from turnout.history.feed import FeedPage, FeedReader
from turnout.routes import Route
from turnout.rpc.caller import Caller
from turnout.runtime.cursors import FeedCursor, FeedCursors
from turnout.server.errors import ConflictError, TooManyFollowersError
from turnout.server.routes.routes import Routes
from turnout.server.routes.table import RouteEntry
from turnout.subscriptions.tenants import prefix_of

MAX_FOLLOWERS: Final = 64
"""Feeds that are followed at the same time."""


@dataclass
class _Slot:
    """Reader of one route, which one request at a time uses; None before the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    digest: str = ""
    reader: FeedReader | None = None

    def open(self, route: Route, checkpoint: Path) -> FeedReader:
        """Return the reader of a version of the route. The lock is held."""
        if self.reader is None or self.digest != route.digest:
            self.close()
            self.reader, self.digest = FeedReader(route, checkpoint), route.digest
        return self.reader

    def close(self) -> None:
        """Close the reader. The lock is held."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.close()


class Feeds:
    """Feed readers by route. Safe to use from several threads; ``close`` closes their connections.

    Args:
        max_followers: feeds that may be followed at the same time.
    """

    def __init__(self, max_followers: int = MAX_FOLLOWERS) -> None:
        self._followers = threading.BoundedSemaphore(max_followers)
        self._lock = threading.Lock()
        """For the table, never held during requests to a server or a store."""
        self._slots: dict[str, _Slot] = {}

    @contextmanager
    def reader(self, entry: RouteEntry) -> Iterator[FeedReader]:
        """Use the reader of a route's present version.

        Raises:
            ConflictError: the route cannot be used.
            ConfigError: it stores no feeds.
            ConnectionLostError: its server cannot be reached.
        """
        route, checkpoint = _usable(entry)
        with self._lock:
            slot = self._slots.setdefault(entry.name, _Slot())
        with slot.lock:
            yield slot.open(route, checkpoint)

    def cursors(self, entry: RouteEntry) -> FeedCursors:
        """Return the acknowledged positions of a route's feeds.

        Raises:
            ConflictError: the route cannot be used.
        """
        return FeedCursors(_usable(entry)[1])

    def begin_following(self) -> None:
        """Count one more feed as followed, until `end_following`.

        Raises:
            TooManyFollowersError: too many are.
        """
        if not self._followers.acquire(blocking=False):
            raise TooManyFollowersError

    def end_following(self) -> None:
        """Count one feed less."""
        self._followers.release()

    def close(self) -> None:
        """Close all readers."""
        with self._lock:
            slots, self._slots = list(self._slots.values()), {}
        for slot in slots:
            with slot.lock:
                slot.close()


def _usable(entry: RouteEntry) -> tuple[Route, Path]:
    if entry.version is None:
        raise ConflictError(f"route {entry.name} cannot be used: {entry.status.reason}")
    if entry.checkpoint is None:
        raise ConflictError(f"route {entry.name} has its checkpoint on another machine, and its feeds with it")
    return entry.version.route, entry.checkpoint


@dataclass(frozen=True, slots=True)
class Feed:
    """Feed of one subscription, for one request. All but the limit of followers waits for stores and servers.

    Attributes:
        feeds: of the server.
        entry: the route that stores it.
        subscription_id: id in the route's store.
    """

    feeds: Feeds
    entry: RouteEntry
    subscription_id: str

    @classmethod
    def of(cls, feeds: Feeds, routes: Routes, route: str | None, caller: Caller, id_: str) -> Feed:
        """Return the feed of a caller's subscription: a tenant reads only its own.

        Raises:
            RouteNotFoundError: there is no such route.
            ConflictError: none is named, and not exactly one stores feeds.
        """
        stored_id = id_ if caller.tenant is None else f"{prefix_of(caller.tenant)}{id_}"
        return cls(feeds, _entry(routes, route), stored_id)

    def page(self, after: FeedCursor, limit: int) -> FeedPage:
        """Return the page behind a cursor; see `FeedReader.page`."""
        with self.feeds.reader(self.entry) as reader:
            return reader.page(self.subscription_id, after, limit)

    def acknowledged(self, name: str) -> FeedCursor:
        """Return the cursor of a named reader."""
        with self.feeds.reader(self.entry) as reader:
            return self._acknowledged(reader, name)

    def _acknowledged(self, reader: FeedReader, name: str) -> FeedCursor:
        cursors = self.feeds.cursors(self.entry)
        return reader.reachable(cursors.read(self.subscription_id, name, reader.identity_texts()) or 0)

    def acknowledge(self, name: str, cursor: FeedCursor) -> FeedCursor:
        """Move the cursor of a named reader forward, and return it.

        Raises:
            SubscriptionNotFoundError: there is no such subscription.
            ConfigError: the cursor is of another kind of source, or beyond the end of a stream.
        """
        with self.feeds.reader(self.entry) as reader:
            reader.check(self.subscription_id, cursor)
            identities, known = reader.identity_texts(), self._acknowledged(reader, name)
        cursors = self.feeds.cursors(self.entry)
        return cursors.acknowledge(self.subscription_id, name, cursor, identities, known)


def _entry(routes: Routes, name: str | None) -> RouteEntry:
    """Return the route that is named, or the only one with feeds.

    Raises:
        RouteNotFoundError: there is no such route.
        ConflictError: none is named, and not exactly one stores feeds.
    """
    if name is not None:
        return routes.entry(name)
    having = [entry for entry in routes.entries() if _has_feeds(entry)]
    if len(having) != 1:
        names = ", ".join(entry.name for entry in having[:10]) or "none"
        raise ConflictError(f"name the route: expected one route that stores feeds, found {names}")
    return having[0]


def _has_feeds(entry: RouteEntry) -> bool:
    subscriptions = None if entry.version is None else entry.version.route.subscriptions
    return subscriptions is not None and bool(subscriptions.feeds)
