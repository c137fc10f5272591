"""The store for many machines with transactions: PostgreSQL."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from turnout.base.clocks import TrustedClock
from turnout.base.startup import paused_gc
from turnout.errors import ConfigError, Mistake, SubscriptionError, SubscriptionExistsError, SubscriptionNotFoundError
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import AuditEntry, current_actor
from turnout.subscriptions.store_url import split_url
from turnout.subscriptions.stores._postgres_driver import (
    SCHEMA,
    Connection,
    Database,
    digest_rows,
    leaf_digest,
    leaf_digests,
    pair_digest,
    pair_digests,
    recorded_digests,
)
from turnout.subscriptions.stores._record import decode_records, encode_record
from turnout.subscriptions.stores._sql import Chunk, Query, SqlStore, bounds_of

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
