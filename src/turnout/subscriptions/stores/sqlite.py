"""The default store: one SQLite file with its connections, shared by threads and processes of one machine."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Self, TypeAlias
from urllib.parse import quote

from turnout.base.clocks import TrustedClock
from turnout.base.files import FileLock, private_file
from turnout.base.startup import paused_gc
from turnout.errors import (
    ConfigError,
    Mistake,
    StoreUnavailableError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.lines import PlainLine
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import current_actor, now
from turnout.subscriptions.store import remaining, within
from turnout.subscriptions.store_url import SqliteAddress
from turnout.subscriptions.stores._record import decode_records, encode_record, kiwis_of, lookup_rows
from turnout.subscriptions.stores._sql import Chunk, Query, SqlStore

_Inode: TypeAlias = tuple[int, int]
"""Device and number."""

_COMPANION_ENDS = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """Open database file, and the files that SQLite keeps next to it.

    Attributes:
        path: path that it was opened by.
        inode: inode of the file; None where there was none.
        companions: the inodes of SQLite's other files, by the end of their names.
    """

    path: str
    inode: _Inode | None
    companions: dict[str, _Inode] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the files that the path names now."""
        companions = {end: inode for end in _COMPANION_ENDS if (inode := _inode_of(f"{path}{end}")) is not None}
        return cls(str(path), _inode_of(path), companions)

    def is_there(self) -> bool:
        """True if the path still names the file."""
        return self.inode is not None and _inode_of(self.path) == self.inode

    def is_removed(self) -> bool:
        """True if the path names nothing."""
        return _inode_of(self.path) is None

    def clear_leftovers(self) -> None:
        """Take SQLite's files of this one away from the file that has its name now.

        SQLite finds a log by its name alone, and would write its contents over the pages of another file.
        """
        for end, inode in self.companions.items():
            name = Path(f"{self.path}{end}")
            if _inode_of(name) != inode:
                continue
            with suppress(FileNotFoundError):
                if end == "-wal" and name.stat().st_size:
                    # Not all of it could be written to the file that it belongs to.
                    name.replace(f"{name}.replaced")
                else:
                    name.unlink()


def _inode_of(path: str | Path) -> _Inode | None:
    try:
        # Checked before each transaction: a Path takes three times as long.
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Let one process at a time follow a replaced file of the folder."""
    with FileLock(folder, create=False).acquire(wait=True):
        yield


def note_time(connection: sqlite3.Connection, revision: int) -> None:
    """Record the clock's time of a revision, and its actor; a wrong reading does not affect later revisions."""
    connection.execute("INSERT INTO moment VALUES (?, ?, ?)", (revision, now(), current_actor()))


def continue_revisions(connection: sqlite3.Connection, reached: int) -> int:
    """Have everyone that follows revisions up to *reached* of another history begin again, in a write transaction.

    The numbers continue above those of the other history, and this file's changes are known from there on only: asked
    for changes since an earlier revision, it answers with everything. A process that has done so for the same
    replacement leaves nothing to do for the next one.

    Returns:
        The revision of the file now.
    """
    revision, horizon = connection.execute("SELECT revision, horizon FROM state").fetchone()
    if horizon <= reached:
        revision = max(revision, reached) + 1
        connection.execute("UPDATE state SET revision = ?, horizon = ?", (revision, revision))
        note_time(connection, revision)
    return int(revision)


APPLICATION_ID = 0x7475726E
"""The letters "turn" in the file's header, by which ``file`` and we recognise it."""

SCHEMA = (
    # 1. Bodies are appended in the order of revisions, so bulk loads write them once and in sequence, and the
    # newest are found from the end. The indexes hold ids as text, because pages are in the order of ids.
    """
    CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL,
        horizon INTEGER NOT NULL
    );
    INSERT INTO state VALUES (1, 0, 0);
    CREATE TABLE subscription (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        record TEXT NOT NULL
    );
    CREATE TABLE leaf (
        key TEXT NOT NULL,
        pattern TEXT NOT NULL,
        partial INTEGER NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (key, pattern, partial, id)
    ) WITHOUT ROWID;
    CREATE TABLE metadata (
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (name, value, id)
    ) WITHOUT ROWID;
    CREATE TABLE deleted (
        id TEXT PRIMARY KEY,
        born INTEGER NOT NULL,
        died INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX deleted_died ON deleted (died);
    """,
    # 2. Deleted subscriptions are kept for a while, with the time of each revision. History begins here: what an older
    # version deleted is not known.
    """
    CREATE TABLE moment (
        revision INTEGER PRIMARY KEY,
        at INTEGER NOT NULL
    );
    CREATE TABLE past (
        id TEXT NOT NULL,
        died INTEGER NOT NULL,
        born INTEGER NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (id, died)
    ) WITHOUT ROWID;
    CREATE INDEX past_died ON past (died);
    ALTER TABLE state ADD COLUMN remembered INTEGER NOT NULL DEFAULT 0;
    UPDATE state SET remembered = revision;
    INSERT INTO moment SELECT revision, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) FROM state
    """,
    # 3. Author of the change of each revision.
    "ALTER TABLE moment ADD COLUMN actor TEXT NOT NULL DEFAULT ''",
)
"""One script for each version of the schema, each a step from the one before; ``user_version`` counts them."""


