"""The default store: one SQLite file, shared by threads and processes of one machine."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import TypeVar

from turnout.base.clocks import TrustedClock
from turnout.base.startup import paused_gc
from turnout.conditions import Kiwi, leaves
from turnout.errors import (
    StoreUnavailableError,
    SubscriptionConflictError,
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
from turnout.subscriptions.store_url import SqliteAddress
from turnout.subscriptions.stores import _sqlite_past as past
from turnout.subscriptions.stores._record import decode_record, decode_records, encode_record, id_maker
from turnout.subscriptions.stores._sqlite_file import SqliteFile, continue_revisions
from turnout.subscriptions.stores._sqlite_past import (
    delete_by_rows,
    delete_by_scan,
    forget_old_deletions,
    insert_rows,
    neighbours,
    scan_pays,
)
from turnout.subscriptions.tenants import TenantStore, prefix_end

T = TypeVar("T")
_log = logging.getLogger(__name__)

_CHUNK = 50_000
"""Rows that are prepared together: the more are sorted into an index, the fewer pages are written again."""

_SCANNED_CHUNK = 100_000
"""Ids of one pass over the tables."""

_DECODED_CHUNK = 1_000
"""Number of records parsed together: the parser's temporary objects are between the subscriptions in memory."""

_DELETED_CHUNK = 10_000
"""Ids of one statement. With many ids, more of their scattered rows share a page. SQLite allows 32,766 values."""

_PRUNE_EVERY = 1_000
"""Deletions between two looks for old ones."""

_COUNT_TO = 1_000


