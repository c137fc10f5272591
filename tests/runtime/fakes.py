"""Shared helpers for tests of open splits."""

from __future__ import annotations

from turnout.engine.counts import Counts


class FakeRevisions:
    """Subscriptions whose revision a test sets; those below the oldest are not kept."""

    def __init__(self, newest: int, oldest: int = 0) -> None:
        self.now = newest
        self.oldest = oldest

    def newest(self) -> int:
        return self.now

    def usable(self, revision: int) -> int:
        return max(revision, self.oldest)


def read(count: int) -> Counts:
    return Counts(read=count, delivered=count)