_log = logging.getLogger(__name__)

_REOPEN_SECONDS = 5.0
"""Seconds in which a replaced file must be reopened."""


class SqliteFile:
    """Connections to one SQLite file: any number of readers, one writer at a time.

    Connections are lent to one thread at a time and kept for the next one, so there are never more than the
    most threads that were inside at once, and one that is never lent: it reads the contents of a file that is replaced.

    If another file replaces the open one, the next transaction uses it, with one warning: followers of revisions begin
    again from its contents. While there is no file, every transaction is refused.
    """

    def __init__(self, address: SqliteAddress) -> None:
        self.address = address
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._closed = False
        self._process = os.getpid()
        self._check_path()
        with self._translated(address.timeout):
            if address.mode == "rwc":
                # SQLite gives the files beside it the mode that this one has.
                private_file(address.path)
            self._anchor, self._opened = self._open()

    def _open(self) -> tuple[sqlite3.Connection, OpenedFile]:
        """A connection to the file that the path names, with the schema of this version."""
        while True:
            connection = self._connect()
            try:
                self._prepare(connection)
                opened = OpenedFile.at(self.address.path)
                if opened.is_there():
                    return connection, opened
            except BaseException:
                connection.close()
                raise
            connection.close()

    def _check_path(self) -> None:
        path, folder = self.address.path, self.address.path.parent
        problem = None
        if path.is_dir():
            problem = f"{str(path)!r} is a folder, expected a file"
        elif not folder.is_dir():
            problem = f"there is no folder {str(folder)!r} to keep {path.name!r} in"
        elif self.address.mode != "rwc" and not path.exists():
            problem = f"there is no store at {str(path.absolute())!r}, and mode={self.address.mode} does not create one"
        if problem:
            raise ConfigError([Mistake("store", problem)])

    def _connect(self) -> sqlite3.Connection:
        # A file that others may not write needs the mode in the URI; the path's own ? and # are escaped.
        mode = "ro" if self.address.read_only else "rw"
        connection = sqlite3.connect(
            f"file:{quote(str(self.address.path.absolute()))}?mode={mode}",
            uri=True,
            timeout=self.address.timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        connection.execute(f"PRAGMA synchronous = {self.address.synchronous}")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA temp_store = memory")
        # Four times the usual: an import changes the same pages of its indexes again and again.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Migrate the schema to this version; other processes may do the same concurrently."""
        if not self.address.read_only:
            self._use_wal(connection)
        if self._version(connection) == len(SCHEMA):
            return
        if self.address.read_only:
            raise SubscriptionError(f"{self._name()} has an older schema: open it once without mode=ro")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in SCHEMA[self._version(connection) :]:
                for statement in step.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(SCHEMA)}")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Changing the journal mode does not wait for a lock as other statements do.
        deadline = time.monotonic() + remaining(self.address.timeout)
        while True:
            try:
                connection.execute("PRAGMA journal_mode = wal")
            except sqlite3.OperationalError as failure:
                if failure.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def _version(self, connection: sqlite3.Connection) -> int:
        """The schema's version; 0 for an empty file."""
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if application != APPLICATION_ID and (application or version or tables):
            raise SubscriptionError(f"{self._name()} is an SQLite file of another program: nothing was changed")
        if version > len(SCHEMA):
            raise SubscriptionError(
                f"{self._name()} was written by a newer turnout (schema {version}, this one knows {len(SCHEMA)})"
            )
        return version

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the file from its first query to the end of the block."""
        with self._lent(remaining(self.address.timeout)) as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a write transaction, committed where the block ends well and undone otherwise."""
        wait = remaining(self.address.timeout)
        begun = time.monotonic()
        # Threads of this process queue here, where waking up is quick; SQLite's own wait polls.
        if not self._writing.acquire(timeout=min(wait, threading.TIMEOUT_MAX)):
            raise self._locked(wait)
        try:
            with self._lent(wait, begun) as connection:
                opened = self._opened
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    self._check_not_replaced(opened)
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise
        finally:
            self._writing.release()

    def _check_not_replaced(self, opened: OpenedFile) -> None:
        """Refuse to commit to a file that was replaced or removed.

        Raises:
            StoreUnavailableError: the path names another file, or none.
        """
        if not opened.is_there():
            raise StoreUnavailableError(f"{self._name()} was replaced or removed: nothing was stored")

    @contextmanager
    def _lent(self, wait: float, since: float | None = None) -> Iterator[sqlite3.Connection]:
        """Lend a connection; its statements wait for locks until *wait* seconds have passed."""
        with self._translated(wait):
            connection, opened = self._take()
            left = wait if since is None else max(0.0, wait - (time.monotonic() - since))
            # Most callers have no deadline of their own, and find the connection as it is.
            shorter = left < 0.99 * self.address.timeout
            try:
                if shorter:
                    _set_wait(connection, left)
                yield connection
            finally:
                if shorter:
                    _set_wait(connection, self.address.timeout)
                with self._lock:
                    keep = not self._closed and self._process == os.getpid() and opened is self._opened
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    connection.close()

    def _take(self) -> tuple[sqlite3.Connection, OpenedFile]:
        while True:
            with self._lock:
                self._check_open()
                opened = self._opened
                if self._idle:
                    return self._idle.pop(), opened
            connection = self._connect()
            if opened.is_there():
                return connection, opened
            # It was replaced in this moment, and the connection is to the other file.
            connection.close()

    def _check_open(self) -> None:
        """Follow the file where it was replaced.

        Raises:
            StoreUnavailableError: it was removed.
        """
        if self._closed:
            raise SubscriptionError(f"{self._name()} is closed")
        if self._process != os.getpid():
            # SQLite forbids to use a connection on the other side of a fork, even to close it.
            _inherited.extend((*self._idle, self._anchor))
            self._idle, self._process = [], os.getpid()
            self._anchor, self._opened = self._open()
        if self._opened.is_there():
            return
        if self._opened.is_removed():
            raise StoreUnavailableError(f"{self._name()} was removed while it was open: put the file back")
        if self.address.read_only:
            raise StoreUnavailableError(f"{self._name()} was replaced: what reads it with mode=ro has to start again")
        with within(_REOPEN_SECONDS):
            self._reopen()

    def _reopen(self) -> None:
        """Follow the file that the path names now."""
        reached = self._finish()
        with folder_locked(self.address.path.parent):
            self._opened.clear_leftovers()
            anchor, opened = self._open()
        try:
            anchor.execute("BEGIN IMMEDIATE")
            revision = continue_revisions(anchor, reached)
            anchor.execute("COMMIT")
        except BaseException:
            anchor.close()
            raise
        before, self._anchor, self._opened = self._anchor, anchor, opened
        before.close()
        text = "%s was replaced by another file: its followers begin again (revision %d, after %d of the one before)"
        _log.warning(text, self._name(), revision, reached)

    def _finish(self) -> int:
        """Write the log into the file that was open, wherever it is now; return its last revision."""
        while self._idle:
            self._idle.pop().close()
        reached: int = self._anchor.execute("SELECT revision FROM state").fetchone()[0]
        with suppress(sqlite3.Error):
            self._anchor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return reached

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        with self._lock:
            idle, self._idle = self._idle, []
            if not self._closed and self._process == os.getpid():
                idle.append(self._anchor)
            self._closed = True
        for connection in idle:
            connection.close()

    def _name(self) -> str:
        return f"the store {str(self.address.path)!r}"

    def _locked(self, wait: float) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self._name()} is locked by another writer; waited {wait:.3g} s")

    @contextmanager
    def _translated(self, wait: float) -> Iterator[None]:
        """SQLite's errors as turnout's, with the file's name and what to do."""
        try:
            yield
        except UnicodeEncodeError as failure:
            raise SubscriptionInvalidError(f"text that is not Unicode cannot be stored: {failure}") from failure
        except sqlite3.Error as failure:
            code = getattr(failure, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self._locked(wait) from failure
            if code in _TRY_LATER:
                raise StoreUnavailableError(f"{self._name()} {_TRY_LATER[code]}: {failure}") from failure
            raise SubscriptionError(f"{self._name()} {_BROKEN.get(code, 'failed')}: {failure}") from failure


_MAX_WAIT_SECONDS = 1e6
"""Maximum wait of SQLite, in seconds."""

_TRY_LATER = {
    sqlite3.SQLITE_FULL: "has no space left on its disk",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_IOERR: "had an input or output error",
}

_BROKEN = {
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from an export",
    sqlite3.SQLITE_NOTADB: "is not an SQLite file",
    sqlite3.SQLITE_READONLY: "may not be written",
    sqlite3.SQLITE_PERM: "may not be opened",
    sqlite3.SQLITE_AUTH: "may not be opened",
}

_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process, kept so that nothing closes them here."""


def _set_wait(connection: sqlite3.Connection, seconds: float) -> None:
    """Have statements wait so long for locks of others."""
    connection.execute(f"PRAGMA busy_timeout = {int(min(seconds, _MAX_WAIT_SECONDS) * 1e3)}")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


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