class SqliteStore(StoreBase):
    """Keeps subscriptions in one SQLite file in WAL mode.

    Readers never wait; writers queue. A change is on the disk when it returns
    (see ``synchronous`` in `SqliteAddress`). Any number of threads and processes may use the file.

    Not promised: to work on a network file system, which WAL mode cannot.
    """

    def __init__(self, address: SqliteAddress) -> None:
        self._file = SqliteFile(address)
        self._deletions = 0
        self._clock = TrustedClock()
        self._seen = SeenRevision()

    @classmethod
    def open(cls, url: str) -> SqliteStore:
        """The store in the file that ``sqlite:///relative.db`` or ``sqlite:////absolute.db`` names."""
        return cls(SqliteAddress.parse(url))

    def close(self) -> None:
        """See `Store.close`."""
        self._file.close()

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
        if not chunk:
            return []
        ids: list[str] = []
        with self._file.writing() as connection:
            revision = _next_revision(connection)
            while chunk:
                with paused_gc():
                    existing_id = _insert(connection, chunk, revision, make)
                if existing_id is not None:
                    raise SubscriptionExistsError(existing_id)
                ids += (id_ for id_, _ in chunk)
                chunk = list(islice(rows, _CHUNK))
        return ids

    def update(
        self,
        id: str,  # noqa: A002 - the field's own name
        subscription: Subscription,
        expected_revision: int | None = None,
    ) -> int:
        """See `Store.update`."""
        version = stored_version(id, subscription, self.read)
        with self._file.writing() as connection:
            revision = _next_revision(connection)
            self._remove(connection, [id], revision, expected_revision)
            _insert(connection, [(id, version)], revision, id_maker())
        return revision

    def read(self, id: str) -> Subscription:  # noqa: A002 - the field's own name
        """See `Store.read`."""
        with self._file.reading() as connection:
            row = connection.execute("SELECT record, revision FROM subscription WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise SubscriptionNotFoundError(id)
        return decode_record(id, *row)

    def delete(self, id: str, expected_revision: int | None = None) -> None:  # noqa: A002 - the field's own name
        """See `Store.delete`."""
        with self._file.writing() as connection:
            self._remove(connection, [id], _next_revision(connection), expected_revision)

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. Other writers wait until the iterable ends."""
        distinct = iter(dict.fromkeys(ids))
        chunk = list(islice(distinct, _SCANNED_CHUNK))
        if not chunk:
            return
        keep = bool(self._file.address.retention)
        with self._file.writing() as connection:
            revision = _next_revision(connection)
            while chunk:
                if scan_pays(connection, len(chunk)):
                    delete_by_scan(connection, chunk, revision, keep=keep)
                    self._count_deletions(connection, len(chunk))
                else:
                    for start in range(0, len(chunk), _DELETED_CHUNK):
                        with paused_gc():
                            self._remove(connection, chunk[start : start + _DELETED_CHUNK], revision)
                chunk = list(islice(distinct, _SCANNED_CHUNK))

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.change_set.AtomicStore`. Other writers wait until all is written."""
        make = id_maker()
        created = [(one.id or make(), one) for one in sealed_all(checked(changes.created))]
        updated = [(one.id, stored_version(one.id, one, self.read)) for one in changes.updated]
        ids, gone, rows = changes.ids(), list(changes.replaced()), [*created, *updated]
        with self._file.writing() as connection, paused_gc():
            changes.check(
                {id_: born for chunk in _chunks(ids, _DELETED_CHUNK) for id_, born in _born(connection, chunk)}
            )
            revision = _next_revision(connection)
            for chunk in _chunks(gone, _DELETED_CHUNK):
                self._remove(connection, chunk, revision)
            for part in _chunks(rows, _CHUNK):
                existing_id = _insert(connection, part, revision, make)
                if existing_id is not None:
                    raise SubscriptionExistsError(existing_id)
        return revision

    def _remove(
        self, connection: sqlite3.Connection, ids: list[str], revision: int, expected: int | None = None
    ) -> None:
        """Move subscriptions to the past at a revision.

        Raises:
            SubscriptionNotFoundError: one of them does not exist.
            SubscriptionConflictError: one is not at the *expected* revision.
        """
        keep = bool(self._file.address.retention)
        for id_, born in delete_by_rows(connection, ids, revision, keep=keep):
            if expected is not None and expected != born:
                raise SubscriptionConflictError(id_, expected, born)
        self._count_deletions(connection, len(ids))

    def _count_deletions(self, connection: sqlite3.Connection, count: int) -> None:
        """Prune old deletions before the first one of this process, and once for every so many."""
        before, self._deletions = self._deletions, self._deletions + count
        if before == 0 or before // _PRUNE_EVERY != self._deletions // _PRUNE_EVERY:
            forget_old_deletions(connection)
            past.forget(connection, self._file.address.retention, self._clock)

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        size = min(limit, MAX_LIMIT)
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT id, record, subscription.revision FROM leaf JOIN subscription USING (id)"
                " WHERE key = ? AND pattern = ? AND partial = ? AND leaf.id > ? AND leaf.id < ?"
                " ORDER BY leaf.id LIMIT ?",
                (key, pattern, partial, *_range(cursor, prefix), size + 1),
            ).fetchall()
        matches = (_match(decode_record(*row), (key, pattern, partial)) for row in rows)
        return Page.of(matches, size, lambda match: match.subscription_id)

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        size = min(limit, MAX_LIMIT)
        with self._file.reading() as connection:
            if metadata:
                pairs = _rarest_first(connection, metadata)
                others = " AND EXISTS (SELECT 1 FROM metadata WHERE (name, value, id) = (?, ?, first.id))"
                rows = connection.execute(
                    "SELECT id, record, subscription.revision FROM metadata AS first JOIN subscription USING (id)"  # noqa: S608 - no input
                    f" WHERE name = ? AND value = ?{others * (len(pairs) - 1)}"
                    " AND first.id > ? AND first.id < ? ORDER BY first.id LIMIT ?",
                    (*(text for pair in pairs for text in pair), *_range(cursor, prefix), size + 1),
                ).fetchall()
            else:
                rows = connection.execute(
                    "SELECT id, record, subscription.revision FROM subscription"
                    " WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
                    (*_range(cursor, prefix), size + 1),
                ).fetchall()
        return Page.of((decode_record(*row) for row in rows), size, lambda subscription: subscription.id)

    def revision(self) -> int:
        """See `Store.revision`."""
        return self._followed(lambda _, revision, __: revision)

    def _followed(self, read: Callable[[sqlite3.Connection, int, int], T]) -> T:
        """Return what is read for followers, who begin again if the file was never at what they have seen."""
        while True:
            reached = self._seen.revision
            with self._file.reading() as connection:
                revision, horizon, remembered, time, newest = connection.execute(
                    "SELECT revision, horizon, remembered, (SELECT at FROM moment WHERE revision = ?),"
                    " (SELECT at FROM moment WHERE revision = state.revision) FROM state",
                    (reached,),
                ).fetchone()
                if not self._seen.is_missing(revision, horizon, remembered, time):
                    answer = read(connection, revision, horizon)
                    self._seen.note(revision, newest)
                    return answer
            self._continue(reached)

    def _continue(self, reached: int) -> None:
        """Have all followers of another history up to a revision begin again from this one, above its numbers."""
        path = str(self._file.address.path)
        if self._file.address.read_only:
            raise StoreUnavailableError(
                f"the store {path!r} was restored: what reads it with mode=ro has to start again"
            )
        with self._file.writing() as connection:
            continue_revisions(connection, reached)
        self._seen.note(0, None)
        text = "the store %r is in an older state, or another one, than at revision %d: its followers begin again"
        _log.warning(text, path, reached)

    def changes(self, since: int, prefix: str = "") -> Changes:
        """See `Store.changes`."""

        def read(connection: sqlite3.Connection, revision: int, horizon: int) -> Changes:
            if since == revision:
                return Changes(revision)
            if not horizon <= since < revision:
                return Changes(revision, _everything(connection, prefix), reset=True)
            # Rows are in the order of revisions, so new ones are at the end.
            rows = connection.execute("SELECT id, record, revision FROM subscription ORDER BY row DESC")
            born = takewhile(lambda row: row[2] > since, rows)
            created = [row for row in born if row[0].startswith(prefix)]
            created.reverse()
            new = tuple(_decoded(created))
            deleted = connection.execute(
                "SELECT id FROM deleted WHERE died > ? AND born <= ? ORDER BY died", (since, since)
            )
            return Changes(revision, new, tuple(id_ for (id_,) in deleted if id_.startswith(prefix)))

        return self._followed(read)

    def snapshot(self, prefix: str = "") -> Snapshot:
        """See `Store.snapshot`."""
        return self._followed(lambda connection, revision, _: Snapshot(_everything(connection, prefix), revision))

    def as_of(self, moment: Moment, prefix: str = "") -> PastStore:
        """See `VersionedStore.as_of`."""
        with self._file.reading() as connection:
            return PastStore(self, past.revision_at(connection, moment), prefix)

    def read_at(self, revision: int, id: str) -> Subscription | None:  # noqa: A002 - the field's own name
        """See `turnout.subscriptions.past.Remembering`."""
        with self._file.reading() as connection:
            past.revision_at(connection, revision)
            row = past.record_at(connection, revision, id)
        return None if row is None else decode_record(*row)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        with self._file.reading() as connection:
            past.revision_at(connection, revision)
            then = _decoded(past.records_at(connection, revision, _range("", prefix)))
        then.sort(key=lambda subscription: subscription.id)
        return tuple(then)

    def births(self, prefix: str = "") -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        with self._file.reading() as connection:
            return past.births(connection, _range("", prefix))

    def history(self, id: str) -> tuple[AuditEntry, ...]:  # noqa: A002 - the field's own name
        """See `VersionedStore.history`."""
        with self._file.reading() as connection:
            rows = past.versions(connection, id)
            if not rows:
                raise SubscriptionNotFoundError(id)
            if not self._file.address.retention:
                return ()
            versions = [Version(decode_record(id, record, born), born, died) for record, born, died in rows]
            first = past.remembered(connection)
            return audit_entries(versions, first, lambda revision: past.recorded(connection, revision))

    def for_tenant(self, name: str) -> Store:
        """See `MultiTenantStore.for_tenant`."""
        return TenantStore(self, name)


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _born(connection: sqlite3.Connection, ids: list[str]) -> list[tuple[str, int]]:
    """Return id and revision of each of these subscriptions that is stored."""
    marks = ", ".join("?" * len(ids))
    query = f"SELECT id, revision FROM subscription WHERE id IN ({marks})"  # noqa: S608 - placeholders alone
    return connection.execute(query, ids).fetchall()


