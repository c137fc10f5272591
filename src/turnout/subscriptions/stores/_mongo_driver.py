"""MongoDB's driver, where it is installed, and its errors as turnout's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from turnout.base.clocks import TrustedClock
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import (
    MissingExtraError,
    StoreUnavailableError,
    SubscriptionError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.secrets import masked_url
from turnout.subscriptions.past import (
    AuditEntry,
    Creation,
    Moment,
    RecordedMoment,
    Span,
    Version,
    audit_entries,
    current_actor,
    due_before,
)
from turnout.subscriptions.store import remaining
from turnout.subscriptions.stores._record import subscription_of

try:
    import pymongo
    from pymongo import MongoClient, ReplaceOne, errors
    from pymongo.collection import Collection
    from pymongo.uri_parser import parse_uri
except ModuleNotFoundError as missing:
    if missing.name != "pymongo":
        raise
    raise MissingExtraError("mongo", "pymongo") from missing

__all__ = ["MongoClient", "ReplaceOne", "error_of", "errors", "in_time", "parse_uri", "soon", "translated"]

Documents: TypeAlias = Collection[JsonObject]
"""A collection of the database."""

_FOREVER = float("inf")
_SOON_SECONDS = 2.0
_SERVER = re.compile(r"<ServerDescription \('([^']+)', ([0-9]+)\)")

_ERRORS: tuple[tuple[type[Exception], type[SubscriptionError], str], ...] = (
    (errors.ConnectionFailure, StoreUnavailableError, "MongoDB is away"),
    (errors.WaitQueueTimeoutError, StoreUnavailableError, "MongoDB has too many connections"),
    (errors.ExecutionTimeout, StoreUnavailableError, "MongoDB took too long"),
    (errors.WTimeoutError, StoreUnavailableError, "MongoDB took too long"),
    (errors.DocumentTooLarge, SubscriptionInvalidError, "MongoDB takes no subscription of this size"),
    (errors.PyMongoError, SubscriptionError, "MongoDB failed"),
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the driver's errors as turnout's."""
    try:
        yield
    except errors.PyMongoError as failure:
        raise error_of(failure) from failure
    except UnicodeEncodeError as failure:
        raise SubscriptionInvalidError(f"text that is not Unicode cannot be stored: {failure}") from failure


@contextmanager
def in_time() -> Iterator[None]:
    """Raise the driver's errors as turnout's, and bound all its waits together by the caller's deadline.

    For what takes a moment where the server answers; the time of a whole snapshot is not bounded by a deadline.
    """
    left = remaining(_FOREVER)
    with translated(), pymongo.timeout(None if left == _FOREVER else left):
        yield


@contextmanager
def soon() -> Iterator[None]:
    """Bound the waits for a server that may have just failed; a lease that is not given back expires."""
    with pymongo.timeout(_SOON_SECONDS):
        yield


def error_of(failure: errors.PyMongoError) -> SubscriptionError:
    """Translate the driver's *failure* into turnout's error; it contains no password."""
    kind, words = next((kind, words) for row, kind, words in _ERRORS if isinstance(failure, row))
    # The driver appends its state of each server, which does not help a reader.
    problem = str(failure).partition(", Timeout:")[0].partition(" (configured timeouts:")[0]
    if problem == "No servers found yet":
        servers = ", ".join(f"{host}:{port}" for host, port in _SERVER.findall(str(failure)))
        problem = f"{servers} does not answer"
    return kind(f"{words}: {masked_url(problem)}")


_FRESH_SECONDS = 10.0
"""Seconds for which the server's time is continued by this machine's monotonic clock."""


