"""Subscriptions of one revision that stay as they are: what an index can follow in place of a store."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.subscriptions.model import Changes
from turnout.subscriptions.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Pinned:
    """Store interface over the content of one revision; it never changes.

    Attributes:
        fixed: the subscriptions, and their revision.
    """

    fixed: Snapshot

    def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""
        return self.fixed

    def changes(self, since: int) -> Changes:
        """See `Store.changes`: always empty, as it has only one revision."""
        return Changes(max(since, self.fixed.revision))

    def close(self) -> None:
        """Do nothing, as no resources are held."""
