"""Readers of the feeds of a server's routes, each opened once and shared by requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from turnout.history.feed import FeedReader
from turnout.routes import Route
from turnout.runtime.feeds.cursors import FeedCursors
from turnout.server.errors import ConflictError
from turnout.server.route_entry import RouteEntry


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
    """Feed readers by route. Safe to use from several threads; ``close`` closes their connections."""

    def __init__(self) -> None:
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
