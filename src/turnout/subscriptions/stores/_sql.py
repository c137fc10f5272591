"""Stores in tables of a database: what those of SQLite and PostgreSQL have in common, and their statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from turnout.base.clocks import TrustedClock
from turnout.errors import SubscriptionConflictError, SubscriptionNotFoundError
from turnout.subscriptions.destinations import checked
from turnout.subscriptions.lines import PlainLine
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription
from turnout.subscriptions.past import (
    AuditEntry,
    Creation,
    Moment,
    PastStore,
    RecordedMoment,
    SeenRevision,
    Snapshot,
    Span,
    Version,
    audit_entries,
    due_before,
)
from turnout.subscriptions.sealing import sealed_all, stored_version
from turnout.subscriptions.store import MAX_LIMIT, ChangeSet, Store, StoreBase
from turnout.subscriptions.stores._record import decode_record, decode_records, id_maker, leaf_id_of
from turnout.subscriptions.tenants import TenantStore, prefix_end

ConnectionT = TypeVar("ConnectionT")
T = TypeVar("T")
Chunk: TypeAlias = Sequence[tuple[str, Subscription | PlainLine]]
"""Subscriptions to store, each with its id."""

_PRUNE_EVERY = 1_000
"""Deletions between two looks for old ones."""

_REMEMBERED = 100_000
"""Deletions that are remembered for `changes`; a reader that missed more starts again from everything."""


class Query(NamedTuple):
    """Query for subscriptions: tables, of which one is named ``first``, a condition, and its parameters."""

    source: str
    where: str
    parameters: Sequence[object]


class SqlStore(StoreBase, ABC, Generic[ConnectionT]):
    """Keeps subscriptions in tables: each change is one transaction, which takes the next revision from one row.

    Statements are written for PostgreSQL's driver, with ``{schema}.`` before the names of tables.

    Args:
        retention: seconds for which the past is remembered.
        clock: clock by which it is.
    """

    chunk: ClassVar[int]
    """Subscriptions that are written together."""

    def __init__(self, retention: float, clock: TrustedClock) -> None:
        self._retention = retention
        self._clock = clock
        self._deletions = 0
        self._seen = SeenRevision()

    @abstractmethod
    def _reading(self) -> AbstractContextManager[ConnectionT]:
        """Lend a connection that sees one state of the database during the block."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[ConnectionT]:
        """Lend a connection in a transaction that is committed where the block ends well, and undone otherwise."""

    @abstractmethod
    def _execute(self, connection: ConnectionT, text: str, parameters: Sequence[object] = ()) -> Any:
        """Execute a statement."""

    @abstractmethod
    def _decoded(self, connection: ConnectionT, text: str, parameters: Sequence[object] = ()) -> list[Subscription]:
        """Return the subscriptions of a query for id, record and revision."""

    @abstractmethod
    def _insert(self, connection: ConnectionT, chunk: Chunk, revision: int, make: Callable[[], str]) -> None:
        """Store new subscriptions.

        Raises:
            SubscriptionExistsError: one of the ids is taken.
        """

    @abstractmethod
    def _delete(self, connection: ConnectionT, ids: Sequence[str], revision: int) -> Iterable[tuple[str, int]]:
        """Move subscriptions to the past at a revision; return each id with the revision of its version.

        Raises:
            SubscriptionNotFoundError: one of them does not exist.
        """

    @abstractmethod
    def _born(self, connection: ConnectionT, ids: Sequence[str]) -> dict[str, int]:
        """Return the revision of each of these subscriptions that is stored."""

    @abstractmethod
    def _created_since(self, connection: ConnectionT, since: int, prefix: str) -> list[Subscription]:
        """Return the versions after a revision, in the order of revisions."""

    @abstractmethod
    def _with_leaf(self, connection: ConnectionT, pattern_key: tuple[str, str, bool]) -> Query:
        """Return the query for subscriptions with a kiwi leaf of this key, pattern and partial flag."""

    @abstractmethod
    def _with_metadata(self, connection: ConnectionT, metadata: Mapping[str, str]) -> Query:
        """Return the query for subscriptions with all of these pairs, of which there is one at least."""

    @abstractmethod
    def _note_time(self, connection: ConnectionT, revision: int) -> None:
        """Record the time of a revision, and its actor; a wrong reading does not affect later revisions."""

    def _read_clock(self, connection: ConnectionT) -> None:
        """Have the clock read the time of the machine that records the revisions, if it is another one."""

    @abstractmethod
    def _continue(self, reached: int) -> None:
        """Have all followers of another history up to a revision begin again from this one, above its numbers."""

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
        chunk = list(islice(rows, self.chunk))
        if not chunk:
            return []
        ids: list[str] = []
        with self._writing() as connection:
            revision = self._next_revision(connection)
            while chunk:
                self._insert(connection, chunk, revision, make)
                ids += (id_ for id_, _ in chunk)
                chunk = list(islice(rows, self.chunk))
        return ids

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """See `Store.update`."""
        version = stored_version(id, subscription, self.read)
        with self._writing() as connection:
            revision = self._next_revision(connection)
            self._remove(connection, [id], revision, expected_revision)
            self._insert(connection, [(id, version)], revision, id_maker())
        return revision

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""
        with self._reading() as connection:
            query = "SELECT record, revision FROM {schema}.subscription WHERE id = %s"
            row = self._execute(connection, query, (id,)).fetchone()
        if row is None:
            raise SubscriptionNotFoundError(id)
        return decode_record(id, *row)

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """See `Store.delete`."""
        with self._writing() as connection:
            self._remove(connection, [id], self._next_revision(connection), expected_revision)

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. Other writers wait until the iterable ends."""
        distinct = iter(dict.fromkeys(ids))
        chunk = list(islice(distinct, self.chunk))
        if not chunk:
            return
        with self._writing() as connection:
            revision = self._next_revision(connection)
            while chunk:
                self._remove(connection, chunk, revision)
                chunk = list(islice(distinct, self.chunk))

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.store.AtomicStore`. Other writers wait until all is written."""
        make = id_maker()
        created = [(one.id or make(), one) for one in sealed_all(checked(changes.created))]
        updated = [(one.id, stored_version(one.id, one, self.read)) for one in changes.updated]
        gone, rows = list(changes.replaced()), [*created, *updated]
        with self._writing() as connection:
            revision = self._next_revision(connection)
            changes.check(self._born(connection, changes.ids()))
            for start in range(0, len(gone), self.chunk):
                self._remove(connection, gone[start : start + self.chunk], revision)
            for start in range(0, len(rows), self.chunk):
                self._insert(connection, rows[start : start + self.chunk], revision, make)
        return revision

    def _next_revision(self, connection: ConnectionT) -> int:
        """Take the next revision: every other writer waits for the row until this transaction ends."""
        self._execute(connection, "UPDATE {schema}.state SET revision = revision + 1")
        revision = int(self._execute(connection, "SELECT revision FROM {schema}.state").fetchone()[0])
        self._note_time(connection, revision)
        return revision

    def _remove(self, connection: ConnectionT, ids: Sequence[str], revision: int, expected: int | None = None) -> None:
        """Move subscriptions to the past at a revision.

        Raises:
            SubscriptionNotFoundError: one of them does not exist.
            SubscriptionConflictError: one is not at the *expected* revision.
        """
        for id_, born in self._delete(connection, ids, revision):
            if expected is not None and expected != born:
                raise SubscriptionConflictError(id_, expected, born)
        self._count_deletions(connection, len(ids))

    def _count_deletions(self, connection: ConnectionT, count: int) -> None:
        """Prune old deletions before the first one of this process, and once for every so many."""
        before, self._deletions = self._deletions, self._deletions + count
        if before == 0 or before // _PRUNE_EVERY != self._deletions // _PRUNE_EVERY:
            query = "SELECT died FROM {schema}.deleted ORDER BY died DESC LIMIT 1 OFFSET %s"
            oldest = self._execute(connection, query, (_REMEMBERED,)).fetchone()
            if oldest is not None:
                self._execute(connection, "DELETE FROM {schema}.deleted WHERE died <= %s", oldest)
                self._execute(connection, "UPDATE {schema}.state SET horizon = %s", oldest)
            self._forget(connection)

    def _forget(self, connection: ConnectionT) -> None:
        """Drop everything older than the retention; the state at its beginning stays known.

        One wrong reading drops nothing: the clock does not believe it at once, and a revision has to be as old as the
        one before it says.
        """
        newest = "SELECT at FROM {schema}.moment ORDER BY revision DESC LIMIT 1 OFFSET 1"
        recorded = self._execute(connection, newest).fetchone()
        self._read_clock(connection)
        limit = due_before(self._clock, self._retention, recorded[0] if recorded else None)
        due = (
            "SELECT max(own.revision) FROM {schema}.moment AS own"
            " LEFT JOIN {schema}.moment AS before ON before.revision = own.revision - 1"
            " WHERE own.at <= %s AND coalesce(before.at, own.at) <= %s"
        )
        oldest = self._execute(connection, due, (limit, limit)).fetchone()[0]
        if oldest is not None:
            query = "UPDATE {schema}.state SET remembered = %s WHERE remembered < %s"
            self._execute(connection, query, (oldest, oldest))
            self._execute(connection, "DELETE FROM {schema}.past WHERE died <= %s", (oldest,))
            self._execute(connection, "DELETE FROM {schema}.moment WHERE revision < %s", (oldest,))

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        pattern_key = (key, pattern, partial)
        with self._reading() as connection:
            found = self._page(connection, self._with_leaf(connection, pattern_key), limit, cursor, prefix)
        matches = (ConditionMatch(one.id, leaf_id_of(one, pattern_key), one) for one in found)
        return Page.of(matches, min(limit, MAX_LIMIT), lambda match: match.subscription_id)

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        with self._reading() as connection:
            query = self._with_metadata(connection, metadata) if metadata else _ALL
            found = self._page(connection, query, limit, cursor, prefix)
        return Page.of(found, min(limit, MAX_LIMIT), lambda subscription: subscription.id)

    def _page(
        self, connection: ConnectionT, query: Query, limit: int, cursor: str, prefix: str
    ) -> Iterator[Subscription]:
        where, limits = bounds_of(cursor, prefix, "first.id")
        text = f"SELECT id, record, revision FROM {query.source} WHERE {query.where} AND {where}"  # noqa: S608 - no input
        parameters = (*query.parameters, *limits, min(limit, MAX_LIMIT) + 1)
        rows = self._execute(connection, f"{text} ORDER BY first.id LIMIT %s", parameters).fetchall()
        return decode_records(rows)

    def revision(self) -> int:
        """See `Store.revision`."""
        return self._followed(lambda _, revision, __: revision)

    def _followed(self, read: Callable[[ConnectionT, int, int], T]) -> T:
        """Return what is read for followers, who begin again if the database was never at what they have seen."""
        while True:
            reached = self._seen.revision
            with self._reading() as connection:
                revision, horizon, remembered, time, newest = self._execute(
                    connection,
                    "SELECT revision, horizon, remembered, (SELECT at FROM {schema}.moment WHERE revision = %s),"
                    " (SELECT at FROM {schema}.moment WHERE revision = state.revision) FROM {schema}.state",
                    (reached,),
                ).fetchone()
                if not self._seen.is_missing(revision, horizon, remembered, time):
                    answer = read(connection, revision, horizon)
                    self._seen.note(revision, newest)
                    return answer
            self._continue(reached)
            self._seen.note(0, None)

    def changes(self, since: int, prefix: str = "") -> Changes:
        """See `Store.changes`."""

        def read(connection: ConnectionT, revision: int, horizon: int) -> Changes:
            if since == revision:
                return Changes(revision)
            if not horizon <= since < revision:
                return Changes(revision, self._everything(connection, prefix), reset=True)
            created = self._created_since(connection, since, prefix)
            query = "SELECT id FROM {schema}.deleted WHERE died > %s AND born <= %s ORDER BY died, id"
            deleted = self._execute(connection, query, (since, since)).fetchall()
            return Changes(revision, tuple(created), tuple(id_ for (id_,) in deleted if id_.startswith(prefix)))

        return self._followed(read)

    def snapshot(self, prefix: str = "") -> Snapshot:
        """See `Store.snapshot`."""
        return self._followed(lambda connection, revision, _: Snapshot(self._everything(connection, prefix), revision))

    def _everything(self, connection: ConnectionT, prefix: str) -> tuple[Subscription, ...]:
        """Return the present subscriptions in the order of ids."""
        where, limits = bounds_of("", prefix)
        query = f"SELECT id, record, revision FROM {{schema}}.subscription WHERE {where} ORDER BY id"  # noqa: S608 - no input
        return tuple(self._decoded(connection, query, limits))

    def as_of(self, moment: Moment, prefix: str = "") -> PastStore:
        """See `VersionedStore.as_of`."""
        with self._reading() as connection:
            return PastStore(self, self._revision_at(connection, moment), prefix)

    def _revision_at(self, connection: ConnectionT, moment: Moment) -> int:
        """Return the revision of a moment.

        Raises:
            HistoryForgottenError: the store does not know so far back.
        """
        first, last, since = self._execute(
            connection,
            "SELECT remembered, state.revision, coalesce(at, 0) FROM {schema}.state"
            " LEFT JOIN {schema}.moment ON remembered > 0 AND moment.revision = remembered",
        ).fetchone()

        def last_until(at: int) -> int | None:
            query = "SELECT revision FROM {schema}.moment WHERE at <= %s ORDER BY revision DESC LIMIT 1"
            row = self._execute(connection, query, (at,)).fetchone()
            return None if row is None else int(row[0])

        return Span(first, last, since).revision(moment, last_until)

    def read_at(self, revision: int, id: str) -> Subscription | None:
        """See `turnout.subscriptions.past.Remembering`."""
        return next(iter(self._at(revision, "id = %s", (id,))), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        then = self._at(revision, *bounds_of("", prefix))
        then.sort(key=lambda subscription: subscription.id)
        return tuple(then)

    def _at(self, revision: int, where: str, limits: tuple[str, ...]) -> list[Subscription]:
        query = (
            f"SELECT id, record, revision FROM {{schema}}.subscription WHERE {where} AND revision <= %s"  # noqa: S608 - no input
            f" UNION ALL SELECT id, record, born FROM {{schema}}.past WHERE {where} AND born <= %s AND died > %s"
        )
        with self._reading() as connection:
            self._revision_at(connection, revision)
            return self._decoded(connection, query, (*limits, revision, *limits, revision, revision))

    def births(self, prefix: str = "") -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        where, limits = bounds_of("", prefix)
        query = (
            "SELECT id, subscription.revision, at FROM {schema}.subscription"  # noqa: S608 - no input
            f" LEFT JOIN {{schema}}.moment USING (revision) WHERE {where}"
        )
        with self._reading() as connection:
            rows = self._execute(connection, query, limits).fetchall()
        return {id_: Creation.of(revision, at) for id_, revision, at in rows}

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """See `VersionedStore.history`."""
        query = (
            "SELECT record, born, died FROM {schema}.past WHERE id = %s"
            " UNION ALL SELECT record, revision, NULL FROM {schema}.subscription WHERE id = %s"
        )
        with self._reading() as connection:
            rows = self._execute(connection, query, (id, id)).fetchall()
            if not rows:
                raise SubscriptionNotFoundError(id)
            if not self._retention:
                return ()
            versions = [Version(decode_record(id, record, born), born, died) for record, born, died in rows]
            first = self._execute(connection, "SELECT remembered FROM {schema}.state").fetchone()[0]
            return audit_entries(versions, first, lambda revision: self._recorded(connection, revision))

    def _recorded(self, connection: ConnectionT, revision: int) -> RecordedMoment | None:
        """Return the time and the actor of a revision."""
        row = self._execute(
            connection, "SELECT at, actor FROM {schema}.moment WHERE revision = %s", (revision,)
        ).fetchone()
        return None if row is None else RecordedMoment(*row)

    def for_tenant(self, name: str) -> Store:
        """See `MultiTenantStore.for_tenant`."""
        return TenantStore(self, name)


_ALL = Query("{schema}.subscription AS first", "true", ())


def bounds_of(cursor: str, prefix: str, column: str = "id") -> tuple[str, tuple[str, ...]]:
    """Return the condition on ids after the cursor that begin with the prefix, and its parameters."""
    after = max(cursor, prefix)
    if not prefix:
        return f"{column} > %s", (after,)
    return f"{column} > %s AND {column} < %s", (after, prefix_end(prefix))
