"""An index that keeps up with its store while others change it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from turnout.errors import StoreUnavailableError
from turnout.subscriptions.deadline import within
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.layers import IndexStats
from turnout.subscriptions.index.match_result import Match
from turnout.subscriptions.matcher import Matcher
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.store import Store

_CATCH_UP_SECONDS = 1.0
"""Seconds that a match waits for a slow store before it uses the index as it is."""

_OWN_CHANGE_SECONDS = 10.0
"""Seconds that a match waits for another thread that applies this process's changes."""

_AWAY_SECONDS = 1.0
"""Seconds before an unreachable store is queried again."""


class ChangeCount:
    """Number of changes that this process has made to a store, for all indexes of it.

    An index that read the count before it queried the store has seen all changes up to that count.
    """

    def __init__(self) -> None:
        self._noted = threading.Condition()
        self.count = 0

    def note(self) -> None:
        """Count a change that the store has made, or may have made."""
        with self._noted:
            self.count += 1
            self._noted.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for the next change, at most *seconds*."""
        with self._noted:
            self._noted.wait(seconds)


class LiveAnswer(NamedTuple):
    """Matches of one message, and the revision of the store at which they are the matches."""

    matches: list[Match]
    revision: int


class LiveMatcher:
    """A Matcher of everything in a store, brought up to date before it answers.

    A change of this process that was noted before a match begins is seen by this match, whatever other threads do
    meanwhile; what other processes change is seen after *max_age* seconds at the latest. While the store is away, the
    index as it was answers; the revision of the answer tells.

    Args:
        store: store to follow.
        max_age: how long an answer may be behind the changes of others, in seconds.
        clock: seconds that only grow.
        changes: counter of this process's changes; one of its own if not given.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_age: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        changes: ChangeCount | None = None,
    ) -> None:
        self._store = store
        self._max_age = max_age
        self._clock = clock
        self._changes = changes or ChangeCount()
        self._refreshing = threading.Lock()
        self._away_until = float("-inf")
        # Before each query of the store: a change that is noted during the query may not be in its answer.
        self._seen = self._changes.count
        self.matcher = Matcher.from_store(store)
        self._checked = clock()

    @property
    def store(self) -> Store:
        """The store that is followed."""
        return self._store

    @property
    def revision(self) -> int:
        """The revision that the index is at."""
        return self.matcher.revision

    def changed(self) -> None:
        """Note that this process has changed the store."""
        self._changes.note()

    def match(self, metadata: Mapping[str, object]) -> LiveAnswer:
        """Return every subscription that matches the message, and the revision of this answer; see `Matcher.match`."""
        self._keep_up()
        matches, revision = self.matcher.match_at_revision(metadata)
        return LiveAnswer(list(matches), revision)

    def index(self) -> Index:
        """Index of the store's subscriptions."""
        self._keep_up()
        return self.matcher.index()

    def __len__(self) -> int:
        """Return the number of subscriptions in the store."""
        self._keep_up()
        return len(self.matcher)

    def stats(self, hottest: int = 10) -> IndexStats:
        """Return the statistics of the index; it walks all of it."""
        self._keep_up()
        return self.matcher.stats(hottest)

    def subscription(self, id: str) -> Subscription:  # noqa: A002 - the field's own name
        """Return the subscription of that id, from the store.

        Raises:
            SubscriptionNotFoundError: there is none.
            StoreUnavailableError: the store is away.
        """
        return self._store.read(id)

    def _keep_up(self) -> None:
        if self._clock() < self._away_until:
            return
        noted = self._changes.count
        if self._seen < noted or self._clock() - self._checked > self._max_age:
            self._catch_up(noted)

    def _catch_up(self, noted: int) -> None:
        """Query the store, unless another thread's query began after the first *noted* changes."""
        # What others have changed may be seen a little later; what this process has changed is waited for.
        if not self._refreshing.acquire(timeout=_OWN_CHANGE_SECONDS if self._seen < noted else 0):
            return
        try:
            if self._seen >= noted and self._clock() - self._checked <= self._max_age:
                return
            begun = self._changes.count
            try:
                with within(_CATCH_UP_SECONDS):
                    self.matcher.refresh(self._store)
            except StoreUnavailableError:
                self._away_until = self._clock() + _AWAY_SECONDS
            else:
                self._seen = begun
            self._checked = self._clock()
        finally:
            self._refreshing.release()

    def follow(self, since: int, *, going: Callable[[], bool], pause: float = 0.1) -> Iterator[Changes]:
        """Yield the changes after the revision *since* as they occur, while *going* returns True.

        Raises:
            StoreUnavailableError: the store is away; following again from the last revision loses nothing.
        """
        while going():
            changes = self._store.changes(since)
            if changes:
                yield changes
            since = changes.revision
            self._changes.wait(pause)
