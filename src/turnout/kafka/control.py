"""Notes of finished splits in a compacted control topic, written in the transactions that hold their messages.

A note has the key of a task's slot in its query, and replaces the one of the micro-batch before. The state that was
committed under a slot's transactional id is in the topic before the next producer with that id begins its transaction,
so that a repeated split sees it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnout.base.caches import LruCache
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import partition_of
from turnout.kafka.reader import PartitionRange, RangeReader

PARTITIONS: Final = 8
CONFIG: Final = {
    "cleanup.policy": "compact",
    # Notes of the same slots follow each other: without small segments they would pile up for a week.
    "segment.ms": "600000",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Settings with which the topic is created, if it is not there."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Task of a micro-batch: the same for every attempt at it.

    Attributes:
        query: id of the streaming query, which is that of its checkpoint.
        batch: number of the micro-batch.
        number: index of the task's split in it.
        part: part of a replay and its splits; "" in a streaming query.
    """

    query: str
    batch: int
    number: int
    part: str = ""

    @property
    def key(self) -> str:
        """Key of the slot's notes, and its producers' transactional id."""
        return f"turnout.{self.query}.{self.number}"


@dataclass(frozen=True, slots=True)
class Note:
    """Note that a split is done.

    Attributes:
        batch: number of its micro-batch.
        split: the split, as text.
        counts: counts of its records.
    """

    batch: int
    split: str
    counts: Mapping[str, object]

    def encode(self) -> bytes:
        """Return the note as the value of a record."""
        return json.dumps({"batch": self.batch, "split": self.split, "counts": self.counts}).encode()

    @classmethod
    def decode(cls, text: bytes) -> Note:
        """Inverse of `encode`.

        Raises:
            StreamError: it is no note.
        """
        try:
            written = json.loads(text)
            return cls(int(written["batch"]), str(written["split"]), dict(written["counts"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise StreamError(f"the control topic has a record that is no note of turnout's: {text[:80]!r}") from None


@dataclass(slots=True)
class _Read:
    """Known part of a control topic's partition: id of the topic, next offset, and the newest value of each key."""

    id: str | None
    next: int
    values: dict[bytes, bytes]


_cached_reads = LruCache[tuple[tuple[str, ...], str, int], _Read](64)
"""A worker reads a partition once, and later only new records."""


def find_note(options: KafkaOptions, topic: str, slot: Slot, split: str) -> Note | None:
    """Return the note that a slot's split is done in its micro-batch; None if it is not.

    To be called after the slot's producer has begun its transaction.

    Args:
        options: options of the client.
        topic: control topic.
        slot: slot of the note.
        split: current split of the slot.

    Raises:
        StreamError: the notes say that the checkpoint is an older one, or that the slot had another split.
        ConnectionLostError: no broker answers.
    """
    text = _newest(options, topic, slot.key.encode())
    note = None if text is None else Note.decode(text)
    if note is None or note.batch < slot.batch:
        return None
    if slot.part and (note.batch, note.split) != (slot.batch, split):
        raise StreamError(
            f"part {slot.batch} of this replay is to be done, and {topic!r} says that part {note.batch}, {note.split},"
            " is committed under its id: its state is lost or older, so give the replay another id"
        )
    if note.batch > slot.batch:
        raise StreamError(
            f"micro-batch {slot.batch} is to be done, and {topic!r} says that {note.batch} is committed: the checkpoint"
            " was set back, as from a backup; begin with a new one"
        )
    if note.split != split:
        raise StreamError(
            f"micro-batch {slot.batch} was planned otherwise before: {topic!r} says that {note.split} is committed, and"
            f" now it is {split}"
        )
    return note


def _newest(options: KafkaOptions, topic: str, key: bytes) -> bytes | None:
    with KafkaAdmin(options) as admin:
        info = admin.describe([topic])[topic]
        number = partition_of(key, len(info.partitions))
        uncommitted = KafkaOptions(options.servers, {**options.properties, "isolation.level": "read_uncommitted"})
        with KafkaAdmin(uncommitted) as seeing:
            ends = seeing.ends([(topic, number)])[topic, number]
    read = _cached_reads.get_or_add((options.servers, topic, number), lambda: _Read(info.id, ends.first, {}))
    if read.id != info.id or read.next > ends.next:
        read.id, read.next, read.values = info.id, ends.first, {}
    committed = KafkaOptions(options.servers, {**options.properties, "isolation.level": "read_committed"})
    # Transactions of others that are open below this end are waited for.
    span = PartitionRange(topic, number, max(read.next, ends.first), ends.next)
    for batch in RangeReader(committed, span).batches():
        for name, text in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            if name is not None and text is not None:
                read.values[name] = text
    read.next = ends.next
    return read.values.get(key)
