"""Cursors of feeds, and the acknowledged ones of named readers: one small file for each.

A cursor is a sequence of a NATS stream, or the offsets of the partitions of a Kafka topic: ``0:17,2:4`` is behind
offset 17 of partition 0 and offset 4 of partition 2, which was read last, and at the beginning of all others. Of
several streams or topics it has their names: ``ORDERS:17,RETURNS:4``, or ``orders:0:17,returns:2:4``. A record can have
several messages, one for each destination: ``17.2`` is behind the second message of record 17, and so is the entry
``2:4.2`` of one cursor.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from turnout.base.files import private_folder, replace_file
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal, is_whole
from turnout.errors import QuotaExceededError, SubscriptionInvalidError
from turnout.subscriptions.tenants import tenant_of

FeedCursor: TypeAlias = "int | str"
"""Cursor as JSON has it: an integer is a sequence, a text has offsets. 0 is the beginning of both."""

MAX_CURSOR: Final = 64 << 10
"""Characters of a cursor."""

_MAX_PART: Final = 1 << 20
"""Messages of one record that a cursor counts."""

MAX_READERS: Final = 100
"""Named readers of one subscription."""

MAX_TENANT_READERS: Final = 1_000
"""Named readers of one tenant's subscriptions on a route."""

MAX_ROUTE_READERS: Final = 10_000
"""Named readers on a route."""

_FORGOTTEN_SECONDS: Final = 30 * 86_400.0
"""A reader that has acknowledged nothing for so long makes room for a new one where the limit is reached."""

_log = logging.getLogger(__name__)
_FOLDER: Final = "feed-readers"
_NAME: Final = re.compile(r"[^\s,]{1,255}")


def cursor_of(text: str) -> FeedCursor | None:
    """Return the cursor that a text has; None if it has none.

    >>> [cursor_of(text) for text in ("1042", "0:17,2:4", "ORDERS:7", "0:17,0:18", "0:-1", "")]
    [1042, '0:17,2:4', 'ORDERS:7', None, None, None]
    """
    sequence = decimal(text, LARGEST_SEQUENCE)
    if sequence is not None:
        return sequence
    record = split_part(text)[0]
    return text if isinstance(record, int) or offsets_in(record) is not None else None


def split_part(cursor: FeedCursor) -> tuple[FeedCursor, tuple[int, int] | None]:
    """Return the cursor at the record in whose middle *cursor* is, with the index of its entry and the messages read.

    >>> split_part("17.2"), split_part("2:4,0:17.1"), split_part("2:4"), split_part("0:1.1,2:1.1")
    ((17, (0, 2)), ('2:4,0:17', (1, 1)), ('2:4', None), ('0:1,2:1.1', (0, 1)))
    """
    entries = cursor.split(",") if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR else []
    for index, entry in enumerate(entries):
        name, colon, offset = entry.rpartition(":")
        record, _, part = offset.partition(".")
        sequence, count = decimal(record, LARGEST_SEQUENCE), decimal(part, _MAX_PART)
        if sequence is None or not count:
            continue
        if not colon:
            return (sequence, (0, count)) if len(entries) == 1 else (cursor, None)
        entries[index] = f"{name}:{sequence}"
        return ",".join(entries), (index, count)
    return cursor, None


def with_part(cursor: FeedCursor, index: int, count: int) -> FeedCursor:
    """Return the cursor behind *count* messages of the record at the entry *index*.

    >>> with_part(17, 0, 2), with_part("2:4,0:17", 1, 1)
    ('17.2', '2:4,0:17.1')
    """
    entries = str(cursor).split(",")
    entries[index] += f".{count}"
    return ",".join(entries)


def cursor_in(name: str, text: str) -> FeedCursor:
    """Return the cursor that a caller gives as the parameter *name*.

    Raises:
        SubscriptionInvalidError: it is none.
    """
    cursor = cursor_of(text)
    if cursor is None:
        raise SubscriptionInvalidError(f"{name}: expected the cursor of a message, found {text!r:.80}")
    return cursor


