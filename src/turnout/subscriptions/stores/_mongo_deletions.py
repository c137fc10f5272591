"""Deletion of many documents in a MongoDB store without transactions: the ids are stored before the first deletion.

From the moment when the list is complete, the deletion happens: if its writer dies, the next one ends it. A list that
was not completed is dropped, and nothing has been deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from turnout.errors import SubscriptionNotFoundError
from turnout.subscriptions.stores._mongo_past import MongoPast
from turnout.subscriptions.stores._mongo_tombstones import Tombstones

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

    def __init__(self, subscriptions: Any, tombstones: Tombstones, states: Any, past: MongoPast) -> None:
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
        self._tombstones.add_many(documents, revision)
        self._subscriptions.delete_many({"_id": {"$in": ids}})

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
