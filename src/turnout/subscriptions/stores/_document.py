"""Subscription ↔ the document that MongoDB keeps: the original's shape (5.2.1), and what we look things up by.

``route.condition`` is a tree of ``{base: {id, not}, logic, group}`` over ``{id, base: {not}, key, pattern,
partial}``. Leaves of other kinds have ``op`` and ``number``, ``network``, or none of these (the key exists).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import singledispatch
from typing import Any
from urllib.parse import unquote

from turnout.conditions import Cidr, Compare, Condition, Exists, Group, Kiwi, Logic, leaves
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.rules import MAX_NESTING

__all__ = ["document_of", "leaf_id_of", "leaf_token", "pair_token", "subscription_of"]

_SPECIAL = str.maketrans({special: f"%{ord(special):02X}" for special in "%.$\0"})
"""Characters that mean something in the name of a field."""


def document_of(subscription: Subscription, revision: int) -> dict[str, Any]:
    """The document of a subscription that has its ids.

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
        "leaves": sorted({leaf_token(*kiwi) for kiwi in _kiwis(condition)}),
        "pairs": sorted(pair_token(*pair) for pair in metadata.items()),
    }


def subscription_of(document: Mapping[str, Any]) -> Subscription:
    """The subscription of a document."""
    route = document["route"]
    metadata = {unquote(name): value for name, value in document["metadata"].items()}
    return Subscription(route["destinations"], _condition(route["condition"]), metadata, document["_id"])


def leaf_token(key: str, pattern: str, partial: bool) -> str:
    """What a leaf is looked up by: one text, because an index over an array of them is exact."""
    return json.dumps([key, pattern, partial], ensure_ascii=False)


def pair_token(name: str, value: str) -> str:
    """What a pair of the metadata is looked up by."""
    return json.dumps([name, value], ensure_ascii=False)


def _kiwis(condition: Condition) -> list[tuple[str, str, bool]]:
    return [(leaf.key, leaf.pattern, leaf.partial) for leaf in leaves(condition) if isinstance(leaf, Kiwi)]


@singledispatch
def _tree(node: Condition) -> dict[str, Any]:
    raise TypeError(f"not a condition: {node!r}")


@_tree.register
def _(node: Group) -> dict[str, Any]:
    children = [_tree(child) for child in node.children]
    return {"base": {"id": node.id, "not": node.negated}, "logic": node.logic.value, "group": children}


def _leaf(node: Kiwi | Compare | Exists | Cidr, **fields: Any) -> dict[str, Any]:
    return {"id": node.id, "base": {"not": node.negated}, "key": node.key, **fields}


@_tree.register
def _(node: Kiwi) -> dict[str, Any]:
    ours = {name: True for name, said in (("ignoreCase", node.ignore_case), ("tree", node.tree)) if said}
    return _leaf(node, pattern=node.pattern, partial=node.partial, **ours)


@_tree.register
def _(node: Compare) -> dict[str, Any]:
    return _leaf(node, op=node.op.value, number=node.number)


@_tree.register
def _(node: Exists) -> dict[str, Any]:
    return _leaf(node)


@_tree.register
def _(node: Cidr) -> dict[str, Any]:
    return _leaf(node, network=node.network)


def _condition(node: Mapping[str, Any]) -> Condition:
    negated = node["base"]["not"]
    if "group" in node:
        children = tuple(_condition(child) for child in node["group"])
        return Group(Logic(node["logic"]), children, negated, node["base"]["id"])
    key, id_ = node["key"], node["id"]
    if "pattern" in node:
        ours = {"ignore_case": node.get("ignoreCase", False), "tree": node.get("tree", False)}
        return Kiwi(key, node["pattern"], node["partial"], negated=negated, id=id_, **ours)
    if "op" in node:
        return Compare(key, node["op"], node["number"], negated, id_)
    if "network" in node:
        return Cidr(key, node["network"], negated, id_)
    return Exists(key, negated, id_)


def leaf_id_of(subscription: Subscription, wanted: tuple[str, str, bool]) -> str:
    """The id of the first leaf with this key, pattern and partial flag."""
    return next(
        leaf.id
        for leaf in leaves(subscription.condition)
        if isinstance(leaf, Kiwi) and (leaf.key, leaf.pattern, leaf.partial) == wanted
    )
