"""The store for many machines with transactions: PostgreSQL, by its driver where that is installed."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from turnout.base.clocks import TrustedClock
from turnout.base.startup import paused_gc
from turnout.base.untrusted import JsonObject
from turnout.errors import (
    ConfigError,
    MissingExtraError,
    Mistake,
    StoreUnavailableError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.secrets import masked_url
from turnout.subscriptions.lines import PlainLine
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import AuditEntry, current_actor
from turnout.subscriptions.store import remaining
from turnout.subscriptions.store_url import split_url
from turnout.subscriptions.stores._record import (
    decode_records,
    encode_record,
    kiwis_of,
    leaf_token,
    lookup_rows,
    pair_token,
)
from turnout.subscriptions.stores._sql import Chunk, Query, SqlStore, bounds_of

try:
    import psycopg
    from psycopg import conninfo, errors, sql
except ModuleNotFoundError as missing:
    if missing.name != "psycopg":
        raise
    raise MissingExtraError("postgres", "psycopg") from missing

if TYPE_CHECKING:
    from psycopg.abc import RV, PQGen

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Statement: TypeAlias = "sql.SQL"

_WAIT_SECONDS = 60.0
"""Seconds that a statement takes at most, where the caller has no deadline; whole snapshots are read in parts."""

_GRACE_SECONDS = 0.5
"""Seconds after a statement's limit in which the server itself may report it."""

_CONNECT_SECONDS = 5
"""Seconds that the server is waited for, unless the URL says how long."""

_TRY_LATER = (
    (errors.QueryCanceled, "took too long"),
    (errors.LockNotAvailable, "is locked by another writer"),
    (errors.DiskFull, "has no space left on its disk"),
    (psycopg.InterfaceError, "is away"),
    (psycopg.OperationalError, "is away"),
)
"""Errors that a retry may avoid; the first row whose class matches."""


class _NoAnswerError(psycopg.OperationalError):
    """Raised when the server keeps the connection and does not answer in time, like one that is frozen."""