class ServerClock:
    """Clock of the server, in seconds since 1970, queried at most once in ten seconds.

    Args:
        ask: gives the server's time; a time without a zone is UTC, as the driver returns it.
        monotonic: seconds that only grow.
    """

    def __init__(self, ask: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._answer = 0.0
        self._asked: float | None = None

    def now(self) -> float:
        """Return the server's time."""
        if self._asked is None or self._monotonic() - self._asked > _FRESH_SECONDS:
            self._answer = self._ask().replace(tzinfo=UTC).timestamp()
            self._asked = self._monotonic()
        return self._answer + self._monotonic() - self._asked


class Updates:
    """Replaced documents of a collection.

    Args:
        subscriptions: the collection.
    """

    def __init__(self, subscriptions: Documents) -> None:
        self._subscriptions = subscriptions

    def replace(self, old: JsonMapping, new: JsonMapping) -> None:
        """Put a document in the place of another, which it holds."""
        self._subscriptions.replace_one({"_id": old["_id"]}, {**new, "previous": plain(old)})

    def replace_many(self, documents: Sequence[JsonMapping]) -> None:
        """Put documents in the place of others, which they hold, as parts of one change that can be undone."""
        ids = [document["_id"] for document in documents]
        old = {document["_id"]: plain(document) for document in self._subscriptions.find({"_id": {"$in": ids}})}
        new = [{**document, "previous": old[document["_id"]], "undone": True} for document in documents]
        self._subscriptions.bulk_write([ReplaceOne({"_id": one["_id"]}, one) for one in new], ordered=False)

    def undo(self, begun: JsonMapping) -> None:
        """Put back what `replace_many` has replaced, of the documents that the query *begun* finds."""
        while found := list(self._subscriptions.find({**begun, "undone": True}).limit(_CHUNK)):
            self._subscriptions.bulk_write([ReplaceOne({"_id": one["_id"]}, one["previous"]) for one in found])

    def visible(self, document: JsonMapping, revision: int) -> JsonMapping | None:
        """Return the version of a document that readers of a revision see; None for none."""
        for version in (document, document.get("previous")):
            if version is not None and version["revision"] <= revision:
                return version
        return None

    def replaced(
        self, revision: int, ids: Mapping[str, str] | str, field: str = "", tokens: Sequence[str] = ()
    ) -> list[JsonMapping]:
        """Return the documents of a revision that have been replaced since it, or are being replaced.

        Args:
            revision: revision to read.
            ids: the query for the requested ids.
            field: a list of the document, in which *tokens* have to be.
            tokens: see *field*.
        """
        query = {"revision": {"$gt": revision}, "previous.revision": {"$lte": revision}, "_id": ids}
        found = [document["previous"] for document in self._subscriptions.find(query)]
        return [old for old in found if not tokens or set(tokens) <= set(old[field])]

    def begun(self, revision: int) -> JsonMapping | None:
        """Return the document of an update that is later than the store's revision; None for none."""
        found: JsonMapping | None = self._subscriptions.find_one(
            {"revision": {"$gt": revision}, "previous": {"$exists": True}}
        )
        return found


def plain(document: JsonMapping) -> JsonObject:
    """Return a document without the one that it has replaced."""
    return {name: value for name, value in document.items() if name not in ("previous", "undone")}


class MongoPast:
    """Two collections next to a store's own: deleted documents, and the time of each revision.

    Args:
        archive: the collection of deleted documents.
        moments: the collection of times.
        states: the store's own collection of state.
        retention: for how many seconds deleted documents are kept.
        clock: the server's, as writers on many machines share the collections.
    """

    def __init__(
        self,
        archive: Documents,
        moments: Documents,
        states: Documents,
        retention: float,
        clock: ServerClock,
    ) -> None:
        self._archive = archive
        self._moments = moments
        self._states = states
        self._retention = retention
        self._clock = clock
        self._trusted = TrustedClock(clock.now)

    def prepare(self, revision: int) -> None:
        """Make the indexes, and begin the history of a store that has none."""
        self._archive.create_index([("died", 1)])
        self._archive.create_index([("id", 1)])
        begun = self._states.update_one(
            {"_id": "past"}, {"$setOnInsert": {"_id": "past", "remembered": revision}}, upsert=True
        )
        if begun.upserted_id is not None:
            self.note_time(revision)

    def note_time(self, revision: int) -> None:
        """Record the server's time of a revision, and its actor; a wrong reading does not affect later revisions."""
        moment = {"_id": revision, "at": int(self._clock.now() * 1_000_000), "actor": current_actor()}
        self._moments.replace_one({"_id": revision}, moment, upsert=True)

    def identity(self, seen: int, revision: int) -> tuple[int, int | None, int | None]:
        """Return the oldest revision whose time is remembered, and the times of two revisions."""
        times = {one["_id"]: one["at"] for one in self._moments.find({"_id": {"$in": [seen, revision]}})}
        past = self._states.find_one({"_id": "past"})
        return past["remembered"] if past else revision, times.get(seen), times.get(revision)

    def archive(self, document: JsonMapping, died: int) -> None:
        """Remember a document that is going. One that a dead writer has left under this revision is overwritten."""
        if self._retention:
            key = f"{died}"
            archived = {"_id": key, "id": document["_id"], "died": died, "born": document["revision"]}
            self._archive.replace_one({"_id": key}, {**archived, "document": plain(document)}, upsert=True)

    def archive_many(self, documents: Iterable[JsonMapping], died: int) -> None:
        """Archive documents before their deletion; those already archived at this revision are overwritten."""
        archived = [
            {"_id": f"{died}:{id_}", "id": id_, "died": died, "born": one["revision"], "document": plain(one)}
            for one in documents
            for id_ in (one["_id"],)
        ]
        if archived and self._retention:
            self._archive.delete_many({"_id": {"$in": [one["_id"] for one in archived]}})
            self._archive.insert_many(archived, ordered=False)

    def drop_uncommitted(self, revision: int) -> None:
        """Delete the leftovers of a dead writer under a revision that was never published."""
        self._archive.delete_many({"died": {"$gte": revision}})

    def forget(self) -> None:
        """Drop everything older than the retention; see `turnout.subscriptions.stores._sql.SqlStore`."""
        newest = next(iter(self._moments.find().sort("_id", -1).limit(1)), None)
        limit = due_before(self._trusted, self._retention, newest["at"] if newest else None)
        oldest = self._due(limit)
        if oldest is not None:
            self._states.update_one({"_id": "past"}, {"$max": {"remembered": oldest}})
            self._archive.delete_many({"died": {"$lte": oldest}})
            self._moments.delete_many({"_id": {"$lt": oldest}})

    def _due(self, limit: int) -> int | None:
        """Return the last revision that, like its predecessor, dates up to *limit*; None if none."""
        for old in self._moments.find({"at": {"$lte": limit}}).sort("_id", -1):
            before = self._moments.find_one({"_id": old["_id"] - 1})
            if before is None or before["at"] <= limit:
                return int(old["_id"])
        return None

    def _first(self) -> int:
        """Return the first revision that is remembered, which is stored with the first of all."""
        past = self._states.find_one({"_id": "past"})
        assert past is not None
        return int(past["remembered"])

    def revision_at(self, moment: Moment, present: int) -> int:
        """The revision of a moment.

        Raises:
            HistoryForgottenError: nothing is remembered of so far back.
        """
        first = self._first()
        began = self._moments.find_one({"_id": first}) if first else None

        def last_until(at: int) -> int | None:
            before = {"at": {"$lte": at}, "_id": {"$lte": present}}
            last = next(iter(self._moments.find(before).sort("_id", -1).limit(1)), None)
            return None if last is None else int(last["_id"])

        return Span(first, present, began["at"] if began else 0).revision(moment, last_until)

    def at(self, revision: int, ids: JsonMapping | str) -> list[JsonObject]:
        """Return the documents with these ids that existed at a revision and have been deleted since."""
        query = {"id": ids, "born": {"$lte": revision}, "died": {"$gt": revision}}
        return [past["document"] for past in self._archive.find(query)]

    def history(self, id_: str, present: JsonMapping | None, revision: int) -> tuple[AuditEntry, ...]:
        """Return the changes of an id that are remembered.

        Args:
            id_: id of the subscription.
            present: its document; None if it is deleted.
            revision: the current one: archives of later revisions are unfinished and ignored.

        Raises:
            SubscriptionNotFoundError: nothing is remembered of it.
        """
        archive = self._archive.find({"id": id_, "died": {"$lte": revision}})
        versions = [Version(subscription_of(past["document"]), past["born"], past["died"]) for past in archive]
        if present is not None:
            versions.append(Version(subscription_of(present), present["revision"], None))
        if not versions:
            raise SubscriptionNotFoundError(id_)
        first = self._first()
        return audit_entries(versions, first, self._recorded) if self._retention else ()

    def _recorded(self, revision: int) -> RecordedMoment | None:
        moment = self._moments.find_one({"_id": revision})
        return RecordedMoment(moment["at"], moment.get("actor", "")) if moment else None

    def birth(self, revision: int) -> Creation:
        """Return the creation that belongs to a revision."""
        moment = self._moments.find_one({"_id": revision})
        return Creation.of(revision, moment["at"] if moment else None)


_HISTORY = 100_000
"""Tombstones that are kept; a reader that missed more starts again from everything."""

_PRUNE_EVERY = 1_000
"""Deletions between two looks for old ones."""


class Tombstones:
    """Collection of ids with the revisions in which their subscription was born and died.

    Args:
        collection: the tombstones.
        states: the store's own collection of state, which has the revision of the newest pruned one.
        past: the history that the subscriptions themselves go to.
    """

    def __init__(self, collection: Documents, states: Documents, past: MongoPast) -> None:
        self._collection = collection
        self._states = states
        self._past = past
        self._count = 0

    def prepare(self) -> None:
        """Make the index."""
        self._collection.create_index([("died", 1)])

    def add(self, document: JsonMapping, revision: int) -> None:
        """Move a version that ends with a revision to the past. A repetition after an interruption completes it."""
        id_ = document["_id"]
        self._past.archive(document, revision)
        tombstone = _tombstone(document, self._collection.find_one({"_id": id_}), revision)
        self._collection.replace_one({"_id": id_}, tombstone, upsert=True)

    def add_many(self, documents: Sequence[JsonMapping], revision: int) -> None:
        """Move many versions to the past; see `add`."""
        ids = [document["_id"] for document in documents]
        known = {one["_id"]: one for one in self._collection.find({"_id": {"$in": ids}})}
        self._past.archive_many(documents, revision)
        tombstones = [_tombstone(document, known.get(document["_id"]), revision) for document in documents]
        if new := [tombstone for tombstone in tombstones if tombstone["_id"] not in known]:
            self._collection.insert_many(new, ordered=False)
        if again := [tombstone for tombstone in tombstones if tombstone["_id"] in known]:
            self._collection.bulk_write([ReplaceOne({"_id": one["_id"]}, one) for one in again], ordered=False)

    def later_than(self, revision: int) -> JsonObject | None:
        """Return one of a deletion after a revision, if there is one."""
        later: JsonObject | None = self._collection.find_one({"died": {"$gt": revision}})
        return later

    def between(self, since: int, revision: int, ids: dict[str, str]) -> tuple[str, ...]:
        """Return the ids that a reader of the first revision knows, and that are gone at the second."""
        died = {"died": {"$gt": since, "$lte": revision}, "born": {"$lte": since}, "_id": ids}
        return tuple(document["_id"] for document in self._collection.find(died).sort("died", 1))

    def prune(self, added: int) -> None:
        """Delete old tombstones, before the first ones of this process and once for every so many added."""
        before, self._count = self._count, self._count + added
        if before == 0 or before // _PRUNE_EVERY != self._count // _PRUNE_EVERY:
            self._delete_old()
            self._past.forget()

    def _delete_old(self) -> None:
        oldest = next(iter(self._collection.find().sort("died", -1).skip(_HISTORY).limit(1)), None)
        if oldest is not None:
            self._states.update_one({"_id": "state"}, {"$set": {"horizon": oldest["died"]}})
            self._collection.delete_many({"died": {"$lte": oldest["died"]}})


def _tombstone(document: JsonMapping, former: JsonMapping | None, revision: int) -> JsonObject:
    # Reused id: readers of the earlier revision still see the deletion.
    born = min(document["revision"], former["born"]) if former else document["revision"]
    return {"_id": document["_id"], "born": born, "died": revision}


_CHUNK = 1_000
"""Ids of one document of the list, and of one request: an id has at most 321 characters."""

_COMPLETE = "deletion"
_PART = "deletion:"
_END = "deletion;"
"""The first text after all that begin with `_PART`."""


class Deletions:
    """Bulk deletions of a collection.

    Args:
        subscriptions: the collection.
        tombstones: the deletions that `Store.changes` knows.
        states: the store's own collection of state, in which the list is.
        past: the history of the store.
    """

    def __init__(
        self,
        subscriptions: Documents,
        tombstones: Tombstones,
        states: Documents,
        past: MongoPast,
    ) -> None:
        self._subscriptions = subscriptions
        self._tombstones = tombstones
        self._states = states
        self._past = past

    def begin(self, ids: Sequence[str], revision: int) -> None:
        """Check that all subscriptions are there, and write the list of them.

        Raises:
            SubscriptionNotFoundError: one of them does not exist; nothing has changed.
        """
        for chunk in _chunks(ids):
            found = {one["_id"] for one in self._subscriptions.find({"_id": {"$in": chunk}}, {"_id": 1})}
            for id_ in chunk:
                if id_ not in found:
                    raise SubscriptionNotFoundError(id_)
        self._past.drop_uncommitted(revision)
        self._states.insert_many(
            [{"_id": f"{_PART}{number}", "ids": chunk} for number, chunk in enumerate(_chunks(ids))]
        )
        self._states.insert_one({"_id": _COMPLETE, "revision": revision})

    def listed(self) -> Iterator[list[str]]:
        """Yield the ids of the list, a chunk at a time."""
        parts = self._states.find({"_id": {"$gt": _PART, "$lt": _END}})
        yield from (part["ids"] for part in list(parts))

    def remove(self, ids: Sequence[str], revision: int) -> None:
        """Move a chunk to the past at a revision. A repetition after an interruption completes it."""
        documents = list(self._subscriptions.find({"_id": {"$in": ids}}))
        # Those of the revision itself are new versions, which stay.
        old = [one["previous"] if one["revision"] == revision else one for one in documents]
        self._tombstones.add_many(old, revision)
        self._subscriptions.delete_many({"_id": {"$in": ids}, "revision": {"$lt": revision}})

    def begun(self, revision: int) -> int | None:
        """Return the revision of a complete list that is later than the store's; other lists are dropped."""
        # The document that completes a list is the first in the order of ids; most writers find none.
        first = next(iter(self._states.find({"_id": {"$gte": _COMPLETE, "$lt": _END}}).sort("_id", 1).limit(1)), None)
        if first is not None and first["_id"] == _COMPLETE and first["revision"] > revision:
            return int(first["revision"])
        if first is not None:
            # Without this document the others mean nothing, so it is deleted first.
            self._states.delete_one({"_id": _COMPLETE})
            self._states.delete_many({"_id": {"$gt": _PART, "$lt": _END}})
        return None


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _CHUNK):
        yield list(ids[start : start + _CHUNK])