def offsets_in(cursor: FeedCursor) -> dict[str, int] | None:
    """Return the offsets of a cursor by partition or stream, in its order; None if it has none.

    >>> offsets_in("2:4,0:17"), offsets_in("ORDERS:17"), offsets_in(0), offsets_in(1042)
    ({'2': 4, '0': 17}, {'ORDERS': 17}, {}, None)
    """
    if not isinstance(cursor, str):
        return None if cursor else {}
    if len(cursor) > MAX_CURSOR:
        return None
    offsets: dict[str, int] = {}
    for part in cursor.split(","):
        name, _, offset = part.rpartition(":")
        at = decimal(offset, LARGEST_SEQUENCE)
        if at is None or name in offsets or not _NAME.fullmatch(name):
            return None
        offsets[name] = at
    return offsets


def cursor_at(offsets: Mapping[str, int]) -> FeedCursor:
    """Return the cursor with these offsets by partition or stream, in their order.

    >>> cursor_at({"2": 4, "0": 17}), cursor_at({})
    ('2:4,0:17', 0)
    """
    return ",".join(f"{name}:{offset}" for name, offset in offsets.items()) or 0


def cursor_among(offsets: Mapping[str, int], only: str | None) -> FeedCursor:
    """Return the cursor at positions in streams or partitions, without the name of the *only* stream or topic.

    >>> cursor_among({"ORDERS": 17}, "ORDERS"), cursor_among({"orders:0": 17}, "orders"), cursor_among({"A": 1}, None)
    (17, '0:17', 'A:1')
    """
    if only is None:
        return cursor_at(offsets)
    if only in offsets:
        return offsets[only]
    return cursor_at({name.removeprefix(f"{only}:"): offset for name, offset in offsets.items()})