class _BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Connection that waits for each statement only as long as the server may take for it.

    The server's own limit does nothing if the server itself is frozen.
    """

    limit = _WAIT_SECONDS

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Consume a generator of the driver, within the limit."""
        return super().wait(self._within_limit(gen), *args, **kwargs)

    def _within_limit(self, steps: PQGen[RV]) -> PQGen[RV]:
        limit = self.limit + _GRACE_SECONDS
        deadline = time.monotonic() + limit
        try:
            wanted = next(steps)
            while True:
                # The driver resumes it without anything to read or write, several times a second.
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    steps.close()
                    self.pgconn.finish()
                    raise _NoAnswerError(f"it has not answered for {limit:.3g} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            value: RV = end.value
            return value


class Database:
    """Connections to one database: lent to one thread at a time, and kept for the next.

    A connection that the server has closed meanwhile is replaced, once for each call.

    Args:
        uri: as libpq takes it.
        schema: schema of the tables; ``{schema}`` in a statement is its quoted name.

    Raises:
        ConfigError: libpq cannot read the URI.
    """

    def __init__(self, uri: str, schema: str) -> None:
        try:
            self._options = conninfo.conninfo_to_dict(uri)
        except psycopg.Error as problem:
            raise ConfigError([Mistake("store", masked_url(f"{problem}".strip()))]) from None
        self._options.setdefault("connect_timeout", f"{_CONNECT_SECONDS}")
        self._options.setdefault("application_name", "turnout")
        self._schema = sql.Identifier(schema).as_string()
        self._lock = threading.Lock()
        self._idle: list[_BoundedConnection] = []
        self._process = os.getpid()
        self._closed = False

    def statement(self, text: str) -> Statement:
        """Return a statement with the schema's name in it; the driver takes no text that it has not seen written."""
        return sql.SQL(text.replace("{schema}", self._schema))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection that sees one state of the database during the block."""
        with self._lent("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            try:
                yield connection
            finally:
                _end(connection, "ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection in a transaction that is committed where the block ends well, and undone otherwise."""
        with self._lent("BEGIN") as connection:
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _end(connection, "ROLLBACK")
                raise

    @contextmanager
    def _lent(self, begin: str) -> Iterator[Connection]:
        with _translated():
            connection = self._begun(begin)
            try:
                yield connection
            finally:
                with self._lock:
                    keep = not self._closed and self._process == os.getpid() and not connection.closed
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    connection.close()

    def _begun(self, begin: str) -> _BoundedConnection:
        """Return a connection in a transaction that has waited for the server as long as the caller may."""
        wait = max(1, int(remaining(_WAIT_SECONDS) * 1e3))
        statement = sql.SQL(f"{begin}; SET LOCAL statement_timeout = {wait}")
        while (idle := self._taken()) is not None:
            idle.limit = wait / 1e3
            try:
                idle.execute(statement)
            except _NoAnswerError:
                raise
            except psycopg.OperationalError:
                # The server was restarted, or has closed it.
                idle.close()
                continue
            return idle
        connection = self._connect(wait / 1e3)
        connection.execute(statement)
        return connection

    def _connect(self, limit: float) -> _BoundedConnection:
        options: JsonObject = dict(self._options)
        options["connect_timeout"] = f"{min(float(str(options['connect_timeout'])), max(1.0, remaining(1e6))):.0f}"
        connection = _BoundedConnection.connect(**options, autocommit=True)
        connection.limit = limit
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            connection.close()
            raise ConfigError([Mistake("store", f"the database's encoding is {encoding}, expected UTF8")])
        # Names of keys and patterns are anything that Unicode has, whatever the client's locale says.
        connection.execute("SET client_encoding = 'UTF8'")
        return connection

    def _taken(self) -> _BoundedConnection | None:
        with self._lock:
            if self._closed:
                raise SubscriptionError("the store is closed")
            if self._process != os.getpid():
                # The parent's connections are in use there: they are neither used nor closed here.
                _inherited.extend(self._idle)
                self._idle, self._process = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        if self._process == os.getpid():
            for connection in idle:
                connection.close()


_inherited: list[Connection] = []
"""Connections of a parent process, kept so that nothing closes them here."""


def _end(connection: Connection, statement: str) -> None:
    with suppress(psycopg.Error):
        connection.execute(statement)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the driver's errors as turnout's; no message has a password."""
    try:
        yield
    except UnicodeEncodeError as failure:
        raise SubscriptionInvalidError(f"text that is not Unicode cannot be stored: {failure}") from failure
    except psycopg.DataError as failure:
        raise SubscriptionInvalidError(f"PostgreSQL cannot store this: {_text(failure)}") from failure
    except psycopg.Error as failure:
        for kind, words in _TRY_LATER:
            if isinstance(failure, kind):
                raise StoreUnavailableError(f"PostgreSQL {words}: {_text(failure)}") from failure
        raise SubscriptionError(f"PostgreSQL failed: {_text(failure)}") from failure


def _text(failure: psycopg.Error) -> str:
    return masked_url(" ".join(f"{failure}".split()) or type(failure).__name__)


SCHEMA = (
    # 1. Ids are compared by their code points, as everywhere in turnout. Leaves and pairs are found by digests, because
    # an index takes no text as long as a key may be.
    """
    CREATE SCHEMA IF NOT EXISTS {schema};
    CREATE TABLE {schema}.state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        version INTEGER NOT NULL,
        revision BIGINT NOT NULL,
        horizon BIGINT NOT NULL,
        remembered BIGINT NOT NULL
    );
    INSERT INTO {schema}.state VALUES (1, 0, 0, 0, 0);
    CREATE TABLE {schema}.subscription (
        id TEXT COLLATE "C" PRIMARY KEY,
        revision BIGINT NOT NULL,
        record TEXT NOT NULL
    );
    CREATE INDEX ON {schema}.subscription (revision);
    CREATE TABLE {schema}.leaf (
        digest BYTEA NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (digest, id)
    );
    CREATE TABLE {schema}.metadata (
        digest BYTEA NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (digest, id)
    );
    CREATE TABLE {schema}.deleted (
        id TEXT COLLATE "C" PRIMARY KEY,
        born BIGINT NOT NULL,
        died BIGINT NOT NULL
    );
    CREATE INDEX ON {schema}.deleted (died);
    CREATE TABLE {schema}.past (
        id TEXT COLLATE "C" NOT NULL,
        died BIGINT NOT NULL,
        born BIGINT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (id, died)
    );
    CREATE INDEX ON {schema}.past (died);
    CREATE TABLE {schema}.moment (
        revision BIGINT PRIMARY KEY,
        at BIGINT NOT NULL,
        actor TEXT NOT NULL
    );
    CREATE INDEX ON {schema}.moment (at);
    """,
)
"""One script for each version of the tables, each a step from the one before; ``state.version`` counts them."""


def leaf_digest(key: str, pattern: str, partial: bool) -> bytes:
    """Return the digest of a leaf."""
    return _digest(leaf_token(key, pattern, partial))


def pair_digest(name: str, value: str) -> bytes:
    """Return the digest of a pair of metadata."""
    return _digest(pair_token(name, value))


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=16).digest()


def leaf_digests(subscription: Subscription | PlainLine) -> Iterator[bytes]:
    """Return the digest of each kiwi leaf."""
    if isinstance(subscription, PlainLine):
        return (leaf_digest(key, pattern, partial) for key, pattern, partial, _ in subscription.leaf_rows(""))
    return (leaf_digest(*kiwi) for kiwi in kiwis_of(subscription.condition))


def pair_digests(subscription: Subscription | PlainLine) -> Iterator[bytes]:
    """Return the digest of each pair of metadata."""
    return (pair_digest(*pair) for pair in subscription.metadata.items())


def recorded_digests(rows: Sequence[tuple[str, str, int]]) -> dict[str, list[tuple[bytes, str]]]:
    """Return the rows of each index that records of id, record and revision have, sorted."""
    leaf_rows, pairs = lookup_rows(rows)
    return {
        "leaf": sorted((leaf_digest(key, pattern, partial), id_) for key, pattern, partial, id_ in leaf_rows),
        "metadata": sorted((pair_digest(name, value), id_) for name, value, id_ in pairs),
    }


def digest_rows(
    chunk: Iterable[tuple[str, Subscription | PlainLine]],
    digests: Callable[[Subscription | PlainLine], Iterator[bytes]],
) -> list[tuple[bytes, str]]:
    """Return the rows of an index, each once and sorted, neighbours together."""
    return sorted({(digest, id_) for id_, subscription in chunk for digest in digests(subscription)})


_log = logging.getLogger(__name__)

_LOCK = 0x7475726E
"""Advisory lock held while the tables are created."""

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's time in microseconds since 1970: one clock for all machines that write."""