def _range(cursor: str, prefix: str) -> tuple[str, str | bytes]:
    """Return the lower and upper bound of the ids after the cursor that begin with the prefix."""
    # To SQLite every text is below every blob.
    return max(cursor, prefix), prefix_end(prefix) if prefix else b""


def _state(connection: sqlite3.Connection) -> tuple[int, int]:
    revision, horizon = connection.execute("SELECT revision, horizon FROM state").fetchone()
    return revision, horizon


def _next_revision(connection: sqlite3.Connection) -> int:
    connection.execute("UPDATE state SET revision = revision + 1")
    revision = _state(connection)[0]
    past.note_time(connection, revision)
    return revision


def _leaf_rows(id_: str, subscription: Subscription | PlainLine) -> Iterable[tuple[str, str, bool, str]]:
    if isinstance(subscription, PlainLine):
        return subscription.leaf_rows(id_)
    return {
        (leaf.key, leaf.pattern, leaf.partial, id_) for leaf in leaves(subscription.condition) if isinstance(leaf, Kiwi)
    }


def _metadata_rows(id_: str, subscription: Subscription | PlainLine) -> list[tuple[str, str, str]]:
    return [(name, value, id_) for name, value in subscription.metadata.items()]


def _insert(
    connection: sqlite3.Connection,
    chunk: Sequence[tuple[str, Subscription | PlainLine]],
    revision: int,
    make: Callable[[], str],
) -> str | None:
    """Store the chunk, or give an id of it that is taken. Each index gets its rows sorted, neighbours together."""
    before = connection.execute("SELECT max(row) FROM subscription").fetchone()[0] or 0
    stored = connection.executemany(
        "INSERT INTO subscription (id, revision, record) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
        [(id_, revision, encode_record(subscription, make)) for id_, subscription in chunk],
    )
    if stored.rowcount != len(chunk):
        return _existing_id(connection, [id_ for id_, _ in chunk], before)
    insert_rows(connection, "leaf", 4, neighbours([row for pair in chunk for row in _leaf_rows(*pair)], 4))
    insert_rows(connection, "metadata", 3, neighbours([row for pair in chunk for row in _metadata_rows(*pair)], 3))
    return None


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


