"""The kiwi-tree registry: which (key, pattern) pairs are in use, with a lock on the creation of each.

The original kept it in a service of its own, one for complete and one for partial patterns. The
subscriptions service needs it only to be a drop-in there: matching uses the embedded index.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from turnout.base.files import private_file
from turnout.conditions.pattern import check_pattern
from turnout.errors import StoreUnavailableError, SubscriptionError, SubscriptionInvalidError

LOCK_SECONDS = 30.0
"""Seconds after which a lock expires, so that a dead holder does not block the pair for ever."""


class PairNotFoundError(SubscriptionError, LookupError):
    """Raised when a pair that is to be removed is not registered."""


class PatternRegistry(Protocol):
    """Registry of (key, pattern) pairs in use by subscriptions."""

    def create(self, key: str, pattern: str) -> None:
        """Register a pair; nothing changes if it is registered.

        Raises:
            StoreUnavailableError: the pair is locked; try again.
        """
        ...

    def lock_create(self, key: str, pattern: str) -> None:
        """Stop the creation of a pair.

        Raises:
            StoreUnavailableError: it is locked already; try again.
        """
        ...

    def unlock_create(self, key: str, pattern: str) -> None:
        """Allow it again; nothing changes if it is not locked."""
        ...

    def delete(self, key: str, pattern: str) -> None:
        """Remove a pair.

        Raises:
            PairNotFoundError: it is not registered.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class KiwiTree:
    """A registry in one SQLite file, or in memory. Locks live in this process and end by themselves.

    Args:
        path: the file; memory if there is none.
        clock: seconds that only grow.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._locked: dict[tuple[str, str], float] = {}
        self._pairs = sqlite3.connect(
            private_file(path) if path else ":memory:", isolation_level=None, check_same_thread=False
        )
        self._pairs.execute("PRAGMA journal_mode = wal")
        self._pairs.execute(
            "CREATE TABLE IF NOT EXISTS pair (key TEXT, pattern TEXT, PRIMARY KEY (key, pattern)) WITHOUT ROWID"
        )

    def create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.create`.

        Raises:
            SubscriptionInvalidError: there is no key.
            ConditionError: the pattern is not one of kiwi tree's.
        """
        if not key:
            raise SubscriptionInvalidError("a pair needs a key")
        check_pattern(pattern, tree=True)
        with self._alone():
            self._need_unlocked(key, pattern)
            self._pairs.execute("INSERT INTO pair VALUES (?, ?) ON CONFLICT DO NOTHING", (key, pattern))

    def lock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.lock_create`."""
        with self._alone():
            self._need_unlocked(key, pattern)
            self._locked[key, pattern] = self._clock() + LOCK_SECONDS

    def unlock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.unlock_create`."""
        with self._alone():
            self._locked.pop((key, pattern), None)

    def delete(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.delete`."""
        with self._alone():
            deleted = self._pairs.execute("DELETE FROM pair WHERE (key, pattern) = (?, ?)", (key, pattern))
            if not deleted.rowcount:
                raise PairNotFoundError(f"the pair {key!r}, {pattern!r} is not registered")

    def pairs(self) -> list[tuple[str, str]]:
        """Return every pair, sorted."""
        with self._alone():
            return self._pairs.execute("SELECT key, pattern FROM pair").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._pairs.close()

    def _need_unlocked(self, key: str, pattern: str) -> None:
        until = self._locked.get((key, pattern))
        if until is not None and until > self._clock():
            raise StoreUnavailableError(f"the pair {key!r}, {pattern!r} is locked: try again")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as failure:
                raise StoreUnavailableError(f"the kiwi tree's file failed: {failure}") from failure
