"""Deletion from an SQLite store: a few subscriptions by their rows, many by one pass over each table."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from turnout.errors import SubscriptionNotFoundError
from turnout.subscriptions.stores import _sqlite_past as past
from turnout.subscriptions.stores._record import lookup_rows
from turnout.subscriptions.stores._sqlite_rows import insert_rows, neighbours

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
        past.archive(connection, rows, revision)
    return [(id_, born) for id_, _, born in rows]


def forget_old_deletions(connection: sqlite3.Connection) -> None:
    """Drop the deletions before the last `_REMEMBERED` ones."""
    query = "SELECT died FROM deleted ORDER BY died DESC LIMIT 1 OFFSET ?"
    oldest = connection.execute(query, (_REMEMBERED,)).fetchone()
    if oldest is not None:
        connection.execute("DELETE FROM deleted WHERE died <= ?", oldest)
        connection.execute("UPDATE state SET horizon = ?", oldest)
