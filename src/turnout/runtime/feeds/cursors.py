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
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from turnout.errors import SubscriptionInvalidError
from turnout.files import replace_file
from turnout.private_files import private_folder
from turnout.untrusted import LARGEST_SEQUENCE, decimal, is_whole

FeedCursor: TypeAlias = "int | str"
"""Cursor as JSON has it: an integer is a sequence, a text has offsets. 0 is the beginning of both."""

MAX_CURSOR: Final = 64 << 10
"""Characters of a cursor."""

_MAX_PART: Final = 1 << 20
"""Messages of one record that a cursor counts."""

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

    def read(self, subscription_id: str, reader: str) -> FeedCursor | None:
        """Return the acknowledged cursor of a reader; None if it has acknowledged nothing."""
        try:
            written = json.loads(self._file(subscription_id, reader).read_text(encoding="utf-8"))
            cursor = written["sequence"] if "sequence" in written else written["offsets"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        if isinstance(cursor, str):
            return cursor_of(cursor)
        return cursor if is_whole(cursor) else None

    def acknowledge(self, subscription_id: str, reader: str, cursor: FeedCursor) -> FeedCursor:
        """Record that a reader has everything up to a cursor, and return its cursor.

        Raises:
            OSError: it cannot be written.
        """
        known = self.read(subscription_id, reader) or 0
        latest = _latest(known, cursor)
        if latest != known:
            private_folder(self._folder)
            name = "sequence" if isinstance(latest, int) else "offsets"
            about = {"subscription": subscription_id, "reader": reader, name: latest}
            replace_file(self._file(subscription_id, reader), json.dumps(about))
        return latest

    def _file(self, subscription_id: str, reader: str) -> Path:
        digest = hashlib.sha256(json.dumps([subscription_id, reader]).encode()).hexdigest()
        return self._folder / f"{digest[:32]}.json"


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
