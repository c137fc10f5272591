"""Persistent state of the server: versions of routes, pauses, resets of offsets, counts of each minute, events."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from turnout.base.clocks import TrustedClock
from turnout.base.files import FileLock
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.engine.counts import Counts
from turnout.errors import TurnoutError
from turnout.runtime.endpoints import Start
from turnout.server.config import RetentionPart


@dataclass(frozen=True, slots=True)
class Losses:
    """Numbers of records that were read and lost; see `turnout.engine.counts` for each."""

    read: int = 0
    messages: int = 0
    dead_lettered: int = 0
    discarded: int = 0
    undeliverable: int = 0
    unmatched: int = 0

    def share(self, kind: str, least_records: int) -> float | None:
        """Return the share of a kind of loss among the records read, or the deliveries; None for a few of them."""
        whole = self.messages + self.undeliverable if kind == "undeliverable" else self.read
        return None if whole < least_records else float(getattr(self, kind) / whole)


LOSSES: Final = tuple(field.name for field in fields(Losses))
"""The names of the numbers, in order."""


N = TypeVar("N", int, float)

HOUR = 3600


@dataclass(frozen=True, slots=True)
class MinuteCounts:
    """Counts of a route's records within the minute that began at *at*."""

    at: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class MinutePace:
    """Latencies of a route within the minute that began at *at*.

    Attributes:
        batches: micro-batches that ended in it.
        seconds: their total duration.
        lag_records: maximum lag; None if not measured.
        lag_seconds: the age of the oldest record then; None where the server does not say.
    """

    at: int
    batches: int = 0
    seconds: float = 0.0
    lag_records: int | None = None
    lag_seconds: float | None = None

    def __add__(self, other: MinutePace) -> MinutePace:
        return MinutePace(
            self.at,
            self.batches + other.batches,
            self.seconds + other.seconds,
            _greatest(self.lag_records, other.lag_records),
            _greatest(self.lag_seconds, other.lag_seconds),
        )


def _merge(total: JsonObject, more: JsonMapping) -> None:
    """Add the numbers of *more*, at any depth, to *total*: many minutes are summed before objects are made of them."""
    for name, value in more.items():
        if isinstance(value, dict):
            _merge(total.setdefault(name, {}), value)
        elif value or name not in total:  # most are 0
            total[name] = total.get(name, 0) + value


