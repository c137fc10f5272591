"""Stored forms of a subscription: one JSON text for tables, one document for MongoDB."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import unquote

import msgspec

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.conditions import Condition, Group, Kiwi, Logic, decode, encode, leaves
from turnout.conditions.codec import KINDS, kind_of
from turnout.conditions.leaf import FLAG
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions.lines import Node, PlainLine
from turnout.subscriptions.model import Subscription, settings_from_mapping, settings_to_mapping
from turnout.subscriptions.tenants import prefix_end
from turnout.subscriptions.validation import MAX_NESTING

_encode = msgspec.json.Encoder().encode


def encode_record(subscription: Subscription | PlainLine, make: Callable[[], str]) -> str:
    """Return the subscription as text, without the id, which the row has; nodes without an id get one."""
    if type(subscription) is PlainLine:
        return subscription.record(make)
    assert isinstance(subscription, Subscription)
    parts = [subscription.destinations, encode(subscription.condition, make), dict(subscription.metadata)]
    # Most have none but the defaults, as all of earlier versions.
    if settings := settings_to_mapping(subscription):
        parts.append(settings)
    return _encode(parts).decode()


def lookup_rows(
    rows: Sequence[tuple[str, str, int]],
) -> tuple[set[tuple[str, str, bool, str]], list[tuple[str, str, str]]]:
    """Return what records of id, record and revision are looked up by, without making subscriptions of them.

    Returns:
        Key, pattern, partial flag and id of each kiwi leaf; name, value and id of each pair of metadata.
    """
    leaves: set[tuple[str, str, bool, str]] = set()
    pairs: list[tuple[str, str, str]] = []
    for (id_, _, _), read in zip(rows, _looked_up(_joined(rows)), strict=True):
        pairs += [(name, value, id_) for name, value in read.metadata.items()]
        nodes = [read.condition]
        while nodes:
            node = nodes.pop()
            leaf = node.kiwi or node.tree
            if leaf is not None:
                leaves.add((leaf.key, leaf.pattern, leaf.partial, id_))
            elif node.group is not None:
                nodes += node.group.group
    return leaves, pairs


class _Record(msgspec.Struct, array_like=True, gc=False):
    destinations: msgspec.Raw
    condition: Node
    metadata: dict[str, str]


_looked_up = msgspec.json.Decoder(list[_Record]).decode


def decode_record(id: str, record: str, revision: int) -> Subscription:
    """The subscription that `encode_record` was given, with its ids."""
    return next(decode_records([(id, record, revision)]))


def decode_records(rows: Sequence[tuple[str, str, int]]) -> Iterator[Subscription]:
    """Decode rows of id, record and revision like `decode_record`, with one call of the parser for all of them."""
    for (id_, _, revision), parts in zip(rows, msgspec.json.decode(_joined(rows)), strict=True):
        destinations, condition, metadata, *rest = parts
        settings = settings_from_mapping(rest[0]) if rest else {}
        yield Subscription(destinations, decode(condition), metadata, id_, revision, **settings)


def _joined(rows: Sequence[tuple[str, str, int]]) -> str:
    """Return records as one JSON array."""
    return f"[{','.join([record for _, record, _ in rows])}]"


def id_maker() -> Callable[[], str]:
    """A function that gives random UUIDs (version 4), several times as fast as ``uuid.uuid4``.

    Not promised: to be safe in several threads at once. Make one for each bulk of work.
    """
    return _random_ids().__next__


def _random_ids() -> Iterator[str]:
    while True:
        raw = bytearray(os.urandom(16 * 256))
        # RFC 9562, 5.4: the version is 4, and the variant's two bits are 10.
        raw[6::16] = raw[6::16].translate(_VERSION)
        raw[8::16] = raw[8::16].translate(_VARIANT)
        digits = raw.hex()
        for start in range(0, len(digits), 32):
            d = digits[start : start + 32]
            yield f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}"


_VERSION = bytes(0x40 | byte & 0x0F for byte in range(256))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))


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
    condition = _condition_of_tree(route["condition"])
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
    fields: JsonObject = {"id": node.id, "base": {"not": node.negated}, "key": node.key}
    # Of the flags the original has only one, and that always.
    fields |= {name: value for name, value in kind.values(node) if value is not False or name == "partial"}
    return fields | {name: True for name, value in kind.implied.items() if value}


def _condition_of_tree(node: JsonMapping) -> Condition:
    base = node["base"]
    if "group" in node:
        children = tuple(_condition_of_tree(child) for child in node["group"])
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
