"""History of an SQLite store: deleted subscriptions, and the times of revisions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from turnout.base.clocks import TrustedClock
from turnout.subscriptions.actor import current_actor
from turnout.subscriptions.audit import RecordedMoment
from turnout.subscriptions.past import Creation, Moment, Span, due_before, now
from turnout.subscriptions.stores._sqlite_rows import insert_rows


def note_time(connection: sqlite3.Connection, revision: int) -> None:
    """Record the clock's time of a revision, and its actor; a wrong reading does not affect later revisions."""
    connection.execute("INSERT INTO moment VALUES (?, ?, ?)", (revision, now(), current_actor()))


def archive(connection: sqlite3.Connection, rows: Iterable[tuple[str, str, int]], died: int) -> None:
    """Remember deleted subscriptions: each one's id, record and revision of creation."""
    insert_rows(connection, "past", 4, [(id_, died, born, record) for id_, record, born in rows])


def forget(connection: sqlite3.Connection, retention: float, clock: TrustedClock) -> None:
    """Drop everything older than the retention; the state at its beginning stays known.

    One wrong reading drops nothing: *clock* does not believe it at once, and a revision has to be as old as the one
    before it says.
    """
    before = "SELECT at FROM moment ORDER BY revision DESC LIMIT 1 OFFSET 1"
    recorded = connection.execute(before).fetchone()
    limit = due_before(clock, retention, recorded[0] if recorded else None)
    query = (
        "SELECT max(own.revision) FROM moment AS own LEFT JOIN moment AS before ON before.revision = own.revision - 1"
        " WHERE own.at <= ?1 AND coalesce(before.at, own.at) <= ?1"
    )
    oldest = connection.execute(query, (limit,)).fetchone()[0]
    if oldest is not None:
        connection.execute("UPDATE state SET remembered = max(remembered, ?)", (oldest,))
        connection.execute("DELETE FROM past WHERE died <= ?", (oldest,))
        connection.execute("DELETE FROM moment WHERE revision < ?", (oldest,))


def revision_at(connection: sqlite3.Connection, moment: Moment) -> int:
    """The revision of a moment.

    Raises:
        HistoryForgottenError: the file does not know so far back.
    """
    first, last, since = connection.execute(
        "SELECT remembered, state.revision, coalesce(at, 0) FROM state"
        " LEFT JOIN moment ON remembered > 0 AND moment.revision = remembered"
    ).fetchone()

    def last_until(at: int) -> int | None:
        query = "SELECT revision FROM moment WHERE at <= ? ORDER BY revision DESC LIMIT 1"
        row = connection.execute(query, (at,)).fetchone()
        return None if row is None else int(row[0])

    return Span(first, last, since).revision(moment, last_until)


_THEN = (
    "SELECT id, record, revision FROM subscription WHERE revision <= ?1{0}"
    " UNION ALL SELECT id, record, born FROM past WHERE born <= ?1 AND died > ?1{0}"
)


def record_at(connection: sqlite3.Connection, revision: int, id_: str) -> tuple[str, str, int] | None:
    """The id, record and first revision of the version of an id at a revision."""
    row: tuple[str, str, int] | None = connection.execute(_THEN.format(" AND id = ?2"), (revision, id_)).fetchone()
    return row


def versions(connection: sqlite3.Connection, id_: str) -> list[tuple[str, int, int | None]]:
    """Return the remembered versions of an id, each with its record and the revisions of its beginning and end."""
    query = (
        "SELECT record, born, died FROM past WHERE id = ?1"
        " UNION ALL SELECT record, revision, NULL FROM subscription WHERE id = ?1"
    )
    return connection.execute(query, (id_,)).fetchall()


def remembered(connection: sqlite3.Connection) -> int:
    """Return the oldest revision whose state the file knows."""
    first: int = connection.execute("SELECT remembered FROM state").fetchone()[0]
    return first


def recorded(connection: sqlite3.Connection, revision: int) -> RecordedMoment | None:
    """Return the time and the actor of a revision."""
    row = connection.execute("SELECT at, actor FROM moment WHERE revision = ?", (revision,)).fetchone()
    return None if row is None else RecordedMoment(*row)


def records_at(
    connection: sqlite3.Connection, revision: int, bounds: tuple[str, str | bytes]
) -> Iterator[tuple[str, str, int]]:
    """The ids, records and first revisions of the subscriptions at a revision, between two ids, unordered."""
    return connection.execute(_THEN.format(" AND id > ?2 AND id < ?3"), (revision, *bounds))


def births(connection: sqlite3.Connection, bounds: tuple[str, str | bytes]) -> dict[str, Creation]:
    """Return the creation of each present subscription."""
    rows = connection.execute(
        "SELECT id, subscription.revision, at FROM subscription LEFT JOIN moment USING (revision)"
        " WHERE id > ? AND id < ?",
        bounds,
    )
    return {id_: Creation.of(revision, at) for id_, revision, at in rows}