def sums_by_period(rows: Iterable[tuple[int, str]], step: int) -> list[MinuteCounts]:
    """Return the sums of the counts of minutes by period of *step* seconds.

    Args:
        rows: minutes, or hours, with their counts as `add_counts` has written them, the oldest first.
        step: length of a period; periods begin at multiples of it.
    """
    periods: dict[int, JsonObject] = {}
    for minute, text in rows:
        _merge(periods.setdefault(minute // step * step, {}), msgspec.json.decode(text))
    return [MinuteCounts(at, Counts.of_json(total)) for at, total in periods.items()]


def add_hours(db: sqlite3.Connection, route: str, hours: Iterable[int]) -> None:
    """Write the sums of the minutes of some hours."""
    query = "SELECT counts FROM counts WHERE route = ? AND minute >= ? AND minute < ?"
    for hour in hours:
        total: JsonObject = {}
        for (text,) in db.execute(query, (route, hour, hour + HOUR)):
            _merge(total, msgspec.json.decode(text))
        db.execute("INSERT OR REPLACE INTO hours VALUES (?, ?, ?)", (route, hour, msgspec.json.encode(total).decode()))


def add_counts(db: sqlite3.Connection, route: str, minute: int, more: Counts) -> None:
    """Add to the counts of a minute, and to its losses; the sum of its hour is then unknown."""
    db.execute("DELETE FROM hours WHERE route = ? AND hour = ?", (route, minute // HOUR * HOUR))
    before = db.execute("SELECT counts FROM counts WHERE route = ? AND minute = ?", (route, minute)).fetchone()
    total = more + Counts.of_json(json.loads(before[0])) if before else more
    row = (route, minute, json.dumps(total.to_json()))
    db.execute("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", row)
    loss_counts = [getattr(total, name) for name in LOSSES]
    db.execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (minute, route, *loss_counts))


def add_pace(db: sqlite3.Connection, route: str, more: MinutePace) -> None:
    """Add to the pace of a minute."""
    query = "SELECT minute, batches, seconds, lag_records, lag_seconds FROM pace WHERE route = ? AND minute = ?"
    before = db.execute(query, (route, more.at)).fetchone()
    total = MinutePace(*before) + more if before else more
    row = (route, total.at, total.batches, total.seconds, total.lag_records, total.lag_seconds)
    db.execute("INSERT OR REPLACE INTO pace VALUES (?, ?, ?, ?, ?, ?)", row)


def _greatest(one: N | None, other: N | None) -> N | None:
    values = [value for value in (one, other) if value is not None]
    return max(values, default=None)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS revisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, route TEXT NOT NULL, digest TEXT NOT NULL, text TEXT NOT NULL,
    file TEXT NOT NULL, at REAL NOT NULL, who TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS revisions_by_route ON revisions (route, id);
CREATE TABLE IF NOT EXISTS caller_texts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (file, digest));
CREATE TABLE IF NOT EXISTS pauses (route TEXT PRIMARY KEY, who TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS resets (route TEXT PRIMARY KEY, start TEXT, pending INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counts (
    route TEXT NOT NULL, minute INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (route, minute)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hours (
    route TEXT NOT NULL, hour INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (route, hour)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pace (
    route TEXT NOT NULL, minute INTEGER NOT NULL, batches INTEGER NOT NULL, seconds REAL NOT NULL,
    lag_records INTEGER, lag_seconds REAL, PRIMARY KEY (route, minute)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS counts_by_minute ON counts (minute);
CREATE INDEX IF NOT EXISTS hours_by_hour ON hours (hour);
CREATE INDEX IF NOT EXISTS pace_by_minute ON pace (minute);
CREATE TABLE IF NOT EXISTS losses (
    minute INTEGER NOT NULL, route TEXT NOT NULL, read INTEGER NOT NULL, messages INTEGER NOT NULL,
    dead_lettered INTEGER NOT NULL, discarded INTEGER NOT NULL, undeliverable INTEGER NOT NULL,
    unmatched INTEGER NOT NULL, PRIMARY KEY (minute, route)) WITHOUT ROWID;
DROP TABLE IF EXISTS letters;
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, route TEXT NOT NULL,
    detail TEXT NOT NULL);
"""
_LOSSES_OF_COUNTS = f"""
INSERT INTO losses SELECT minute, route, {", ".join(f"coalesce(counts ->> '$.{name}', 0)" for name in LOSSES)}
    FROM counts
"""  # noqa: S608 - names of our own
"""Of a folder of a server that had them among the counts alone."""
_HOURS_AT_ONCE = 24
"""Hours that are added up while other threads wait."""
_TRIM_EVERY = 200
"""Events between two checks of their number."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A version of a route that was started.

    Attributes:
        at: time in seconds since the epoch.
        who: name of the caller, ``file`` for a change of the file.
    """

    digest: str
    text: str
    file: str
    at: float
    who: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Author and time of a pause."""

    who: str
    at: float


@dataclass(frozen=True, slots=True)
class Reset:
    """Start of a route without a checkpoint.

    Attributes:
        start: as in the route's source; None for the route's own.
        pending: the old checkpoint has still to be moved aside.
    """

    start: Start | None
    pending: bool


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Stored event of a route; ids increase."""

    id: int
    at: float
    kind: str
    route: str
    detail: Mapping[str, object]


class State:
    """The state folder of a server. Safe to use from several threads; one server has it at a time.

    Args:
        folder: made if it is not there; readable by its owner only.
        retention: limits of the stored history.
        clock: seconds since the epoch.

    Raises:
        TurnoutError: another server has the folder.
    """

    def __init__(
        self, folder: Path, retention: RetentionPart | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self._retention = retention or RetentionPart()
        self._clock = clock
        self._trusted = TrustedClock(lambda: self._clock())
        self._lock = threading.Lock()
        self._since_trim = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_file = _locked(folder / "lock")
        file = folder / "server.db"
        # SQLite would make the file, and those beside it, readable for others.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        had_losses = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'losses'").fetchone()
        self._db.executescript(_SCHEMA)
        if not had_losses:
            self._db.execute(_LOSSES_OF_COUNTS)
        newest = self._db.execute("SELECT max(minute) FROM counts WHERE minute <= ?", (clock(),)).fetchone()[0]
        # A clock change without a running server differs from downtime by its duration.
        self._trusted.now(newest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the state folder."""
        with self._lock:
            self._db.close()
            self._lock_file.release()

    @property
    def kept_seconds(self) -> float:
        """Age up to which the counts of each minute are kept."""
        return self._retention.counts

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    # Versions

    def add_revision(self, route: str, *, digest: str, text: str, file: str, who: str) -> None:
        """Note a version that is started, unless it is the newest already."""
        newest = self.newest_revision(route)
        if newest is not None and (newest.digest, newest.file) == (digest, file):
            return
        with self._writing() as db:
            db.execute(
                "INSERT INTO revisions (route, digest, text, file, at, who) VALUES (?, ?, ?, ?, ?, ?)",
                (route, digest, text, file, self._clock(), who),
            )
            db.execute(
                "DELETE FROM revisions WHERE route = ? AND id NOT IN"
                " (SELECT id FROM revisions WHERE route = ? ORDER BY id DESC LIMIT ?)",
                (route, route, self._retention.revisions),
            )

    def newest_revision(self, route: str) -> Revision | None:
        """Return the version that was started last."""
        revisions = self.revisions(route, limit=1)
        return revisions[0] if revisions else None

    def revisions(self, route: str, limit: int = 50) -> list[Revision]:
        """Return the versions that were started, the newest first."""
        query = "SELECT digest, text, file, at, who FROM revisions WHERE route = ? ORDER BY id DESC LIMIT ?"
        return [Revision(*row) for row in self._rows(query, route, limit)]

    # Texts of callers

    def add_caller_text(self, file: Path, text: str) -> None:
        """Note that a caller, and not the operator, is about to write a text into a file."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO caller_texts (file, digest) VALUES (?, ?)", (str(file), _digest(text)))
            db.execute(
                "DELETE FROM caller_texts WHERE file = ? AND id NOT IN"
                " (SELECT id FROM caller_texts WHERE file = ? ORDER BY id DESC LIMIT ?)",
                (str(file), str(file), self._retention.revisions),
            )

    def is_caller_text(self, file: Path, text: str) -> bool:
        """Return True if a caller has written this text into the file."""
        query = "SELECT 1 FROM caller_texts WHERE file = ? AND digest = ?"
        return bool(self._rows(query, str(file), _digest(text)))

    # Pauses and resets

    def pause(self, route: str, who: str) -> None:
        """Store the author of a pause; the first one is kept."""
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO pauses VALUES (?, ?, ?)", (route, who, self._clock()))

    def resume(self, route: str) -> None:
        """Remove the pause of a route."""
        with self._writing() as db:
            db.execute("DELETE FROM pauses WHERE route = ?", (route,))

    def paused(self, route: str) -> Pause | None:
        """Return the pause of a route; None if it is not paused."""
        rows = self._rows("SELECT who, at FROM pauses WHERE route = ?", route)
        return Pause(*rows[0]) if rows else None

    def reset(self, route: str, start: Start | None, *, pending: bool = True) -> None:
        """Store the start of the next run; *pending* until the checkpoint is set aside."""
        with self._writing() as db:
            row = (route, None if start is None else json.dumps(start), int(pending))
            db.execute("INSERT OR REPLACE INTO resets VALUES (?, ?, ?)", row)

    def reset_of(self, route: str) -> Reset | None:
        """Return the last reset of a route, or None."""
        rows = self._rows("SELECT start, pending FROM resets WHERE route = ?", route)
        return Reset(None if rows[0][0] is None else json.loads(rows[0][0]), bool(rows[0][1])) if rows else None

    def forget(self, route: str) -> None:
        """Delete pause and reset of a removed route, so that a later route of its name is not affected."""
        with self._writing() as db:
            db.execute("DELETE FROM pauses WHERE route = ?", (route,))
            db.execute("DELETE FROM resets WHERE route = ?", (route,))

    # Counts

    def add_counts(self, route: str, counts: Counts, at: float) -> None:
        """Add to the counts of the minute that contains *at*."""
        self.add_history({(route, int(at // 60) * 60): counts}, {})

    def add_pace(self, route: str, pace: MinutePace) -> None:
        """Add to the pace of a minute."""
        self.add_history({}, {(route, pace.at): pace})

    def add_history(self, counts: Mapping[tuple[str, int], Counts], pace: Mapping[tuple[str, int], MinutePace]) -> None:
        """Add counts and paces by route and minute, and delete expired minutes."""
        with self._writing() as db:
            oldest = self._trusted.now() - self._retention.counts
            for (route, minute), more in counts.items():
                add_counts(db, route, minute, more)
            for (route, _), more_pace in pace.items():
                add_pace(db, route, more_pace)
            db.execute("DELETE FROM counts WHERE minute < ?", (oldest,))
            db.execute("DELETE FROM hours WHERE hour < ?", (oldest,))
            db.execute("DELETE FROM losses WHERE minute < ?", (oldest,))
            db.execute("DELETE FROM pace WHERE minute < ?", (oldest,))

    def losses(self, since: float, until: float) -> dict[str, Losses]:
        """Return records read and lost by route in the minutes that begin in a period; no entry without any."""
        sums = ", ".join(f"SUM({name})" for name in LOSSES)
        query = f"SELECT route, {sums} FROM losses WHERE minute >= ? AND minute < ? GROUP BY route"  # noqa: S608
        return {str(route): Losses(*numbers) for route, *numbers in self._rows(query, since, until)}

    def counts(self, route: str, since: float = 0.0, until: float = float("inf"), step: int = 60) -> list[MinuteCounts]:
        """Return the sums of the counts of a route, the oldest first; nothing for a period in which nothing was done.

        Args:
            route: its name.
            since: the first minute, in seconds since the epoch.
            until: the minute to stop before.
            step: length of a period in seconds; periods begin at multiples of it.
        """
        query = "SELECT minute, counts FROM counts WHERE route = ? AND minute >= ? AND minute < ? ORDER BY minute"
        hours: list[tuple[Any, ...]] = []
        if step % HOUR == since % HOUR == 0:
            begin, since = since, max(since, min(until, self._clock()) // HOUR * HOUR)
            hours = self._hours(route, begin, since)
        return sums_by_period([*hours, *self._rows(query, route, since, until)], step)

    def _hours(self, route: str, since: float, until: float) -> list[tuple[Any, ...]]:
        """Return the sums of whole hours, which are kept: a month of minutes takes a second to add up."""
        query = (
            "SELECT DISTINCT minute / 3600 * 3600 FROM counts WHERE route = ? AND minute >= ? AND minute < ?"
            " EXCEPT SELECT hour FROM hours WHERE route = ?"
        )
        missing = [hour for (hour,) in self._rows(query, route, since, until, route)]
        for first in range(0, len(missing), _HOURS_AT_ONCE):
            with self._writing() as db:
                add_hours(db, route, missing[first : first + _HOURS_AT_ONCE])
        return self._rows(
            "SELECT hour, counts FROM hours WHERE route = ? AND hour >= ? AND hour < ? ORDER BY hour",
            route,
            since,
            until,
        )

    def pace(self, route: str, since: float = 0.0, until: float = float("inf"), step: int = 60) -> list[MinutePace]:
        """Return the latencies of a route by period, as `counts` does."""
        query = (
            "SELECT minute / ? * ? AS period, sum(batches), sum(seconds), max(lag_records), max(lag_seconds) FROM pace"
            " WHERE route = ? AND minute >= ? AND minute < ? GROUP BY period ORDER BY period"
        )
        return [MinutePace(*row) for row in self._rows(query, step, step, route, since, until)]

    # Events

    def add_event(self, kind: str, route: str, detail: Mapping[str, object]) -> StoredEvent:
        """Note something that happened."""
        at = self._clock()
        with self._writing() as db:
            row = (at, kind, route, json.dumps(detail))
            id_ = int(
                db.execute("INSERT INTO events (at, kind, route, detail) VALUES (?, ?, ?, ?)", row).lastrowid or 0
            )
            self._since_trim += 1
            if self._since_trim >= _TRIM_EVERY:
                self._since_trim = 0
                db.execute("DELETE FROM events WHERE id <= ?", (id_ - self._retention.events,))
        return StoredEvent(id_, at, kind, route, detail)

    def events(self, after: int = 0, limit: int = 1000, route: str | None = None) -> list[StoredEvent]:
        """Return the events after that id, of one route or of all."""
        query = "SELECT id, at, kind, route, detail FROM events WHERE id > ? AND (? IS NULL OR route = ?) LIMIT ?"
        rows = self._rows(query, after, route, route, limit)
        return [StoredEvent(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in rows]

    def newest_event(self) -> int:
        """Return the id of the newest event; 0 before the first."""
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'")[0][0])

    def recent_events(self, route: str, limit: int = 20) -> list[StoredEvent]:
        """Return the last events of a route, the newest first."""
        query = "SELECT id, at, kind, route, detail FROM events WHERE route = ? ORDER BY id DESC LIMIT ?"
        return [
            StoredEvent(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in self._rows(query, route, limit)
        ]

    def last_failures(self) -> dict[str, StoredEvent]:
        """Return the last failure of each route, from the events that are still stored."""
        query = (
            "SELECT max(id), at, kind, route, detail FROM events WHERE kind = 'route.state'"
            " AND json_extract(detail, '$.state') IN ('failed', 'waiting') GROUP BY route"
        )
        return {row[3]: StoredEvent(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in self._rows(query)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _locked(file: Path) -> FileLock:
    lock = FileLock(file)
    try:
        return lock.acquire()
    except OSError as failure:
        lock.release()
        raise TurnoutError(f"another server is running with the state folder {file.parent}") from failure