_LEASE_SECONDS = 30.0
"""Seconds of a silent writer's lease, by the server's clock."""

_WAIT_SECONDS = 45.0
"""Seconds that a writer waits for its turn: longer than a dead writer's lease."""

TOO_SLOW = "this writer was away for so long that another one took its turn; nothing was stored"


@dataclass(frozen=True, slots=True)
class Turn:
    """Current writer and its revision."""

    writer: str
    revision: int


class Turns:
    """Document that holds the lease of the writer whose turn it is.

    Args:
        states: the collection that it is in.
        clock: the server's, so that no writer's own clock makes a lease longer or shorter.
    """

    def __init__(self, states: Documents, clock: ServerClock) -> None:
        self._states = states
        self._clock = clock

    def take(self, writer: str) -> None:
        """Wait for the writer's turn, and insert the document: of all operations the one no two can both do.

        Raises:
            StoreUnavailableError: others have had it for too long.
        """
        wait = remaining(_WAIT_SECONDS)
        deadline = time.monotonic() + wait
        pause = 0.002
        while True:
            try:
                self._states.insert_one({"_id": "turn", "writer": writer, "until": self._clock.now() + _LEASE_SECONDS})
            except errors.DuplicateKeyError:
                self._end_expired()
                if time.monotonic() > deadline:
                    raise StoreUnavailableError(f"other writers kept this one waiting for {wait:.3g} s") from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.1)
            else:
                return

    def _end_expired(self) -> None:
        """Remove a lease that is over, and one that reaches further than a lease can: its clock was wrong."""
        now = self._clock.now()
        over = [{"until": {"$lt": now}}, {"until": {"$gt": now + 2 * _LEASE_SECONDS}}]
        self._states.delete_one({"_id": "turn", "$or": over})

    def hold(self, turn: Turn) -> None:
        """Keep the turn for longer.

        Raises:
            StoreUnavailableError: another writer has it by now.
        """
        until = self._clock.now() + _LEASE_SECONDS
        renewal = self._states.update_one({"_id": "turn", "writer": turn.writer}, {"$set": {"until": until}})
        if not renewal.matched_count:
            raise StoreUnavailableError(TOO_SLOW)

    def end(self, writer: str) -> None:
        """Let the next writer have its turn."""
        self._states.delete_one({"_id": "turn", "writer": writer})
