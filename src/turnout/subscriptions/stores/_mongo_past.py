"""History of a MongoDB store: deleted subscriptions, and the times of revisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnout.base.clocks import TrustedClock
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import SubscriptionNotFoundError
from turnout.subscriptions.actor import current_actor
from turnout.subscriptions.audit import AuditEntry, RecordedMoment, Version, audit_entries
from turnout.subscriptions.past import Creation, Moment, Span, due_before
from turnout.subscriptions.stores._document import subscription_of
from turnout.subscriptions.stores._mongo_clock import ServerClock
from turnout.subscriptions.stores._mongo_updates import plain


class MongoPast:
    """Two collections next to a store's own: deleted documents, and the time of each revision.

    Args:
        archive: the collection of deleted documents.
        moments: the collection of times.
        states: the store's own collection of state.
        retention: for how many seconds deleted documents are kept.
        clock: the server's, as writers on many machines share the collections.
    """

    def __init__(self, archive: Any, moments: Any, states: Any, retention: float, clock: ServerClock) -> None:
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
        """Drop everything older than the retention; see `turnout.subscriptions.stores._sqlite_past.forget`."""
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

    def revision_at(self, moment: Moment, present: int) -> int:
        """The revision of a moment.

        Raises:
            HistoryForgottenError: nothing is remembered of so far back.
        """
        first = self._states.find_one({"_id": "past"})["remembered"]
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
        first = self._states.find_one({"_id": "past"})["remembered"]
        return audit_entries(versions, first, self._recorded) if self._retention else ()

    def _recorded(self, revision: int) -> RecordedMoment | None:
        moment = self._moments.find_one({"_id": revision})
        return RecordedMoment(moment["at"], moment.get("actor", "")) if moment else None

    def birth(self, revision: int) -> Creation:
        """Return the creation that belongs to a revision."""
        moment = self._moments.find_one({"_id": revision})
        return Creation.of(revision, moment["at"] if moment else None)