class FeedCursors:
    """Cursors beside a checkpoint. An acknowledgement only moves a cursor forward.

    Args:
        checkpoint: the folder, on this machine.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _FOLDER

    def read(
        self, subscription_id: str, reader: str, identities: Mapping[str, str] = MappingProxyType({})
    ) -> FeedCursor | None:
        """Return the acknowledged cursor of a reader; None if it has acknowledged nothing.

        Args:
            subscription_id: id of the subscription.
            reader: name of the reader.
            identities: what distinguishes the present streams or topics from others of their names. Of another one
                than was acknowledged the reader gets everything, and a warning says so.
        """
        name = _name(subscription_id, reader)
        for file in (self._folder / name, self._folder / _old_name(name)):
            try:
                written = json.loads(file.read_text(encoding="utf-8"))
                cursor = written["sequence"] if "sequence" in written else written["offsets"]
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError):
                return None
            known = cursor_of(cursor) if isinstance(cursor, str) else cursor if is_whole(cursor) else None
            return None if known is None else _present(known, written.get("identities"), identities, written)
        return None

    def acknowledge(
        self,
        subscription_id: str,
        reader: str,
        cursor: FeedCursor,
        identities: Mapping[str, str] = MappingProxyType({}),
        known: FeedCursor | None = None,
    ) -> FeedCursor:
        """Record that a reader has everything up to a cursor, and return its cursor.

        Args:
            subscription_id: id of the subscription.
            reader: name of the reader.
            cursor: cursor that it has reached.
            identities: as of `read`.
            known: cursor that it had before; the recorded one if not given.

        Raises:
            OSError: it cannot be written.
            QuotaExceededError: a new reader would be one too many, of the subscription, its tenant or the route.
        """
        if known is None:
            known = self.read(subscription_id, reader, identities) or 0
        latest = _latest(known, cursor)
        if latest != known:
            private_folder(self._folder)
            name = _name(subscription_id, reader)
            old = self._folder / _old_name(name)
            if not known:
                self._make_room(subscription_id, name)
            kind = "sequence" if isinstance(latest, int) else "offsets"
            about: JsonObject = {"subscription": subscription_id, "reader": reader, kind: latest}
            if identities:
                about["identities"] = dict(identities)
            replace_file(self._folder / name, json.dumps(about))
            old.unlink(missing_ok=True)
        return latest

    def _make_room(self, subscription_id: str, name: str) -> None:
        """Check that a new reader does not exceed a limit; where it does, readers that were forgotten make room.

        Raises:
            QuotaExceededError: none was.
        """
        with os.scandir(self._folder) as entries:
            files = [entry.name for entry in entries if entry.name.endswith(".json")]
        if name in files:
            return
        tenant, of_subscription, _ = name.split("-")
        limits = [
            ("named readers of a subscription", MAX_READERS, f"{tenant}-{of_subscription}-"),
            ("named readers on a route", MAX_ROUTE_READERS, ""),
        ]
        if tenant_of(subscription_id):
            limits.insert(1, ("named readers of a tenant on a route", MAX_TENANT_READERS, f"{tenant}-"))
        for what, limit, prefix in limits:
            own = [file for file in files if file.startswith(prefix)]
            if len(own) >= limit:
                removed = self._forget(own)
                if not removed:
                    raise QuotaExceededError(what, limit, len(own) + 1)
                files = [file for file in files if file not in removed]

    def _forget(self, files: list[str]) -> set[str]:
        """Remove the readers that have acknowledged nothing for long; they begin again if they come back."""
        removed: set[str] = set()
        for name in files:
            file = self._folder / name
            try:
                if time.time() - file.stat().st_mtime < _FORGOTTEN_SECONDS:
                    continue
                about = file.read_text(encoding="utf-8")
                file.unlink()
            except FileNotFoundError:
                about = "removed by another process"
            _log.warning("a feed's reader is forgotten, as it has acknowledged nothing for 30 days: %.500s", about)
            removed.add(name)
        return removed


def _present(cursor: FeedCursor, former: object, identities: Mapping[str, str], about: JsonObject) -> FeedCursor | None:
    """Return a recorded cursor without its positions in streams that were made anew since; None if nothing is left."""
    names = former if isinstance(former, dict) else {}
    replaced = {name for name, identity in names.items() if identities.get(name, identity) != identity}
    if not replaced:
        return cursor
    text = "reader %r of a feed of %s begins again in %s, which was made anew since it acknowledged %s"
    _log.warning(text, about.get("reader"), about.get("subscription"), ", ".join(sorted(replaced)), cursor)
    if isinstance(cursor, int) or cursor.rpartition(":")[0] == "":
        return None
    # A partition without a name is of the only topic.
    by_name = {entry: entry.rpartition(":")[0] for entry in cursor.split(",")}
    kept = [
        entry for entry, name in by_name.items() if not (name.isdigit() or replaced & {name, name.rpartition(":")[0]})
    ]
    return ",".join(kept) or None


def _name(subscription_id: str, reader: str) -> str:
    """Return the file name of a reader, which begins with those of its tenant and its subscription."""
    parts = tenant_of(subscription_id), subscription_id, json.dumps([subscription_id, reader])
    digests = [hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest() for part in parts]
    return f"{digests[0][:8]}-{digests[1][:16]}-{digests[2][:32]}.json"


def _old_name(name: str) -> str:
    """Return the file name that earlier releases gave a reader."""
    return name.rpartition("-")[2]


def _latest(known: FeedCursor, new: FeedCursor) -> FeedCursor:
    """Return the cursor behind both; of different kinds the new one."""
    before, after = _positions(known), _positions(new)
    if before and after and ("" in before) != ("" in after):
        return new
    forward = {name: position for name, position in after.items() if position > before.get(name, (-1, 0))}
    if not forward:
        return known
    positions = {name: position for name, position in before.items() if name not in forward} | forward
    if "" in positions:
        return new
    return ",".join(f"{name}:{at + 1}.{part}" if part else f"{name}:{at}" for name, (at, part) in positions.items())


def _positions(cursor: FeedCursor) -> dict[str, tuple[int, int]]:
    """Return by stream the last position that is read, and the messages of the next record that are; "" of only one."""
    record, part = split_part(cursor)
    offsets = {"": record} if isinstance(record, int) else offsets_in(record) or {}
    positions = {name: (at, 0) for name, at in offsets.items() if cursor != 0}
    if part is not None:
        name = list(positions)[part[0]]
        positions[name] = (offsets[name] - 1, part[1])
    return positions