def _match(subscription: Subscription, pattern_key: tuple[str, str, bool]) -> ConditionMatch:
    leaf = next(
        leaf
        for leaf in leaves(subscription.condition)
        if isinstance(leaf, Kiwi) and (leaf.key, leaf.pattern, leaf.partial) == pattern_key
    )
    return ConditionMatch(subscription.id, leaf.id, subscription)


def _everything(connection: sqlite3.Connection, prefix: str) -> tuple[Subscription, ...]:
    if prefix:
        query = "SELECT id, record, subscription.revision FROM subscription WHERE id > ? AND id < ? ORDER BY id"
        return tuple(_decoded(connection.execute(query, _range("", prefix))))
    # Read in the file's order, which is sequential, and sorted here, which takes less than seeking would.
    subscriptions = _decoded(connection.execute("SELECT id, record, subscription.revision FROM subscription"))
    subscriptions.sort(key=lambda subscription: subscription.id)
    return tuple(subscriptions)


def _decoded(rows: Iterable[tuple[str, str, int]]) -> list[Subscription]:
    subscriptions: list[Subscription] = []
    rest = iter(rows)
    with paused_gc():
        while chunk := list(islice(rest, _DECODED_CHUNK)):
            subscriptions += decode_records(chunk)
    return subscriptions