class PostgresStore(SqlStore[Connection]):
    """Keeps subscriptions in tables of one schema of a database, with its transactions.

    Writers queue for the one row of state, so that revisions have no gaps and are committed in their order. Readers
    never wait. Followers poll the revision, which is one row.

    Not promised: to work through a pooler that gives each statement another session.
    """

    chunk = 2_000

    def __init__(self, url: str) -> None:
        uri, schema, retention = split_url(url, "schema", "turnout")
        if not schema or "\0" in schema:
            raise ConfigError([Mistake("store", f"schema is the name of a schema, found {schema!r}")])
        super().__init__(retention, TrustedClock(lambda: self._server_time))
        self._server_time = 0.0
        self._database = Database(uri, schema)
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def open(cls, url: str) -> PostgresStore:
        """The store that ``postgresql://user:password@host/database?schema=name&sslmode=require`` names.

        The schema is ``turnout`` where the URL does not say; all other options but ``retention`` are libpq's.
        """
        return cls(url)

    def close(self) -> None:
        """See `Store.close`."""
        self._database.close()

    def _prepare(self) -> None:
        """Make the tables, or bring those of an earlier version up to date; others may do the same concurrently."""
        with self._database.reading() as connection:
            if self._version(connection) == len(SCHEMA):
                return
        with self._database.writing() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            version = self._version(connection)
            if version > len(SCHEMA):
                raise SubscriptionError(
                    f"the tables were made by a newer turnout (version {version}, this one knows {len(SCHEMA)})"
                )
            for step in SCHEMA[version:]:
                connection.execute(self._database.statement(step))
            connection.execute(self._database.statement(f"UPDATE {{schema}}.state SET version = {len(SCHEMA)}"))  # noqa: S608 - a number

    def _version(self, connection: Connection) -> int:
        """Return the version of the tables; 0 for none."""
        name = self._database.statement("SELECT to_regclass('{schema}.state')")
        if connection.execute(name).fetchone() == (None,):
            return 0
        return int(self._execute(connection, "SELECT version FROM {schema}.state").fetchone()[0])

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._database.writing()

    def _execute(self, connection: Connection, text: str, parameters: Sequence[object] = ()) -> Any:
        return connection.execute(self._database.statement(text), parameters)

    def _decoded(self, connection: Connection, text: str, parameters: Sequence[object] = ()) -> list[Subscription]:
        """Read the rows of a query in parts, by a cursor of the server."""
        subscriptions: list[Subscription] = []
        with paused_gc(), connection.cursor(name=f"turnout_{uuid.uuid4().hex}") as cursor:
            cursor.execute(self._database.statement(text), parameters)
            while rows := cursor.fetchmany(self.chunk):
                subscriptions += decode_records(rows)
        return subscriptions

    def _insert(self, connection: Connection, chunk: Chunk, revision: int, make: Callable[[], str]) -> None:
        ids = [id_ for id_, _ in chunk]
        taken = set(self._born(connection, ids))
        for id_ in ids:
            if id_ in taken:
                raise SubscriptionExistsError(id_)
            taken.add(id_)
        records = ((id_, revision, encode_record(subscription, make)) for id_, subscription in chunk)
        self._copy(connection, "subscription (id, revision, record)", records)
        self._copy(connection, "leaf (digest, id)", digest_rows(chunk, leaf_digests))
        self._copy(connection, "metadata (digest, id)", digest_rows(chunk, pair_digests))

    def _copy(self, connection: Connection, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        statement = self._database.statement(f"COPY {{schema}}.{table} FROM STDIN")
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""
        if "\0" in id:
            raise SubscriptionNotFoundError(id)
        return super().read(id)

    def _born(self, connection: Connection, ids: Sequence[str]) -> dict[str, int]:
        query = "SELECT id, revision FROM {schema}.subscription WHERE id = ANY(%s)"
        return dict(self._execute(connection, query, ([id_ for id_ in ids if "\0" not in id_],)).fetchall())

    def _delete(self, connection: Connection, ids: Sequence[str], revision: int) -> Iterable[tuple[str, int]]:
        if "\0" in "".join(ids):
            raise SubscriptionNotFoundError(next(id_ for id_ in ids if "\0" in id_))
        if self._retention:
            query = (
                "INSERT INTO {schema}.past SELECT id, %s, revision, record FROM {schema}.subscription"
                " WHERE id = ANY(%s)"
            )
            self._execute(connection, query, (revision, ids))
        query = "DELETE FROM {schema}.subscription WHERE id = ANY(%s) RETURNING id, record, revision"
        rows = self._execute(connection, query, (ids,)).fetchall()
        found = {id_: born for id_, _, born in rows}
        for id_ in ids:
            if id_ not in found:
                raise SubscriptionNotFoundError(id_)
        for table, pairs in recorded_digests(rows).items():
            self._execute(
                connection,
                f"DELETE FROM {{schema}}.{table} AS own USING unnest(%s::bytea[], %s::text[]) AS gone (digest, id)"  # noqa: S608 - no input
                " WHERE own.digest = gone.digest AND own.id = gone.id",
                ([digest for digest, _ in pairs], [id_ for _, id_ in pairs]),
            )
        self._execute(
            connection,
            # A reused id keeps its first creation revision, so that readers of that time still see the deletion.
            "INSERT INTO {schema}.deleted SELECT id, born, %s FROM unnest(%s::text[], %s::bigint[]) AS gone (id, born)"
            " ON CONFLICT (id) DO UPDATE SET born = least(deleted.born, excluded.born), died = excluded.died",
            (revision, list(found), list(found.values())),
        )
        return found.items()

    def _created_since(self, connection: Connection, since: int, prefix: str) -> list[Subscription]:
        where, limits = bounds_of("", prefix)
        query = f"SELECT id, record, revision FROM {{schema}}.subscription WHERE {where} AND revision > %s"  # noqa: S608
        return self._decoded(connection, f"{query} ORDER BY revision, id", (*limits, since))

    def _with_leaf(self, connection: Connection, pattern_key: tuple[str, str, bool]) -> Query:
        del connection
        return self._with_digests("leaf", [leaf_digest(*pattern_key)])

    def _with_metadata(self, connection: Connection, metadata: Mapping[str, str]) -> Query:
        del connection
        return self._with_digests("metadata", [pair_digest(*pair) for pair in metadata.items()])

    def _with_digests(self, table: str, digests: list[bytes]) -> Query:
        other = f"EXISTS (SELECT FROM {{schema}}.{table} AS other WHERE other.digest = %s AND other.id = first.id)"
        where = " AND ".join(["first.digest = %s", *[other] * (len(digests) - 1)])
        return Query(f"{{schema}}.{table} AS first JOIN {{schema}}.subscription USING (id)", where, digests)

    def _page(
        self, connection: Connection, query: Query, limit: int, cursor: str, prefix: str
    ) -> Iterator[Subscription]:
        return super()._page(connection, query, limit, cursor.replace("\0", ""), prefix)

    def _note_time(self, connection: Connection, revision: int) -> None:
        query = f"INSERT INTO {{schema}}.moment VALUES (%s, {_NOW}, %s)"  # noqa: S608 - no input
        self._execute(connection, query, (revision, current_actor().replace("\0", "")))

    def _read_clock(self, connection: Connection) -> None:
        self._server_time = self._execute(connection, f"SELECT {_NOW}").fetchone()[0] / 1e6

    def _continue(self, reached: int) -> None:
        query = (
            "UPDATE {schema}.state SET revision = greatest(revision, %s) + 1, horizon = greatest(revision, %s) + 1"
            " WHERE horizon <= %s RETURNING revision"
        )
        with self._database.writing() as connection:
            row = self._execute(connection, query, (reached, reached, reached)).fetchone()
            if row is not None:
                self._note_time(connection, row[0])
        text = (
            "the PostgreSQL store is in an older state, or another one, than at revision %d: its followers begin again"
        )
        _log.warning(text, reached)

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """See `VersionedStore.history`."""
        if "\0" in id:
            raise SubscriptionNotFoundError(id)
        return super().history(id)
