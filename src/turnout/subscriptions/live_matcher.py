"""An index that keeps up with its store while others change it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from turnout.errors import StoreUnavailableError
from turnout.subscriptions.deadline import within
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.match_result import Match
from turnout.subscriptions.index.statistics import IndexStats
from turnout.subscriptions.matcher import Matcher
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.store import Store

_CATCH_UP_SECONDS = 1.0
"""Seconds that a match waits for a slow store before it uses the index as it is."""

_OWN_CHANGE_SECONDS = 10.0
"""Seconds that a match waits for another thread that applies this process's changes."""

_AWAY_SECONDS = 1.0
"""Seconds before an unreachable store is queried again."""


class LiveMatcher:
    """A Matcher of everything in a store, brought up to date before it answers.

    Changes of this process that `changed` has reported are seen by the next match; what other processes
    change is seen after *max_age* seconds at the latest. While the store is away, the index as it was answers.

    Args:
        store: store to follow.
        max_age: how long an answer may be behind the changes of others, in seconds.
        clock: seconds that only grow.
    """

    def __init__(self, store: Store, *, max_age: float = 0.1, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._max_age = max_age
        self._clock = clock
        self._refreshing = threading.Lock()
        self._news = threading.Condition()
        self._behind = False
        self._away_until = float("-inf")
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
        with self._news:
            self._behind = True
            self._news.notify_all()

    def match(self, metadata: Mapping[str, object]) -> list[Match]:
        """Return every subscription that matches the message; see `Matcher.match`."""
        self._keep_up()
        return list(self.matcher.match(metadata))

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
        if self._behind or self._clock() - self._checked > self._max_age:
            self._catch_up()

    def _catch_up(self) -> None:
        # What others have changed may be seen a little later; what this process has changed is waited for.
        if not self._refreshing.acquire(timeout=_OWN_CHANGE_SECONDS if self._behind else 0):
            return
        try:
            # Before the query: a change in the meantime sets it again.
            was_behind, self._behind = self._behind, False
            if not was_behind and self._clock() - self._checked <= self._max_age:
                return
            try:
                with within(_CATCH_UP_SECONDS):
                    self.matcher.refresh(self._store)
            except StoreUnavailableError:
                self._behind = was_behind or self._behind
                self._away_until = self._clock() + _AWAY_SECONDS
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
            with self._news, contextlib.suppress(RuntimeError):
                self._news.wait(pause)
