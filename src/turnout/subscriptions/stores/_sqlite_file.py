"""SQLite file under the store: its schema, its connections, and its errors as turnout's."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias
from urllib.parse import quote

from turnout.base.files import FileLock, private_file
from turnout.errors import ConfigError, Mistake, StoreUnavailableError, SubscriptionError, SubscriptionInvalidError
from turnout.subscriptions.past import current_actor, now
from turnout.subscriptions.store import remaining, within
from turnout.subscriptions.store_url import SqliteAddress

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
