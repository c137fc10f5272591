"""Ranges that subscriptions have missed, in a database beside the checkpoint of the route's runs.

A run follows its store, and so sees each version of a subscription before a record is matched with it. A version with
another starting point than the last one misses what is before it; one that is paused with ``keep`` misses all until it
is enabled. Both are noted at once, and delivered later: a kill forgets none.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from turnout.base.files import private_folder
from turnout.base.untrusted import JsonMapping, is_whole
from turnout.runtime.kafka.source import KafkaOffsets
from turnout.runtime.offsets import REVISION, begins, committed, numbers_in, open_numbers, planned_end
from turnout.runtime.open_splits import OpenPosition
from turnout.subscriptions.index.index_writer import FollowedStore
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.past import Snapshot

Positions = dict[str, int]
"""Next sequence by stream, or next offset by ``topic:partition``."""

Turn: TypeAlias = int | Positions
"""Position at which open splits take a revision: of the only stream, or of each partition."""

FILE: Final = "backfills.db"
"""Name of the database in a checkpoint."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS starts (id TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS missed (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, position TEXT, paused INTEGER, live INTEGER, next TEXT, until TEXT
);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY, created TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (revision INTEGER PRIMARY KEY, position INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class MissedRange:
    """Range that a subscription has missed.

    Attributes:
        number: number of the range.
        id: id of the subscription.
        position: starting point, as text; None for a pause.
        paused: revision from which on it misses records; None for a starting point.
        live: revision from which on it misses none; None while it is paused.
        next: positions that are to be delivered next; None as long as they are not known.
        until: positions at which the range ends, likewise.
    """

    number: int
    id: str
    position: str | None
    paused: int | None
    live: int | None
    next: Mapping[str, int] | None
    until: Mapping[str, int] | None

    @property
    def waits(self) -> bool:
        """True if the subscription is disabled, so that nothing can be delivered."""
        return self.live is None and self.next is not None

    @property
    def is_open(self) -> bool:
        """True if a bound depends on the revisions in use later."""
        return (self.next is None and self.paused is not None) or (self.until is None and self.live is not None)


class BackfillLedger:
    """Missed ranges of one route. Thread-safe; the file is made with the first of them.

    Args:
        checkpoint: folder of the route's runs.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._file = checkpoint / FILE
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._starts: dict[str, str] = {}
        self._missed: dict[int, MissedRange] = {}
        self.turns: dict[int, Turn] = {}
        if self._file.exists():
            self._open()

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            private_folder(self._file.parent)
            self._database = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
            self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {_SCHEMA}")
            self._starts = dict(self._database.execute("SELECT id, position FROM starts"))
            rows = [missed_range(*row) for row in self._database.execute("SELECT * FROM missed")]
            self._missed = {row.number: row for row in rows}
            self.turns = _turns(self._database)
        return self._database

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    # Queries of a run

    def see_all(self, subscriptions: Iterable[Subscription]) -> None:
        """Note what these versions miss, and forget all other subscriptions."""
        with self._lock:
            recorded_ids = self._recorded_ids()
            relevant = _relevant(subscriptions, recorded_ids)
            self._note(relevant, recorded_ids - {one.id for one in relevant})

    def see(self, changes: Changes) -> None:
        """Record what changed versions have missed; idempotent."""
        with self._lock:
            recorded_ids = self._recorded_ids()
            created = _relevant(changes.created, recorded_ids)
            self._note(created, (recorded_ids & {*changes.deleted_ids}) - {one.id for one in created})

    def _recorded_ids(self) -> set[str]:
        """Return the ids with entries."""
        return {*self._starts, *(row.id for row in self._missed.values())}

    def _note(self, versions: Collection[Subscription], deleted: Collection[str]) -> None:
        if not versions and not deleted:
            return
        database = self._open()
        with database:
            database.execute("BEGIN")
            for id_ in deleted:
                self._forget(id_)
            for version in versions:
                self._note_start(version)
                self._note_pause(version)

    def _note_start(self, version: Subscription) -> None:
        position = None if version.start is None else str(version.start.to_plain())
        if position == self._starts.get(version.id):
            return
        self._execute("DELETE FROM starts WHERE id = ?", version.id)
        self._starts.pop(version.id, None)
        if position is not None:
            self._execute("INSERT INTO starts VALUES (?, ?)", version.id, position)
            self._starts[version.id] = position
            self._add(version.id, position=position, live=version.revision)

    def _note_pause(self, version: Subscription) -> None:
        paused = [row for row in self._missed.values() if row.id == version.id and row.live is None]
        if not version.keep:
            for row in paused:
                self.remove(row.number)
        elif version.enabled:
            for row in paused:
                self._execute("UPDATE missed SET live = ? WHERE number = ?", version.revision, row.number)
                self._read(row.number)
        elif not paused:
            self._add(version.id, paused=version.revision)

    def _add(
        self, id_: str, *, position: str | None = None, paused: int | None = None, live: int | None = None
    ) -> None:
        inserted = self._open().execute(
            "INSERT INTO missed (id, position, paused, live) VALUES (?, ?, ?, ?)", (id_, position, paused, live)
        )
        assert inserted.lastrowid is not None
        self._read(inserted.lastrowid)

    def _execute(self, statement: str, *values: object) -> None:
        self._open().execute(statement, values)

    def _read(self, number: int) -> None:
        (row,) = self._open().execute("SELECT * FROM missed WHERE number = ?", (number,))
        self._missed[number] = missed_range(*row)

    def turned(self, revision: int, position: OpenPosition) -> None:
        """Record that an open split matches with a revision from a position on, while a range waits for it."""
        with self._lock:
            if not any(row.is_open for row in self._missed.values()):
                return
            before = self.turns.get(revision)
            if isinstance(position, int):
                turn: Turn = position if before is None else before
            else:
                # Each split has its own partitions.
                earlier = before if isinstance(before, dict) else {}
                turn = _flat(KafkaOffsets.of_json(position).next) | earlier
            written = turn if isinstance(turn, int) else json.dumps(turn)
            self._execute("INSERT OR REPLACE INTO turns VALUES (?, ?)", revision, written)
            self.turns[revision] = turn

    # What becomes of it

    @property
    def rows(self) -> list[MissedRange]:
        """Ranges for which something can be done, in their order."""
        with self._lock:
            return [row for _, row in sorted(self._missed.items()) if not row.waits]

    def set_bounds(
        self, number: int, following: Mapping[str, int] | None = None, until: Mapping[str, int] | None = None
    ) -> None:
        """Record the bounds of a range; None is unknown, and recorded bounds are kept."""
        with self._lock:
            if number in self._missed:
                bounds = [None if bound is None else json.dumps(dict(bound)) for bound in (following, until)]
                statement = "UPDATE missed SET next = coalesce(next, ?), until = coalesce(until, ?) WHERE number = ?"
                self._execute(statement, *bounds, number)
                self._read(number)
                self._forget_turns()

    def advance(self, number: int, stream: str, position: int) -> None:
        """Note that a range is delivered up to a position of a stream."""
        with self._lock:
            if (row := self._missed.get(number)) is not None:
                reached = json.dumps({**(row.next or {}), stream: position})
                self._execute("UPDATE missed SET next = ? WHERE number = ?", reached, number)
                self._read(number)

    def follow(self, created: Mapping[str, str]) -> list[MissedRange]:
        """Note which streams the positions are in; return the ranges whose records went with a stream that is gone.

        Of a stream that was made anew, a range that is still open has everything; one with an end is over.

        Args:
            created: creation times of the run's streams.
        """
        with self._lock:
            known = dict(self._open().execute("SELECT name, created FROM streams"))
            new = {name for name, time in created.items() if known.get(name, time) != time}
            for name in created.keys() - known.keys() | new:
                self._execute("INSERT OR REPLACE INTO streams VALUES (?, ?)", name, created[name])
            if new:
                self._execute("DELETE FROM turns")
                self.turns = {}
            lost = [row for row in self._missed.values() if row.next is not None and new & row.next.keys()]
            for row in lost:
                ends = row.until or {}
                positions = {name: ends.get(name, 0) if name in new else at for name, at in (row.next or {}).items()}
                self._execute("UPDATE missed SET next = ? WHERE number = ?", json.dumps(positions), row.number)
                self._read(row.number)
            return lost

    def remove(self, number: int) -> None:
        """Forget a range that is delivered."""
        with self._lock:
            self._execute("DELETE FROM missed WHERE number = ?", number)
            self._missed.pop(number, None)
            self._forget_turns()

    def _forget_turns(self) -> None:
        if self.turns and not any(row.is_open for row in self._missed.values()):
            self._execute("DELETE FROM turns")
            self.turns = {}

    def forget(self, id_: str) -> None:
        """Forget a subscription that is deleted."""
        with self._lock:
            self._forget(id_)

    def _forget(self, id_: str) -> None:
        for row in [row for row in self._missed.values() if row.id == id_]:
            self.remove(row.number)
        self._execute("DELETE FROM starts WHERE id = ?", id_)
        self._starts.pop(id_, None)


def _relevant(versions: Iterable[Subscription], recorded_ids: Collection[str]) -> list[Subscription]:
    """Return the versions that miss records, or have entries."""
    return [one for one in versions if one.start is not None or one.keep or one.id in recorded_ids]


def missed_range(
    number: int, id_: str, position: str | None, paused: int | None, live: int | None, following: str | None,
    until: str | None,
) -> MissedRange:  # fmt: skip
    """Return the range of a row of the database."""
    return MissedRange(
        number, id_, position, paused, live,
        None if following is None else json.loads(following),
        None if until is None else json.loads(until),
    )  # fmt: skip


class WatchedStore:
    """Store wrapper for an index: sees the same changes, and shows them to the ledger first.

    Args:
        store: store to follow.
        ledger: ledger of the route.
    """

    def __init__(self, store: FollowedStore, ledger: BackfillLedger) -> None:
        self._store = store
        self._ledger = ledger

    def snapshot(self) -> Snapshot:
        """Return all subscriptions with their revision."""
        snapshot = self._store.snapshot()
        self._ledger.see_all(snapshot.subscriptions)
        return snapshot

    def changes(self, since: int) -> Changes:
        """Return the changes after a revision."""
        changes = self._store.changes(since)
        if changes.reset:
            self._ledger.see_all(changes.created)
        else:
            self._ledger.see(changes)
        return changes


def _turns(database: sqlite3.Connection) -> dict[int, Turn]:
    """Return the positions at which open splits have taken revisions; SQLite keeps a text in a column of numbers."""
    rows = database.execute("SELECT revision, position FROM turns")
    return {revision: json.loads(at) if isinstance(at, str) else at for revision, at in rows}


@dataclass(frozen=True, slots=True)
class _Planned:
    """Offset of a micro-batch: its end, its recorded beginning, and the revision.

    The end of an open split is its beginning.
    """

    end: Positions
    begin: Positions
    revision: int | None


def seam_of(checkpoint: Path, revision: int, turns: Mapping[int, Turn]) -> Positions | None:
    """Return the position from which on a revision, or a later one, is in use; None if it is not yet.

    The checkpoint has the last hundred micro-batches. For a revision in use before them, it is the end of
    the first of these: later than the actual one, so that records up to it may be delivered twice, and none is lost.

    Args:
        checkpoint: its folder.
        revision: revision of the subscriptions.
        turns: the positions at which open splits took a revision.
    """
    before: Positions = {}
    found: Positions | None = None
    for batch in _planned(checkpoint):
        if batch.revision is not None and batch.revision >= revision:
            found = before | batch.begin or batch.end
            break
        before = batch.end
    streams, turned = found or before, Positions()
    for position in (position for later, position in turns.items() if later >= revision):
        for stream in streams:
            at = position if isinstance(position, int) and len(streams) == 1 else None
            at = position.get(stream) if isinstance(position, dict) else at
            if at is not None:
                turned[stream] = min(at, turned.get(stream, at))
    if found is None:
        # As long as one partition has not turned, the revision is not in use for all.
        return turned if turned and turned.keys() == streams.keys() else None
    return {stream: min(at, turned.get(stream, at)) for stream, at in found.items()}


def matched_before(checkpoint: Path) -> Positions:
    """Return the positions up to which every record is done; empty before the first micro-batch."""
    return _flat(committed(checkpoint).next)


def _planned(checkpoint: Path) -> Iterator[_Planned]:
    for number in numbers_in(checkpoint / "offsets"):
        offset = planned_end(checkpoint, number)
        if offset is None:
            continue
        revision = offset.get(REVISION)
        revision_or_none = revision if is_whole(revision) else None
        if any(isinstance(value, dict) for value in offset.values()):
            kafka = KafkaOffsets.of_json(offset)
            begin = kafka.begins if kafka.open is None else kafka.next
            yield _Planned(_flat(kafka.next), _flat(begin), revision_or_none)
            continue
        numbers = {name: value for name, value in offset.items() if is_whole(value)}
        streams = {name: value for name, value in numbers.items() if "." not in name}
        yield _Planned(streams, streams if open_numbers(numbers) else begins(numbers), revision_or_none)


def _flat(offsets: JsonMapping) -> Positions:
    flat: Positions = {}
    for name, value in offsets.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}:{number}": offset for number, offset in value.items()}
        else:
            flat[name] = value
    return flat


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


def _noted(checkpoint: Path, id_: str) -> tuple[str | None, list[MissedRange], dict[int, Turn]]:
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
        turns = _turns(database)
    return None if start is None else start[0], [missed_range(*row) for row in rows], turns
