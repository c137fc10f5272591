"""History of an SQLite store: deleted subscriptions, and the times of revisions."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain

from turnout.base.clocks import TrustedClock
from turnout.errors import SubscriptionNotFoundError
from turnout.subscriptions.past import Creation, Moment, RecordedMoment, Span, current_actor, due_before, now
from turnout.subscriptions.stores._record import lookup_rows

_TOGETHER = 100
"""Rows of one statement: a fifth less time than one each, and more save nothing; SQLite takes 32,766 values."""


def insert_rows(
    connection: sqlite3.Connection, table: str, width: int, rows: Sequence[tuple[object, ...]], conflict: str = ""
) -> None:
    """Insert rows of *width* values into a table; *conflict* is the SQL clause for existing ones."""
    whole = len(rows) - len(rows) % _TOGETHER
    for start in range(0, whole, _TOGETHER):
        values = list(chain.from_iterable(rows[start : start + _TOGETHER]))
        connection.execute(_insertion(table, width, _TOGETHER, conflict), values)
    if whole < len(rows):
        connection.executemany(_insertion(table, width, 1, conflict), rows[whole:])


def neighbours(rows: Iterable[tuple[object, ...]], width: int) -> list[tuple[object, ...]]:
    """Sort rows of *width* values so that most neighbours in an index are neighbours here.

    To compare one text for each row takes a third of the time of comparing tuples.
    """
    return sorted(rows, key=("%s\0" * width).__mod__)


@cache
def _insertion(table: str, width: int, count: int, conflict: str) -> str:
    row = f"({', '.join('?' * width)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * count)}{conflict}"  # noqa: S608 - names of this package


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


_SCAN_LEAST = 1_000
_SCAN_SHARE = 8
"""Tables are scanned to delete at least so many ids, if they are at least one in so many: to find a row takes some
eight times as long as to pass it."""

_REMEMBERED = 100_000
"""Deletions that are remembered for `changes`; a reader that missed more starts again from everything."""

_REUSED = " ON CONFLICT (id) DO UPDATE SET born = min(born, excluded.born), died = excluded.died"
"""A reused id keeps its first creation revision, so that readers of that time still see the deletion."""


def scan_pays(connection: sqlite3.Connection, count: int) -> bool:
    """Return True if so many subscriptions are deleted sooner by `delete_by_scan`."""
    if count < _SCAN_LEAST:
        return False
    first, last = connection.execute("SELECT min(row), max(row) FROM subscription").fetchone()
    return first is not None and count * _SCAN_SHARE > last - first


def delete_by_scan(connection: sqlite3.Connection, ids: Collection[str], revision: int, *, keep: bool) -> None:
    """Delete distinct ids at a revision, without reading their records; *keep* moves them to the past.

    Raises:
        SubscriptionNotFoundError: one of them does not exist.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS chosen (id TEXT PRIMARY KEY) WITHOUT ROWID")
    connection.execute("DELETE FROM chosen")
    insert_rows(connection, "chosen", 1, [(id_,) for id_ in sorted(ids)])
    # In the order of ids, so that neighbours in the other tables are written together.
    source = "FROM chosen CROSS JOIN subscription USING (id) WHERE true"
    found = connection.execute(
        f"INSERT INTO deleted SELECT id, revision, ? {source}{_REUSED}",
        (revision,),
    ).rowcount
    if found != len(ids):
        query = "SELECT id FROM chosen WHERE NOT EXISTS (SELECT 1 FROM subscription WHERE id = chosen.id)"
        missing = {id_ for (id_,) in connection.execute(query)}
        raise SubscriptionNotFoundError(next(id_ for id_ in ids if id_ in missing))
    if keep:
        connection.execute(f"INSERT INTO past SELECT id, ?, revision, record {source}", (revision,))
    for table in ("leaf", "metadata", "subscription"):
        connection.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM chosen)")  # noqa: S608 - as above
    connection.execute("DELETE FROM chosen")


def delete_by_rows(
    connection: sqlite3.Connection, ids: Sequence[str], revision: int, *, keep: bool
) -> list[tuple[str, int]]:
    """Delete distinct ids at a revision; return each with its first revision. *keep* moves them to the past.

    Raises:
        SubscriptionNotFoundError: one of them does not exist.
    """
    marks = ", ".join("?" * len(ids))
    query = f"SELECT id, record, revision FROM subscription WHERE id IN ({marks})"  # noqa: S608 - placeholders alone
    rows: list[tuple[str, str, int]] = connection.execute(query, ids).fetchall()
    if len(rows) != len(ids):
        found = {row[0] for row in rows}
        raise SubscriptionNotFoundError(next(id_ for id_ in ids if id_ not in found))
    leaf_rows, metadata_rows = lookup_rows(rows)
    connection.execute(f"DELETE FROM subscription WHERE id IN ({marks})", ids)  # noqa: S608 - as above
    connection.executemany(
        "DELETE FROM leaf WHERE (key, pattern, partial, id) = (?, ?, ?, ?)", neighbours(leaf_rows, 4)
    )
    connection.executemany("DELETE FROM metadata WHERE (name, value, id) = (?, ?, ?)", neighbours(metadata_rows, 3))
    insert_rows(connection, "deleted", 3, [(id_, born, revision) for id_, _, born in rows], _REUSED)
    if keep:
        archive(connection, rows, revision)
    return [(id_, born) for id_, _, born in rows]


def forget_old_deletions(connection: sqlite3.Connection) -> None:
    """Drop the deletions before the last `_REMEMBERED` ones."""
    query = "SELECT died FROM deleted ORDER BY died DESC LIMIT 1 OFFSET ?"
    oldest = connection.execute(query, (_REMEMBERED,)).fetchone()
    if oldest is not None:
        connection.execute("DELETE FROM deleted WHERE died <= ?", oldest)
        connection.execute("UPDATE state SET horizon = ?", oldest)
