"""The store for many machines: MongoDB, or a server that speaks its protocol."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import (
    ConfigError,
    Mistake,
    StoreUnavailableError,
    SubscriptionConflictError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
)
from turnout.secrets import masked_url
from turnout.subscriptions.destinations import checked
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription
from turnout.subscriptions.past import AuditEntry, Creation, Moment, PastStore, SeenRevision, Snapshot
from turnout.subscriptions.sealing import sealed_all, stored_version
from turnout.subscriptions.store import MAX_LIMIT, ChangeSet, Store, StoreBase, remaining
from turnout.subscriptions.store_url import log_wait, split_url, waits_of
from turnout.subscriptions.stores._mongo_driver import (
    TOO_SLOW,
    Deletions,
    MongoClient,
    MongoPast,
    ServerClock,
    Tombstones,
    Turn,
    Turns,
    Updates,
    errors,
    in_time,
    parse_uri,
    soon,
    translated,
)
from turnout.subscriptions.stores._record import (
    document_of,
    id_maker,
    id_range,
    leaf_id_of,
    leaf_token,
    pair_token,
    sorted_subscriptions,
    subscription_of,
)
from turnout.subscriptions.tenants import TenantStore

T = TypeVar("T")
_log = logging.getLogger(__name__)

_CHUNK = 1_000
_WAIT_SECONDS = 60.0
"""Seconds that a writer waits for others of its process."""

_ATTEMPTS = 3
_DUPLICATE = 11_000


@dataclass(frozen=True, slots=True)
class _StoredState:
    """State document of the store: the revision that readers see."""

    revision: int
    horizon: int


class MongoStore(StoreBase):
    """Keeps subscriptions in a MongoDB collection, without transactions: a standalone server will do.

    Writers take turns: whose turn it is says a document, with a lease. A change is written under the next
    revision, which readers ignore, and then the document of state is moved to it: at once, and for all
    of a bulk. If a writer dies in between, the next one rolls its creations back and completes its updates and
    deletions.

    Not promised: that writes are quick when many machines write at once, since they take turns; and that a
    writer which was stopped for longer than its lease leaves nothing behind, if it dies while it notices.
    """

    def __init__(self, url: str) -> None:
        uri, table, retention = split_url(url, "table", "subscriptions")
        self._writing = threading.Lock()
        try:
            if uri.startswith("mongodb://"):
                # The driver only warns about unknown options, and continues without them.
                parse_uri(uri, warn=False)
            self._client: MongoClient[JsonObject] = MongoClient(uri, appname="turnout", **waits_of(uri))
        except (errors.ConfigurationError, ValueError) as problem:
            raise ConfigError([Mistake("store", masked_url(f"{problem}"))]) from None
        database = self._client.get_default_database("subscriptions")
        self._subscriptions = database[table]
        self._states = database[f"{table}_state"]
        self._seen = SeenRevision()
        self._clock = ServerClock(lambda: self._client.admin.command("hello")["localTime"])
        self._updates = Updates(self._subscriptions)
        self._turns = Turns(self._states, self._clock)
        archive, moments = database[f"{table}_past"], database[f"{table}_moments"]
        self._past = MongoPast(archive, moments, self._states, retention, self._clock)
        self._tombstones = Tombstones(database[f"{table}_deleted"], self._states, self._past)
        self._bulk = Deletions(self._subscriptions, self._tombstones, self._states, self._past)
        try:
            with translated(), log_wait(uri):
                self._prepare()
        except BaseException:
            self._client.close()
            raise

    @classmethod
    def open(cls, url: str) -> MongoStore:
        """The store that ``mongodb://user:password@host/database?table=name&tls=true`` names.

        Database and table are ``subscriptions`` where the URL does not say; all other options are the driver's.
        """
        return cls(url)

    def close(self) -> None:
        """See `Store.close`."""
        self._client.close()

    def _prepare(self) -> None:
        self._subscriptions.create_index([("leaves", 1), ("_id", 1)])
        self._subscriptions.create_index([("pairs", 1), ("_id", 1)])
        self._subscriptions.create_index([("revision", 1)])
        self._tombstones.prepare()
        new = {"revision": 0, "horizon": 0}
        # Another process may create them in the same moment.
        with contextlib.suppress(errors.DuplicateKeyError):
            self._states.update_one({"_id": "state"}, {"$setOnInsert": new}, upsert=True)
        with contextlib.suppress(errors.DuplicateKeyError):
            self._past.prepare(self._state().revision)

    def create(self, subscription: Subscription) -> str:
        """See `Store.create`."""
        return self.create_many([subscription])[0]

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """See `BulkStore.create_many`. Other writers wait until the iterable ends."""
        make = id_maker()
        new = (subscription.identified(make) for subscription in sealed_all(checked(subscriptions)))
        chunk = list(islice(new, _CHUNK))
        ids: list[str] = []
        if not chunk:
            return ids
        with self._turn() as turn:
            while chunk:
                self._insert(chunk, turn)
                ids += (subscription.id for subscription in chunk)
                chunk = list(islice(new, _CHUNK))
                self._turns.hold(turn)
        return ids

    def _insert(self, chunk: Sequence[Subscription], turn: Turn) -> None:
        documents = [{**document_of(subscription, turn.revision), "writer": turn.writer} for subscription in chunk]
        try:
            self._subscriptions.insert_many(documents, ordered=False)
        except errors.BulkWriteError as failure:
            for problem in failure.details["writeErrors"]:
                if problem["code"] == _DUPLICATE:
                    raise SubscriptionExistsError(problem["op"]["_id"]) from failure
            raise

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""
        with in_time():
            document = self._one(id)
        if document is None:
            raise SubscriptionNotFoundError(id)
        return subscription_of(document)

    def _one(self, id_: str) -> JsonMapping | None:
        # Read before the state: a change between the two has a later revision.
        document = self._subscriptions.find_one({"_id": id_})
        return None if document is None else self._updates.visible(document, self._state().revision)

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """See `Store.update`. One that fails because the connection was lost may be stored nevertheless."""
        version = stored_version(id, subscription, self.read).identified(id_maker())
        with self._turn() as turn:
            old = self._subscriptions.find_one({"_id": id})
            if old is None:
                raise SubscriptionNotFoundError(id)
            if expected_revision is not None and expected_revision != old["revision"]:
                raise SubscriptionConflictError(id, expected_revision, old["revision"])
            self._updates.replace(old, {**document_of(version, turn.revision), "writer": turn.writer})
            self._tombstones.add(old, turn.revision)
            self._tombstones.prune(1)
        return turn.revision

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """See `Store.delete`."""
        with self._turn() as turn:
            document = self._subscriptions.find_one({"_id": id})
            if document is None:
                raise SubscriptionNotFoundError(id)
            if expected_revision is not None and expected_revision != document["revision"]:
                raise SubscriptionConflictError(id, expected_revision, document["revision"])
            self._tombstones.add(document, turn.revision)
            self._tombstones.prune(1)
            self._subscriptions.delete_one({"_id": id})

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. One that fails because the connection was lost may be done nevertheless."""
        distinct = list(dict.fromkeys(ids))
        if not distinct:
            return
        with self._turn() as turn:
            self._bulk.begin(distinct, turn.revision)
            for chunk in self._bulk.listed():
                self._turns.hold(turn)
                self._bulk.remove(chunk, turn.revision)
            self._tombstones.prune(len(distinct))

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.store.AtomicStore`.

        What is new is written under the next revision, which readers ignore, and then the list of what it replaces and
        removes: from the list on the next writer completes it, before the list it rolls it back. One that fails because
        the connection was lost may be done nevertheless.
        """
        make = id_maker()
        created = [one.identified(make) for one in sealed_all(checked(changes.created))]
        updated = [stored_version(one.id, one, self.read).identified(make) for one in changes.updated]
        gone = list(changes.replaced())
        with self._turn() as turn:
            found: dict[str, int] = {}
            for ids in _chunked(changes.ids()):
                query = self._subscriptions.find({"_id": {"$in": ids}}, {"revision": 1})
                found |= {document["_id"]: document["revision"] for document in query}
            changes.check(found)
            for chunk in _chunked(created):
                self._insert(chunk, turn)
                self._turns.hold(turn)
            for chunk in _chunked(updated):
                documents = [{**document_of(one, turn.revision), "writer": turn.writer} for one in chunk]
                self._updates.replace_many(documents)
                self._turns.hold(turn)
            if gone:
                self._bulk.begin(gone, turn.revision)
                for ids in self._bulk.listed():
                    self._turns.hold(turn)
                    self._bulk.remove(ids, turn.revision)
                self._tombstones.prune(len(gone))
        return turn.revision

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        pattern_key = (key, pattern, partial)
        subscriptions = self._page("leaves", [leaf_token(*pattern_key)], id_range(cursor, prefix), limit)
        return Page.of(
            (
                ConditionMatch(subscription.id, leaf_id_of(subscription, pattern_key), subscription)
                for subscription in subscriptions
            ),
            min(limit, MAX_LIMIT),
            lambda match: match.subscription_id,
        )

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = "", prefix: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        tokens = [pair_token(*pair) for pair in metadata.items()]
        subscriptions = self._page("pairs", tokens, id_range(cursor, prefix), limit)
        return Page.of(subscriptions, min(limit, MAX_LIMIT), lambda subscription: subscription.id)

    def _page(self, field: str, tokens: list[str], ids: dict[str, str], limit: int) -> list[Subscription]:
        most = min(limit, MAX_LIMIT) + 1
        with in_time():
            revision = self._state().revision
            query = {**({field: {"$all": tokens}} if tokens else {}), "_id": ids, "revision": {"$lte": revision}}
            present = self._subscriptions.find(query).sort("_id", 1).limit(most)
            return sorted_subscriptions(present, self._updates.replaced(revision, ids, field, tokens))[:most]

    def revision(self) -> int:
        """See `Store.revision`."""
        return self._followed_state().revision

    def _followed_state(self) -> _StoredState:
        """Return the state for followers, who begin again if the database was never at what they have seen."""
        while True:
            reached = self._seen.revision
            with in_time():
                state = self._state()
                remembered, seen, newest = self._past.identity(reached, state.revision)
            if not self._seen.is_missing(state.revision, state.horizon, remembered, seen):
                self._seen.note(state.revision, newest)
                return state
            self._continue(reached)

    def _continue(self, reached: int) -> None:
        """Have all followers of another history up to a revision begin again from this one, above its numbers."""
        writer = uuid.uuid4().hex
        with in_time():
            self._turns.take(writer)
        try:
            with translated():
                revision = max(self._recover(), reached) + 1
                if self._state().horizon <= reached:
                    self._past.note_time(revision)
                    self._states.update_one({"_id": "state"}, {"$set": {"revision": revision, "horizon": revision}})
        finally:
            with soon():
                self._turns.end(writer)
        self._seen.note(0, None)
        _log.warning(
            "the MongoDB store is in an older state, or another one, than at revision %d: its followers begin again",
            reached,
        )

    def changes(self, since: int, prefix: str = "") -> Changes:
        """See `Store.changes`."""
        state = self._followed_state()
        with translated():
            now = state.revision
            if since == now:
                return Changes(now)
            if not state.horizon <= since < now:
                return Changes(now, self._everything(now, prefix), reset=True)
            ids = {"_id": id_range("", prefix)}
            created = self._subscriptions.find({"revision": {"$gt": since, "$lte": now}, **ids})
            replaced = self._updates.replaced(now, ids["_id"])
            new = sorted_subscriptions(created, [old for old in replaced if old["revision"] > since])
            return Changes(now, tuple(new), self._tombstones.between(since, now, ids["_id"]))

    def snapshot(self, prefix: str = "") -> Snapshot:
        """See `Store.snapshot`.

        Subscriptions that are deleted during the read may be missing; `changes` since its revision names it.
        """
        with translated():
            for _ in range(_ATTEMPTS):
                revision = self._followed_state().revision
                subscriptions = self._everything(revision, prefix)
                if self._state().revision == revision:
                    break
            return Snapshot(subscriptions, revision)

    def as_of(self, moment: Moment, prefix: str = "") -> PastStore:
        """See `VersionedStore.as_of`."""
        with translated():
            return PastStore(self, self._past.revision_at(moment, self._state().revision), prefix)

    def read_at(self, revision: int, id: str) -> Subscription | None:
        """See `turnout.subscriptions.past.Remembering`."""
        return next(iter(self._at(revision, id)), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        return tuple(self._at(revision, id_range("", prefix)))

    def _at(self, revision: int, ids: dict[str, str] | str) -> list[Subscription]:
        with translated():
            self._past.revision_at(revision, self._state().revision)
            # Rows deleted between the queries are in several; the earliest deletions are in the last.
            present = list(self._subscriptions.find({"_id": ids, "revision": {"$lte": revision}}))
            return sorted_subscriptions(
                [*present, *self._updates.replaced(revision, ids)], self._past.at(revision, ids)
            )

    def births(self, prefix: str = "") -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        ids = id_range("", prefix)
        with translated():
            now = self._state().revision
            present = self._subscriptions.find({"_id": ids, "revision": {"$lte": now}}, {"revision": 1})
            documents = [*self._updates.replaced(now, ids), *present]
            born = {document["_id"]: document["revision"] for document in documents}
            known = {revision: self._past.birth(revision) for revision in set(born.values())}
            return {id_: known[revision] for id_, revision in born.items()}

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """See `VersionedStore.history`."""
        with in_time():
            return self._past.history(id, self._one(id), self._state().revision)

    def for_tenant(self, name: str) -> Store:
        """See `MultiTenantStore.for_tenant`."""
        return TenantStore(self, name)

    def _everything(self, revision: int, prefix: str) -> tuple[Subscription, ...]:
        ids = id_range("", prefix)
        present = self._subscriptions.find({"revision": {"$lte": revision}, "_id": ids}).sort("_id", 1)
        return tuple(sorted_subscriptions(present, self._updates.replaced(revision, ids)))

    def _state(self) -> _StoredState:
        state = self._states.find_one({"_id": "state"})
        if state is None:
            raise SubscriptionError("the store's state is missing: was its collection dropped?")
        return _StoredState(state["revision"], state["horizon"])

    @contextmanager
    def _turn(self) -> Iterator[Turn]:
        """Hold this writer's turn during a block; the revision is made visible if the block succeeds."""
        wait = remaining(_WAIT_SECONDS)
        if not self._writing.acquire(timeout=wait):
            raise StoreUnavailableError(f"other writers of this process kept this one waiting for {wait:.3g} s")
        writer = uuid.uuid4().hex
        try:
            with in_time():
                self._turns.take(writer)
            with translated():
                try:
                    turn = Turn(writer, self._recover() + 1)
                    try:
                        yield turn
                        self._commit(turn)
                    except errors.ConnectionFailure:
                        # The next writer rolls an unfinished change back.
                        raise
                    except BaseException:
                        # By the writer's name: what another one wrote under the same revision is not ours.
                        # An update that was begun is ended by the next writer, and so is a complete list.
                        if self._bulk.begun(turn.revision - 1) is None:
                            self._updates.undo({"revision": turn.revision, "writer": writer})
                            begun = {"revision": turn.revision, "writer": writer, "previous": {"$exists": False}}
                            self._subscriptions.delete_many(begun)
                        raise
                finally:
                    with soon():
                        self._turns.end(writer)
        finally:
            self._writing.release()

    def _recover(self) -> int:
        """Tidy up after a writer that died in its turn, if one did; the revision that is visible then."""
        revision = self._state().revision
        bulk = self._bulk.begun(revision)
        if bulk is not None:
            for chunk in self._bulk.listed():
                self._bulk.remove(chunk, bulk)
            return self._end(bulk)
        self._updates.undo({"revision": {"$gt": revision}})
        update = self._updates.begun(revision)
        if update is not None:
            self._tombstones.add(update["previous"], update["revision"])
            return self._end(update["revision"])
        self._subscriptions.delete_many({"revision": {"$gt": revision}})
        deletion = self._tombstones.later_than(revision)
        if deletion is None:
            return revision
        self._subscriptions.delete_one({"_id": deletion["_id"]})
        return self._end(deletion["died"])

    def _end(self, revision: int) -> int:
        """Make the changes of a dead writer visible."""
        self._past.note_time(revision)
        self._states.update_one({"_id": "state"}, {"$set": {"revision": revision}})
        return revision

    def _commit(self, turn: Turn) -> None:
        self._past.note_time(turn.revision)
        moved = self._states.update_one(
            {"_id": "state", "revision": turn.revision - 1}, {"$set": {"revision": turn.revision}}
        )
        if not moved.matched_count:
            raise StoreUnavailableError(TOO_SLOW)


def _chunked(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
