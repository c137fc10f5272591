"""What a MongoDB store remembers of subscriptions that are gone, and of when its revisions were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.subscriptions.past import Birth, Moment, Span, microseconds, now

__all__ = ["MongoPast"]


class MongoPast:
    """Two collections beside a store's own: documents that are gone, and the time of each revision.

    Args:
        gone: the collection of documents that are gone.
        moments: the collection of times.
        states: the store's own collection of state.
        retention: for how many seconds what is gone is remembered.
    """

    def __init__(self, gone: Any, moments: Any, states: Any, retention: float) -> None:
        self._gone = gone
        self._moments = moments
        self._states = states
        self._retention = retention

    def prepare(self, revision: int) -> None:
        """Make the indexes, and begin the history of a store that has none."""
        self._gone.create_index([("died", 1)])
        self._gone.create_index([("id", 1)])
        begun = self._states.update_one(
            {"_id": "past"}, {"$setOnInsert": {"_id": "past", "remembered": revision}}, upsert=True
        )
        if begun.upserted_id is not None:
            self.note_time(revision)

    def note_time(self, revision: int) -> None:
        """Write down when a revision is; a clock that was set back does not make it older than the one before."""
        before = self._moments.find_one({"_id": revision - 1})
        at = max(now(), before["at"] if before else 0)
        self._moments.replace_one({"_id": revision}, {"_id": revision, "at": at}, upsert=True)

    def bury(self, document: Mapping[str, Any], died: int) -> None:
        """Remember a document that is going. One that a dead writer has left under this revision is overwritten."""
        if self._retention:
            key = f"{died}"
            archived = {"_id": key, "id": document["_id"], "died": died, "born": document["revision"]}
            self._gone.replace_one({"_id": key}, {**archived, "document": dict(document)}, upsert=True)

    def forget(self) -> None:
        """Drop what is older than the retention."""
        limit = now() - int(min(self._retention, 1e9) * 1_000_000)
        oldest = next(iter(self._moments.find({"at": {"$lte": limit}}).sort("_id", -1).limit(1)), None)
        if oldest is not None:
            self._states.update_one({"_id": "past"}, {"$max": {"remembered": oldest["_id"]}})
            self._gone.delete_many({"died": {"$lte": oldest["_id"]}})
            self._moments.delete_many({"_id": {"$lt": oldest["_id"]}})

    def revision_at(self, moment: Moment, present: int) -> int:
        """The revision of a moment.

        Raises:
            HistoryForgottenError: nothing is remembered of so far back.
        """
        first = self._states.find_one({"_id": "past"})["remembered"]
        began = self._moments.find_one({"_id": first}) if first else None
        Span(first, present, began["at"] if began else 0).check(moment)
        if isinstance(moment, int):
            return moment
        before = {"at": {"$lte": microseconds(moment)}, "_id": {"$lte": present}}
        last = next(iter(self._moments.find(before).sort("_id", -1).limit(1)), None)
        return last["_id"] if last else 0

    def at(self, revision: int, ids: Mapping[str, Any] | str) -> list[dict[str, Any]]:
        """The documents of some ids that were there at a revision and are gone."""
        query = {"id": ids, "born": {"$lte": revision}, "died": {"$gt": revision}}
        return [past["document"] for past in self._gone.find(query)]

    def birth(self, revision: int) -> Birth:
        """When something came to be with a revision."""
        moment = self._moments.find_one({"_id": revision})
        return Birth.of(revision, moment["at"] if moment else None)
