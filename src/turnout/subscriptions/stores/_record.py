"""Subscription ↔ one JSON text, as stores keep it.

The condition inside is the shape of `turnout.conditions.codec`. What a store reads back it wrote itself, so
reading skips the checks of a decoder for strangers' input: a million rows are read in seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from sys import intern
from typing import Any

from turnout.conditions import Condition, Group, Logic, encode
from turnout.conditions.fields import KINDS
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.settings import settings_from_mapping, settings_to_mapping

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def encode_record(subscription: Subscription, make: Callable[[], str]) -> str:
    """Return the subscription as text, without the id, which the row has; nodes without an id get one."""
    condition = encode(subscription.condition)
    _name_nodes(condition, make)
    parts = [subscription.destinations, condition, dict(subscription.metadata)]
    # Most have none but the defaults, as all of earlier versions.
    settings = settings_to_mapping(subscription)
    return _dumps([*parts, settings] if settings else parts)


def _name_nodes(condition: dict[str, Any], make: Callable[[], str]) -> None:
    # On the plain JSON this costs a fifth of what new frozen nodes would, and they would be thrown away.
    (body,) = condition.values()
    if "id" not in body:
        body["id"] = make()
    if "group" in body:
        for child in body["group"]:
            _name_nodes(child, make)


def decode_record(id: str, record: str, revision: int) -> Subscription:  # noqa: A002 - the field's own name
    """The subscription that `encode_record` was given, with its ids."""
    return _subscription(id, json.loads(record), revision)


def decode_records(rows: Sequence[tuple[str, str, int]]) -> Iterator[Subscription]:
    """Decode rows of id, record and revision like `decode_record`, with one parser for all of them."""
    parsed = json.loads(f"[{','.join(record for _, record, _ in rows)}]")
    for (id_, _, revision), parts in zip(rows, parsed, strict=True):
        yield _subscription(id_, parts, revision)


def _subscription(id_: str, parts: list[Any], revision: int) -> Subscription:
    destinations, condition, metadata, *rest = parts
    settings = settings_from_mapping(rest[0]) if rest else {}
    return Subscription(destinations, _condition(condition), metadata, id_, revision, **settings)


def _condition(data: dict[str, Any]) -> Condition:
    ((name, body),) = data.items()
    if name == "groupCondition":
        return _group(body)
    # Keys are few and patterns repeat: a million subscriptions share them.
    for shared in _SHARED:
        if shared in body:
            body[shared] = intern(body[shared])
    return KINDS[name].read(body.get)


_SHARED = ("key", "pattern")


def _group(body: dict[str, Any]) -> Condition:
    children = tuple(_condition(child) for child in body["group"])
    return Group(_LOGICS[body["logic"]], children, "not" in body, body.get("id", ""))


_LOGICS = {logic.value: logic for logic in Logic}


def id_maker() -> Callable[[], str]:
    """A function that gives random UUIDs (version 4), several times as fast as ``uuid.uuid4``.

    Not promised: to be safe in several threads at once. Make one for each bulk of work.
    """
    return _random_ids().__next__


def _random_ids() -> Iterator[str]:
    while True:
        digits = os.urandom(16 * 256).hex()
        for start in range(0, len(digits), 32):
            d = digits[start : start + 32]
            # RFC 9562, 5.4: the version is 4, and the variant's two bits are 10.
            variant = "89ab"[int(d[16], 16) & 3]
            yield f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{variant}{d[17:20]}-{d[20:]}"
