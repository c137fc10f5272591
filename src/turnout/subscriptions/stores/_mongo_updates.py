"""Updates in a MongoDB store without transactions: the new document holds the one that it replaces.

Until the new document's revision is the store's, and for readers of an earlier one, the document under
``previous`` is the subscription. An update whose writer died is ended by the next writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnout.base.untrusted import JsonMapping, JsonObject


class Updates:
    """Replaced documents of a collection.

    Args:
        subscriptions: the collection.
    """

    def __init__(self, subscriptions: Any) -> None:
        self._subscriptions = subscriptions

    def replace(self, old: JsonMapping, new: JsonMapping) -> None:
        """Put a document in the place of another, which it holds."""
        self._subscriptions.replace_one({"_id": old["_id"]}, {**new, "previous": plain(old)})

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
    return {name: value for name, value in document.items() if name != "previous"}
