"""The SQLite file under the store: its address, its schema, its connections, and its errors as turnout's."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, unquote

from turnout.errors import (
    ConfigError,
    Mistake,
    StoreUnavailableError,
    SubscriptionError,
    SubscriptionInvalidError,
)
from turnout.scratch import private_file
from turnout.secrets import masked_url
from turnout.subscriptions.past import DEFAULT_RETENTION, retention_of

__all__ = ["SqliteAddress", "SqliteFile"]

_APPLICATION_ID = 0x7475726E
"""The letters "turn" in the file's header, by which ``file`` and we recognise it."""

_SCHEMA = (
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
    # 2. What is gone stays as it was for a while, with the time of each revision. History begins here: what an older
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
)
"""One script for each version of the schema, each a step from the one before; ``user_version`` counts them."""

_OPTIONS = ("mode", "retention", "synchronous", "timeout")
_MODES = ("rwc", "rw", "ro")
_SYNCHRONOUS = ("full", "normal", "off")


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """What ``sqlite:///subscriptions.db?timeout=5`` says.

    Attributes:
        path: the file.
        mode: ``rwc`` (default) creates the file where there is none, ``rw`` does not, ``ro`` never writes.
        timeout: how many seconds to wait for another process that writes.
        synchronous: ``full`` (default) makes what is acknowledged survive a power loss, ``normal`` only the
            death of the process.
        retention: for how many seconds it is remembered what was deleted.
    """

    path: Path
    mode: str = "rwc"
    timeout: float = 30.0
    synchronous: str = "full"
    retention: float = DEFAULT_RETENTION

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a store URL: three slashes before a relative path, four before an absolute one.

        Raises:
            ConfigError: the URL says something else.
        """
        rest, _, query = url.removeprefix("sqlite://").partition("?")
        mistakes = []
        shown = masked_url(url)
        if not rest.startswith("/"):
            path = shown.removeprefix("sqlite://").partition("?")[0]
            mistakes.append(f"{shown!r} needs a third slash before the path: sqlite:///{path or 'subscriptions.db'}")
        path = unquote(rest[1:])
        if rest.startswith("/") and path in ("", ":memory:"):
            mistakes.append(f"{shown!r} names no file; memory:// keeps subscriptions in memory")
        options = dict(parse_qsl(query, keep_blank_values=True))
        mode = options.pop("mode", "rwc")
        if mode not in _MODES:
            mistakes.append(f"mode is one of {', '.join(_MODES)}, found {mode!r}")
        synchronous = options.pop("synchronous", "full")
        if synchronous not in _SYNCHRONOUS:
            mistakes.append(f"synchronous is one of {', '.join(_SYNCHRONOUS)}, found {synchronous!r}")
        timeout, written = 30.0, options.pop("timeout", "30")
        try:
            timeout = float(written)
        except ValueError:
            mistakes.append(f"timeout is a number of seconds, found {written!r}")
        retention = retention_of(written := options.pop("retention", f"{DEFAULT_RETENTION:.0f}s"))
        if retention is None:
            mistakes.append(f"retention is as 12h, 30d, 0 or forever, found {written!r}")
        mistakes += [f"unknown option {name!r}; there are {', '.join(_OPTIONS)}" for name in options]
        if mistakes:
            raise ConfigError([Mistake("store", mistake) for mistake in mistakes])
        assert retention is not None
        return cls(Path(path), mode, timeout, synchronous, retention)

    @property
    def read_only(self) -> bool:
        """Whether nothing is ever written."""
        return self.mode == "ro"


class SqliteFile:
    """Connections to one SQLite file: any number of readers, one writer at a time.

    Connections are lent to one thread at a time and kept for the next one, so there are never more than the
    most threads that were inside at once.
    """

    def __init__(self, address: SqliteAddress) -> None:
        self.address = address
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._closed = False
        self._process = os.getpid()
        self._check_place()
        with self._translated():
            connection = self._connect()
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        self._idle.append(connection)

    def _check_place(self) -> None:
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
        if self.address.mode == "rwc":
            # SQLite gives the files beside it the mode that this one has.
            private_file(self.address.path)
        connection = sqlite3.connect(
            f"file:{quote(str(self.address.path.absolute()))}?mode={self.address.mode}",
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
        """Bring the schema to this version, whoever else is doing the same."""
        if not self.address.read_only:
            self._use_wal(connection)
        if self._version(connection) == len(_SCHEMA):
            return
        if self.address.read_only:
            raise SubscriptionError(f"{self._name()} has an older schema: open it once without mode=ro")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in _SCHEMA[self._version(connection) :]:
                for statement in step.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(_SCHEMA)}")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Changing the journal mode does not wait for a lock as other statements do.
        deadline = time.monotonic() + self.address.timeout
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
        if application != _APPLICATION_ID and (application or version or tables):
            raise SubscriptionError(f"{self._name()} is an SQLite file of another program: nothing was changed")
        if version > len(_SCHEMA):
            raise SubscriptionError(
                f"{self._name()} was written by a newer turnout (schema {version}, this one knows {len(_SCHEMA)})"
            )
        return version

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the file from its first query to the end of the block."""
        with self._lent() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a write transaction, committed where the block ends well and undone otherwise."""
        # Threads of this process queue here, where waking up is quick; SQLite's own wait polls.
        with self._writing, self._lent() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            connection = self._take()
            try:
                yield connection
            finally:
                with self._lock:
                    keep = not self._closed and self._process == os.getpid()
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    connection.close()

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise SubscriptionError(f"{self._name()} is closed")
            if self._process != os.getpid():
                # SQLite forbids to use a connection on the other side of a fork, even to close it.
                _inherited.extend(self._idle)
                self._idle, self._process = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def close(self) -> None:
        """Close the connections that are idle now, and the others when they come back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _name(self) -> str:
        return f"the store {str(self.address.path)!r}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as turnout's, with the file's name and what to do."""
        try:
            yield
        except UnicodeEncodeError as failure:
            raise SubscriptionInvalidError(f"text that is not Unicode cannot be stored: {failure}") from failure
        except sqlite3.Error as failure:
            code = getattr(failure, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreUnavailableError(
                    f"{self._name()} is locked by another writer; waited {self.address.timeout:g} s"
                ) from failure
            if code in _TRY_LATER:
                raise StoreUnavailableError(f"{self._name()} {_TRY_LATER[code]}: {failure}") from failure
            raise SubscriptionError(f"{self._name()} {_BROKEN.get(code, 'failed')}: {failure}") from failure


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


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
