"""The store for many machines with transactions: PostgreSQL."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

from turnout.base.startup import paused_gc
from turnout.errors import (
    ConfigError,
    Mistake,
    SubscriptionConflictError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.change_set import ChangeSet
from turnout.subscriptions.destinations import checked
from turnout.subscriptions.lines import PlainLine
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription
from turnout.subscriptions.past import (
    AuditEntry,
    Creation,
    Moment,
    PastStore,
    SeenRevision,
    Snapshot,
    Version,
    audit_entries,
)
from turnout.subscriptions.sealing import sealed_all, stored_version
from turnout.subscriptions.store import MAX_LIMIT, Store, StoreBase
from turnout.subscriptions.store_url import split_url
from turnout.subscriptions.stores._postgres_driver import (
    SCHEMA,
    Connection,
    Database,
    PostgresPast,
    digest_rows,
    leaf_digest,
    leaf_digests,
    pair_digest,
    pair_digests,
    recorded_digests,
)
from turnout.subscriptions.stores._record import decode_record, decode_records, encode_record, id_maker, leaf_id_of
from turnout.subscriptions.tenants import TenantStore, prefix_end

T = TypeVar("T")
_log = logging.getLogger(__name__)

_CHUNK = 2_000
"""Subscriptions that are written, or read, together."""

_HISTORY = 100_000
"""Deletions that are remembered for `changes`; a reader that missed more starts again from everything."""

_PRUNE_EVERY = 1_000
"""Deletions between two looks for old ones."""

_LOCK = 0x7475726E
"""Advisory lock held while the tables are created."""


class PostgresStore(StoreBase):
    """Keeps subscriptions in tables of one schema of a database, with its transactions.

    Each change is one transaction, which takes the next revision from the one row of state: writers queue for that row,
    so that revisions have no gaps and are committed in their order. Readers never wait. Followers poll the revision,
    which is one row.

    Not promised: to work through a pooler that gives each statement another session.
    """

    def __init__(self, url: str) -> None:
        uri, schema, retention = split_url(url, "schema", "turnout")
        if not schema or "\0" in schema:
            raise ConfigError([Mistake("store", f"schema is the name of a schema, found {schema!r}")])
        self._database = Database(uri, schema)
        self._past = PostgresPast(self._database.statement, retention)
        self._deletions = 0
        self._seen = SeenRevision()
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
        if self._one(connection.execute(name)) is None:
            return 0
        return int(self._one(self._execute(connection, "SELECT version FROM {schema}.state")))

    def _execute(self, connection: Connection, text: str, parameters: tuple[object, ...] = ()) -> Any:
        return connection.execute(self._database.statement(text), parameters)

    @staticmethod
    def _one(rows: Any) -> Any:
        return rows.fetchone()[0]

    def create(self, subscription: Subscription) -> str:
        """See `Store.create`."""
        return self.create_many([subscription])[0]

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """See `BulkStore.create_many`. Other writers wait until the iterable ends."""
        return self.create_read(checked(subscriptions))

    def create_read(self, subscriptions: Iterable[Subscription | PlainLine]) -> list[str]:
        """See `turnout.subscriptions.store.PlainLineStore`."""
        make = id_maker()
        rows = ((subscription.id or make(), subscription) for subscription in sealed_all(subscriptions))
        chunk = list(islice(rows, _CHUNK))
        ids: list[str] = []
        if not chunk:
            return ids
        with self._database.writing() as connection:
            revision = self._next_revision(connection)
            while chunk:
                self._check_new(connection, [id_ for id_, _ in chunk])
                self._insert(connection, chunk, revision, make)
                ids += (id_ for id_, _ in chunk)
                chunk = list(islice(rows, _CHUNK))
        return ids

    def _next_revision(self, connection: Connection) -> int:
        """Take the next revision: every other writer waits for the row until this transaction ends."""
        query = "UPDATE {schema}.state SET revision = revision + 1 RETURNING revision"
        revision = int(self._one(self._execute(connection, query)))
        self._past.note_time(connection, revision)
        return revision

    def _check_new(self, connection: Connection, ids: list[str]) -> None:
        taken = {
            row[0]
            for row in self._execute(connection, "SELECT id FROM {schema}.subscription WHERE id = ANY(%s)", (ids,))
        }
        for id_ in ids:
            if id_ in taken:
                raise SubscriptionExistsError(id_)
            taken.add(id_)

    def _insert(
        self,
        connection: Connection,
        chunk: list[tuple[str, Subscription | PlainLine]],
        revision: int,
        make: Callable[[], str],
    ) -> None:
        records = ((id_, revision, encode_record(subscription, make)) for id_, subscription in chunk)
        self._copy(connection, "subscription (id, revision, record)", records)
        self._copy(connection, "leaf (digest, id)", digest_rows(chunk, leaf_digests))
        self._copy(connection, "metadata (digest, id)", digest_rows(chunk, pair_digests))

    def _copy(self, connection: Connection, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        statement = self._database.statement(f"COPY {{schema}}.{table} FROM STDIN")
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def read(self, id: str) -> Subscription:  # noqa: A002 - the field's own name
        """See `Store.read`."""
        if "\0" in id:
            raise SubscriptionNotFoundError(id)
        with self._database.reading() as connection:
            query = "SELECT record, revision FROM {schema}.subscription WHERE id = %s"
            row = self._execute(connection, query, (id,)).fetchone()
        if row is None:
            raise SubscriptionNotFoundError(id)
        return decode_record(id, *row)

    def update(
        self,
        id: str,  # noqa: A002 - the field's own name
        subscription: Subscription,
        expected_revision: int | None = None,
    ) -> int:
        """See `Store.update`."""
        version = stored_version(id, subscription, self.read)
        with self._database.writing() as connection:
            revision = self._next_revision(connection)
            self._remove(connection, [id], revision, expected_revision)
            self._insert(connection, [(id, version)], revision, id_maker())
        return revision

    def delete(self, id: str, expected_revision: int | None = None) -> None:  # noqa: A002 - the field's own name
        """See `Store.delete`."""
        with self._database.writing() as connection:
            self._remove(connection, [id], self._next_revision(connection), expected_revision)

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. Other writers wait until the iterable ends."""
        distinct = iter(dict.fromkeys(ids))
        chunk = list(islice(distinct, _CHUNK))
        if not chunk:
            return
        with self._database.writing() as connection:
            revision = self._next_revision(connection)
            while chunk:
                self._remove(connection, chunk, revision)
                chunk = list(islice(distinct, _CHUNK))

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.change_set.AtomicStore`. Other writers wait until all is written."""
        make = id_maker()
        created = [(one.id or make(), one) for one in sealed_all(checked(changes.created))]
        updated = [(one.id, stored_version(one.id, one, self.read)) for one in changes.updated]
        rows: list[tuple[str, Subscription | PlainLine]] = [*created, *updated]
        ids, gone = changes.ids(), list(changes.replaced())
        query = "SELECT id, revision FROM {schema}.subscription WHERE id = ANY(%s)"
        with self._database.writing() as connection:
            revision = self._next_revision(connection)
            known = [id_ for id_ in ids if "\0" not in id_]
            changes.check(dict(self._execute(connection, query, (known,)).fetchall()))
            for start in range(0, len(gone), _CHUNK):
                self._remove(connection, gone[start : start + _CHUNK], revision)
            for start in range(0, len(rows), _CHUNK):
                self._insert(connection, rows[start : start + _CHUNK], revision, make)
        return revision

    def _remove(self, connection: Connection, ids: list[str], revision: int, expected: int | None = None) -> None:
        """Move subscriptions to the past at a revision.

        Raises:
            SubscriptionNotFoundError: one of them does not exist.
            SubscriptionConflictError: one is not at the *expected* revision.
        """
        if "\0" in "".join(ids):
            raise SubscriptionNotFoundError(next(id_ for id_ in ids if "\0" in id_))
        self._past.archive(connection, ids, revision)
        query = "DELETE FROM {schema}.subscription WHERE id = ANY(%s) RETURNING id, record, revision"
        rows = self._execute(connection, query, (ids,)).fetchall()
        found = {id_: born for id_, _, born in rows}
        for id_ in ids:
            if id_ not in found:
                raise SubscriptionNotFoundError(id_)
            if expected is not None and expected != found[id_]:
                raise SubscriptionConflictError(id_, expected, found[id_])
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
        self._count_deletions(connection, len(ids))

    def _count_deletions(self, connection: Connection, count: int) -> None:
        """Prune old deletions before the first one of this process, and once for every so many."""
        before, self._deletions = self._deletions, self._deletions + count
        if before == 0 or before // _PRUNE_EVERY != self._deletions // _PRUNE_EVERY:
            query = "SELECT died FROM {schema}.deleted ORDER BY died DESC LIMIT 1 OFFSET %s"
            oldest = self._execute(connection, query, (_HISTORY,)).fetchone()
            if oldest is not None:
                self._execute(connection, "DELETE FROM {schema}.deleted WHERE died <= %s", oldest)
                self._execute(connection, "UPDATE {schema}.state SET horizon = %s", oldest)
            self._past.forget(connection)

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        pattern_key = (key, pattern, partial)
        found = self._page("leaf", [leaf_digest(*pattern_key)], limit, cursor, prefix)
        matches = (ConditionMatch(one.id, leaf_id_of(one, pattern_key), one) for one in found)
        return Page.of(matches, min(limit, MAX_LIMIT), lambda match: match.subscription_id)

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        digests = [pair_digest(*pair) for pair in metadata.items()]
        found = self._page("metadata", digests, limit, cursor, prefix)
        return Page.of(found, min(limit, MAX_LIMIT), lambda subscription: subscription.id)

    def _page(self, table: str, digests: list[bytes], limit: int, cursor: str, prefix: str) -> list[Subscription]:
        bounds, limits = _bounds(cursor.replace("\0", ""), prefix, "own.id")
        source, wheres = "{schema}.subscription AS own", [bounds]
        if digests:
            source = f"{{schema}}.{table} AS first JOIN {{schema}}.subscription AS own USING (id)"
            bounds, limits = _bounds(cursor.replace("\0", ""), prefix, "first.id")
            other = f"EXISTS (SELECT FROM {{schema}}.{table} AS other WHERE other.digest = %s AND other.id = first.id)"
            wheres = [bounds, "first.digest = %s", *[other] * (len(digests) - 1)]
        order = "first.id" if digests else "own.id"
        query = f"SELECT own.id, record, revision FROM {source} WHERE {' AND '.join(wheres)} ORDER BY {order} LIMIT %s"  # noqa: S608
        with self._database.reading() as connection:
            rows = self._execute(connection, query, (*limits, *digests, min(limit, MAX_LIMIT) + 1)).fetchall()
        return list(decode_records(rows)) if rows else []

    def revision(self) -> int:
        """See `Store.revision`."""
        return self._followed(lambda _, revision, __: revision)

    def _followed(self, read: Callable[[Connection, int, int], T]) -> T:
        """Return what is read for followers, who begin again if the database was never at what they have seen."""
        while True:
            reached = self._seen.revision
            with self._database.reading() as connection:
                row = self._execute(
                    connection,
                    "SELECT revision, horizon, remembered, (SELECT at FROM {schema}.moment WHERE revision = %s),"
                    " (SELECT at FROM {schema}.moment WHERE revision = state.revision) FROM {schema}.state",
                    (reached,),
                ).fetchone()
                revision, horizon, remembered, time, newest = row
                if not self._seen.is_missing(revision, horizon, remembered, time):
                    answer = read(connection, revision, horizon)
                    self._seen.note(revision, newest)
                    return answer
            self._continue(reached)

    def _continue(self, reached: int) -> None:
        """Have all followers of another history up to a revision begin again from this one, above its numbers."""
        query = (
            "UPDATE {schema}.state SET revision = greatest(revision, %s) + 1, horizon = greatest(revision, %s) + 1"
            " WHERE horizon <= %s RETURNING revision"
        )
        with self._database.writing() as connection:
            row = self._execute(connection, query, (reached, reached, reached)).fetchone()
            if row is not None:
                self._past.note_time(connection, row[0])
        self._seen.note(0, None)
        text = (
            "the PostgreSQL store is in an older state, or another one, than at revision %d: its followers begin again"
        )
        _log.warning(text, reached)

    def changes(self, since: int, prefix: str = "") -> Changes:
        """See `Store.changes`."""

        def read(connection: Connection, revision: int, horizon: int) -> Changes:
            if since == revision:
                return Changes(revision)
            if not horizon <= since < revision:
                return Changes(revision, self._everything(connection, prefix), reset=True)
            bounds, limits = _bounds("", prefix)
            created = self._all(connection, f"{bounds} AND revision > %s ORDER BY revision, id", (*limits, since))
            query = f"SELECT id FROM {{schema}}.deleted WHERE {bounds} AND died > %s AND born <= %s ORDER BY died, id"  # noqa: S608
            deleted = self._execute(connection, query, (*limits, since, since))
            return Changes(revision, created, tuple(id_ for (id_,) in deleted))

        return self._followed(read)

    def snapshot(self, prefix: str = "") -> Snapshot:
        """See `Store.snapshot`."""
        return self._followed(lambda connection, revision, _: Snapshot(self._everything(connection, prefix), revision))

    def _everything(self, connection: Connection, prefix: str) -> tuple[Subscription, ...]:
        bounds, limits = _bounds("", prefix)
        return self._all(connection, f"{bounds} ORDER BY id", limits)

    def _all(self, connection: Connection, where: str, parameters: tuple[object, ...]) -> tuple[Subscription, ...]:
        query = f"SELECT id, record, revision FROM {{schema}}.subscription WHERE {where}"  # noqa: S608 - no input
        return self._decoded(connection, query, parameters)

    def _decoded(self, connection: Connection, query: str, parameters: tuple[object, ...]) -> tuple[Subscription, ...]:
        """Read the rows of a query in parts, by a cursor of the server."""
        subscriptions: list[Subscription] = []
        with paused_gc(), connection.cursor(name=f"turnout_{uuid.uuid4().hex}") as cursor:
            cursor.execute(self._database.statement(query), parameters)
            while rows := cursor.fetchmany(_CHUNK):
                subscriptions += decode_records(rows)
        return tuple(subscriptions)

    def as_of(self, moment: Moment, prefix: str = "") -> PastStore:
        """See `VersionedStore.as_of`."""
        with self._database.reading() as connection:
            return PastStore(self, self._past.revision_at(connection, moment), prefix)

    def read_at(self, revision: int, id: str) -> Subscription | None:  # noqa: A002 - the field's own name
        """See `turnout.subscriptions.past.Remembering`."""
        return next(iter(self._at(revision, "id = %s", (id,))), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        return self._at(revision, *_bounds("", prefix))

    def _at(self, revision: int, bounds: str, limits: tuple[str, ...]) -> tuple[Subscription, ...]:
        query = (
            f"SELECT id, record, revision FROM {{schema}}.subscription WHERE {bounds} AND revision <= %s"  # noqa: S608
            f" UNION ALL SELECT id, record, born FROM {{schema}}.past WHERE {bounds} AND born <= %s AND died > %s"
            " ORDER BY id"
        )
        with self._database.reading() as connection:
            self._past.revision_at(connection, revision)
            return self._decoded(connection, query, (*limits, revision, *limits, revision, revision))

    def births(self, prefix: str = "") -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        with self._database.reading() as connection:
            return self._past.births(connection, *_bounds("", prefix))

    def history(self, id: str) -> tuple[AuditEntry, ...]:  # noqa: A002 - the field's own name
        """See `VersionedStore.history`."""
        with self._database.reading() as connection:
            rows = [] if "\0" in id else self._past.versions(connection, id)
            if not rows:
                raise SubscriptionNotFoundError(id)
            if not self._past.retention:
                return ()
            versions = [Version(decode_record(id, record, born), born, died) for record, born, died in rows]
            first = self._past.remembered(connection)
            return audit_entries(versions, first, lambda revision: self._past.recorded(connection, revision))

    def for_tenant(self, name: str) -> Store:
        """See `MultiTenantStore.for_tenant`."""
        return TenantStore(self, name)


def _bounds(cursor: str, prefix: str, column: str = "id") -> tuple[str, tuple[str, ...]]:
    """Return the condition on ids after the cursor that begin with the prefix, and its parameters."""
    after = max(cursor, prefix)
    if not prefix:
        return f"{column} > %s", (after,)
    return f"{column} > %s AND {column} < %s", (after, prefix_end(prefix))
