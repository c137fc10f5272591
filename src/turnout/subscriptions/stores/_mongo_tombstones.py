"""Tombstones of a MongoDB store: the deletions and replacements that readers of changes have to learn of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.subscriptions.stores._mongo_driver import ReplaceOne
from turnout.subscriptions.stores._mongo_past import MongoPast

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

    def __init__(self, collection: Any, states: Any, past: MongoPast) -> None:
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
