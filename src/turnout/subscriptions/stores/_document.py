"""Mapping of subscriptions to MongoDB documents: the original's shape (5.2.1), and fields for look-ups.

``route.condition`` is a tree of ``{base: {id, not}, logic, group}`` over ``{id, base: {not}, key, pattern,
partial}``. Leaves of other kinds have their own fields, as ``op`` and ``number``, or none (the key exists).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import unquote

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.conditions import Condition, Group, Kiwi, Logic, leaves
from turnout.conditions.fields import KINDS, kind_of
from turnout.conditions.leaf import FLAG
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.settings import settings_from_mapping, settings_to_mapping
from turnout.subscriptions.tenants import prefix_end
from turnout.subscriptions.validation import MAX_NESTING

_SPECIAL = str.maketrans({special: f"%{ord(special):02X}" for special in "%.$\0"})
"""Characters that mean something in the name of a field."""


def document_of(subscription: Subscription, revision: int) -> JsonObject:
    """Return the document of a subscription that has its ids.

    Raises:
        SubscriptionInvalidError: its groups nest deeper than a document can.
    """
    condition = subscription.condition
    if isinstance(condition, Group) and condition.depth > MAX_NESTING:
        raise SubscriptionInvalidError(f"groups nest {condition.depth} deep, MongoDB takes {MAX_NESTING}")
    metadata = dict(subscription.metadata)
    return {
        "_id": subscription.id,
        "revision": revision,
        "metadata": {name.translate(_SPECIAL): value for name, value in metadata.items()},
        "route": {"destinations": list(subscription.destinations), "condition": _tree(condition)},
        "leaves": sorted({leaf_token(*kiwi) for kiwi in kiwis_of(condition)}),
        "pairs": sorted(pair_token(*pair) for pair in metadata.items()),
        **settings_to_mapping(subscription),
    }


def subscription_of(document: JsonMapping) -> Subscription:
    """The subscription of a document."""
    route = document["route"]
    metadata = {unquote(name): value for name, value in document["metadata"].items()}
    condition = _condition(route["condition"])
    settings = settings_from_mapping(document)
    return Subscription(route["destinations"], condition, metadata, document["_id"], document["revision"], **settings)


def leaf_token(key: str, pattern: str, partial: bool) -> str:
    """Return the lookup token of a leaf: one text, because an index over an array of texts is exact."""
    return json.dumps([key, pattern, partial], ensure_ascii=False)


def pair_token(name: str, value: str) -> str:
    """Return the lookup token of a metadata pair."""
    return json.dumps([name, value], ensure_ascii=False)


def kiwis_of(condition: Condition) -> list[tuple[str, str, bool]]:
    """Return key, pattern and partial flag of each kiwi leaf."""
    return [(leaf.key, leaf.pattern, leaf.partial) for leaf in leaves(condition) if isinstance(leaf, Kiwi)]


def _tree(node: Condition) -> JsonObject:
    if isinstance(node, Group):
        children = [_tree(child) for child in node.children]
        return {"base": {"id": node.id, "not": node.negated}, "logic": node.logic.value, "group": children}
    kind = kind_of(node)
    fields = {"id": node.id, "base": {"not": node.negated}, "key": node.key}
    # Of the flags the original has only one, and that always.
    fields |= {name: value for name, value in kind.values(node) if value is not False or name == "partial"}
    return fields | {name: True for name, value in kind.implied.items() if value}


def _condition(node: JsonMapping) -> Condition:
    base = node["base"]
    if "group" in node:
        children = tuple(_condition(child) for child in node["group"])
        return Group(Logic(node["logic"]), children, base["not"], base["id"])
    kind = next(kind for names, kind in _BY_FIELDS if all(name in node for name in names))
    return kind.read({**node, **base}.get)


_BY_FIELDS = sorted(
    ((tuple(field.name for field in kind.fields if field.types != FLAG), kind) for kind in KINDS.values()),
    key=lambda row: -len(row[0]),
)
"""The fields of a kind that are no flags say which it is, the most fields first: only that the key exists has none."""


def leaf_id_of(subscription: Subscription, pattern_key: tuple[str, str, bool]) -> str:
    """The id of the first leaf with this key, pattern and partial flag."""
    return next(
        leaf.id
        for leaf in leaves(subscription.condition)
        if isinstance(leaf, Kiwi) and (leaf.key, leaf.pattern, leaf.partial) == pattern_key
    )


def id_range(cursor: str, prefix: str) -> dict[str, str]:
    """Return the query for the ids after the cursor that begin with the prefix."""
    after = {"$gt": max(cursor, prefix)}
    return {**after, "$lt": prefix_end(prefix)} if prefix else after


def sorted_subscriptions(first: Iterable[JsonMapping], over: Iterable[JsonMapping]) -> list[Subscription]:
    """Return the subscriptions of documents in the order of ids; of two with one id, that of *over*."""
    documents = {document["_id"]: document for document in (*first, *over)}
    return [subscription_of(documents[id_]) for id_ in sorted(documents)]
