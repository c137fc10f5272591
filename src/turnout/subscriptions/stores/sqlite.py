"""The default store: one SQLite file, shared by threads and processes of one machine."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import chain, islice, takewhile

from turnout.base.clocks import TrustedClock
from turnout.base.startup import paused_gc
from turnout.errors import StoreUnavailableError, SubscriptionExistsError, SubscriptionNotFoundError
from turnout.subscriptions.lines import PlainLine
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.store_url import SqliteAddress
from turnout.subscriptions.stores._record import decode_records, encode_record, kiwis_of, lookup_rows
from turnout.subscriptions.stores._sql import Chunk, Query, SqlStore
from turnout.subscriptions.stores._sqlite_file import SqliteFile, continue_revisions, note_time

_log = logging.getLogger(__name__)

_SCANNED_CHUNK = 100_000
"""Ids of one pass over the tables."""

_DECODED_CHUNK = 1_000
"""Number of records parsed together: the parser's temporary objects are between the subscriptions in memory."""

_DELETED_CHUNK = 10_000
"""Ids of one statement. With many ids, more of their scattered rows share a page. SQLite allows 32,766 values."""

_COUNT_TO = 1_000


class SqliteStore(SqlStore[sqlite3.Connection]):
    """Keeps subscriptions in one SQLite file in WAL mode.

    Readers never wait; writers queue. A change is on the disk when it returns
    (see ``synchronous`` in `SqliteAddress`). Many threads and processes may use the file.

    Not promised: to work on a network file system, which WAL mode cannot.
    """

    chunk = 50_000
    """The more rows are sorted into an index together, the fewer pages are written again."""

    def __init__(self, address: SqliteAddress) -> None:
        super().__init__(address.retention, TrustedClock())
        self._file = SqliteFile(address)

    @classmethod
    def open(cls, url: str) -> SqliteStore:
        """The store in the file that ``sqlite:///relative.db`` or ``sqlite:////absolute.db`` names."""
        return cls(SqliteAddress.parse(url))

    def close(self) -> None:
        """See `Store.close`."""
        self._file.close()

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._file.reading()

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._file.writing()

    def _execute(self, connection: sqlite3.Connection, text: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        return connection.execute(_in_sqlite(text), parameters)

    def _decoded(
        self, connection: sqlite3.Connection, text: str, parameters: Sequence[object] = ()
    ) -> list[Subscription]:
        subscriptions: list[Subscription] = []
        rows = self._execute(connection, text, parameters)
        with paused_gc():
            while chunk := rows.fetchmany(_DECODED_CHUNK):
                subscriptions += decode_records(chunk)
        return subscriptions

    def _insert(self, connection: sqlite3.Connection, chunk: Chunk, revision: int, make: Callable[[], str]) -> None:
        """Store the chunk. Each index gets its rows sorted, neighbours together."""
        before = connection.execute("SELECT max(row) FROM subscription").fetchone()[0] or 0
        with paused_gc():
            stored = connection.executemany(
                "INSERT INTO subscription (id, revision, record) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
                [(id_, revision, encode_record(subscription, make)) for id_, subscription in chunk],
            )
            if stored.rowcount != len(chunk):
                raise SubscriptionExistsError(_existing_id(connection, [id_ for id_, _ in chunk], before))
            leaf_rows = [row for pair in chunk for row in _leaf_rows(*pair)]
            insert_rows(connection, "leaf", 4, neighbours(leaf_rows, 4))
            pairs = [(*pair, id_) for id_, subscription in chunk for pair in subscription.metadata.items()]
            insert_rows(connection, "metadata", 3, neighbours(pairs, 3))

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. Other writers wait until the iterable ends."""
        distinct = iter(dict.fromkeys(ids))
        chunk = list(islice(distinct, _SCANNED_CHUNK))
        if not chunk:
            return
        with self._file.writing() as connection:
            revision = self._next_revision(connection)
            while chunk:
                if scan_pays(connection, len(chunk)):
                    delete_by_scan(connection, chunk, revision, keep=bool(self._retention))
                    self._count_deletions(connection, len(chunk))
                else:
                    self._remove(connection, chunk, revision)
                chunk = list(islice(distinct, _SCANNED_CHUNK))

    def _delete(self, connection: sqlite3.Connection, ids: Sequence[str], revision: int) -> Iterator[tuple[str, int]]:
        for part in _parts(ids):
            with paused_gc():
                yield from delete_by_rows(connection, part, revision, keep=bool(self._retention))

    def _born(self, connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in _parts(ids):
            marks = ", ".join("?" * len(part))
            query = f"SELECT id, revision FROM subscription WHERE id IN ({marks})"  # noqa: S608 - placeholders alone
            found.update(connection.execute(query, part))
        return found

    def _created_since(self, connection: sqlite3.Connection, since: int, prefix: str) -> list[Subscription]:
        # Rows are in the order of revisions, so new ones are at the end.
        rows = connection.execute("SELECT id, record, revision FROM subscription ORDER BY row DESC")
        created = [row for row in takewhile(lambda row: row[2] > since, rows) if row[0].startswith(prefix)]
        return list(decode_records(created[::-1]))

    def _everything(self, connection: sqlite3.Connection, prefix: str) -> tuple[Subscription, ...]:
        if prefix:
            return super()._everything(connection, prefix)
        # Read in the file's order, which is sequential, and sorted here, which takes less than seeking would.
        subscriptions = self._decoded(connection, "SELECT id, record, revision FROM subscription")
        subscriptions.sort(key=lambda subscription: subscription.id)
        return tuple(subscriptions)

    def _with_leaf(self, connection: sqlite3.Connection, pattern_key: tuple[str, str, bool]) -> Query:
        del connection
        where = "key = %s AND pattern = %s AND partial = %s"
        return Query("leaf AS first JOIN subscription USING (id)", where, pattern_key)

    def _with_metadata(self, connection: sqlite3.Connection, metadata: Mapping[str, str]) -> Query:
        pairs = _rarest_first(connection, metadata)
        others = " AND EXISTS (SELECT 1 FROM metadata WHERE (name, value, id) = (%s, %s, first.id))"
        where = f"name = %s AND value = %s{others * (len(pairs) - 1)}"
        texts = [text for pair in pairs for text in pair]
        return Query("metadata AS first JOIN subscription USING (id)", where, texts)

    def _note_time(self, connection: sqlite3.Connection, revision: int) -> None:
        note_time(connection, revision)

    def _continue(self, reached: int) -> None:
        path = str(self._file.address.path)
        if self._file.address.read_only:
            raise StoreUnavailableError(
                f"the store {path!r} was restored: what reads it with mode=ro has to start again"
            )
        with self._file.writing() as connection:
            continue_revisions(connection, reached)
        text = "the store %r is in an older state, or another one, than at revision %d: its followers begin again"
        _log.warning(text, path, reached)


@cache
def _in_sqlite(text: str) -> str:
    """Return a statement as SQLite takes it."""
    return text.replace("{schema}.", "").replace("%s", "?")


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _DELETED_CHUNK] for start in range(0, len(ids), _DELETED_CHUNK))


def _leaf_rows(id_: str, subscription: Subscription | PlainLine) -> Iterable[tuple[str, str, bool, str]]:
    if isinstance(subscription, PlainLine):
        return subscription.leaf_rows(id_)
    return {(*kiwi, id_) for kiwi in kiwis_of(subscription.condition)}


def _existing_id(connection: sqlite3.Connection, ids: list[str], before: int) -> str:
    """Return the first of the ids that a row up to *before* has, or that occurs twice."""
    seen: set[str] = set()
    for id_ in ids:
        query = "SELECT 1 FROM subscription WHERE id = ? AND row <= ?"
        if id_ in seen or connection.execute(query, (id_, before)).fetchone():
            return id_
        seen.add(id_)
    raise AssertionError("SQLite stored fewer rows than it was given, and no id was taken")


def _rarest_first(connection: sqlite3.Connection, metadata: Mapping[str, str]) -> list[tuple[str, str]]:
    """The pairs, the one that the fewest subscriptions have first: its rows are the ones walked."""
    if len(metadata) == 1:
        return list(metadata.items())

    def count(pair: tuple[str, str]) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM metadata WHERE name = ? AND value = ? LIMIT ?)"
        count: int = connection.execute(query, (*pair, _COUNT_TO)).fetchone()[0]
        return count

    return sorted(metadata.items(), key=count)


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


_SCAN_LEAST = 1_000
_SCAN_SHARE = 8
"""Tables are scanned to delete at least so many ids, if they are at least one in so many: to find a row takes some
eight times as long as to pass it."""

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
    found = connection.execute(f"INSERT INTO deleted SELECT id, revision, ? {source}{_REUSED}", (revision,)).rowcount
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
        insert_rows(connection, "past", 4, [(id_, revision, born, record) for id_, record, born in rows])
    return [(id_, born) for id_, _, born in rows]
