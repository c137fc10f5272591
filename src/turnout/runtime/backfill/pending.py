"""Earlier records that a run has still to deliver to one subscription, for readers in any process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from turnout.runtime.backfill.ledger import FILE, MissedRange, missed_range
from turnout.runtime.backfill.seams import Positions, seam_of
from turnout.subscriptions.model import Subscription

_MADE = "SELECT 1 FROM sqlite_master WHERE name = 'turns'"
"""Query for the table that is made last."""


def pending_positions(checkpoint: Path, subscription: Subscription, streams: Iterable[str]) -> Positions:
    """Return the position of the first record that is still to be delivered late, by stream.

    A stream without such records is left out. Of a starting point that no run has seen yet, it is 0 for all streams.

    Args:
        checkpoint: folder of the route's runs.
        subscription: as its store has it.
        streams: names of the streams, or partitions.
    """
    start = None if subscription.start is None else str(subscription.start.to_plain())
    noted, rows, turns = _noted(checkpoint, subscription.id)
    if start is not None and start != noted:
        return dict.fromkeys(streams, 0)
    pending: Positions = {}
    for row in rows:
        reached = row.next
        if reached is None:
            reached = {} if row.paused is None else seam_of(checkpoint, row.paused, turns)
        if reached is None:
            # The run still matches with the version before the pause.
            continue
        for stream in streams:
            position = reached.get(stream, 0)
            if row.until is None or position < row.until.get(stream, 0):
                pending[stream] = min(position, pending.get(stream, position))
    return pending


def _noted(checkpoint: Path, id_: str) -> tuple[str | None, list[MissedRange], dict[int, int]]:
    """Return the starting point that a run has seen, and the ranges that it has not delivered."""
    file = checkpoint / FILE
    if not file.exists() or not file.stat().st_size:
        return None, [], {}
    with closing(sqlite3.connect(file, timeout=5.0)) as database:
        database.execute("BEGIN")
        if database.execute(_MADE).fetchone() is None:
            # A run is making the file; it has noted nothing yet.
            return None, [], {}
        start = database.execute("SELECT position FROM starts WHERE id = ?", (id_,)).fetchone()
        rows = database.execute("SELECT * FROM missed WHERE id = ?", (id_,)).fetchall()
        turns = dict(database.execute("SELECT revision, position FROM turns"))
    return None if start is None else start[0], [missed_range(*row) for row in rows], turns
