"""Records of Kafka topics that are read again: of a range, of dead letters and their originals, and of feeds."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from turnout.base.startup import pc
from turnout.base.untrusted import JsonMapping, JsonObject, is_whole
from turnout.engine.sample_records import SampleRecord
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.kafka.admin import KafkaAdmin, TopicPartition
from turnout.kafka.group import OffsetReader
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader, record_batch
from turnout.nats.wire.streams import position_of
from turnout.records.types import Fields
from turnout.routes.endpoints import KafkaSource
from turnout.routes.values import listed
from turnout.runtime.cursors import cursor_among, offsets_in
from turnout.runtime.endpoints import (
    NewLetter,
    RecordKey,
    StreamEnd,
    by_stream,
    in_order,
    record_of,
    rows_of,
    wrong_cursor,
)
from turnout.runtime.kafka.source import partitions_of

if TYPE_CHECKING:
    from turnout.nats.wire.streams import StreamPosition
    from turnout.records.types import ArrowBatch
    from turnout.runtime.cursors import FeedCursor
    from turnout.runtime.offsets import Offsets


_WAIT_SECONDS: Final = 0.5
_NOT_FOUND: Final = 404


class KafkaHistory:
    """Reading of partitions, each named ``topic:partition``.

    Args:
        admin: an open connection.
        client: options of the consumers.
        topics: topics to read, which exist.

    Attributes:
        topic_ids: id of each topic; None for brokers that give none.

    Raises:
        StreamError: a topic does not exist.
        ConnectionLostError: no broker answers.
    """

    def __init__(self, admin: KafkaAdmin, client: KafkaOptions, topics: Sequence[str]) -> None:
        self._admin = admin
        self._client = client
        infos = admin.describe(topics)
        self._partitions = partitions_of(infos)
        self.topic_ids = {name: info.id for name, info in infos.items()}

    @property
    def streams(self) -> Sequence[str]:
        """The partitions, in order."""
        return tuple(f"{topic}:{number}" for topic, number in self._partitions)

    def bounds(self, stream: str) -> StreamEnd:
        """Return the bounds of a partition now."""
        partition = self._partition(stream)
        end = self._admin.ends([partition])[partition]
        return StreamEnd(end.first, end.next)

    def resolve(self, stream: str, position: StreamPosition) -> int:
        """Return the offset in a partition that a place means now."""
        if isinstance(position, datetime):
            partition = self._partition(stream)
            return self._admin.offsets_at([partition], int(position.timestamp() * 1000))[partition]
        if isinstance(position, str):
            return self.bounds(stream).first if position == "earliest" else self.bounds(stream).next
        if isinstance(position, int):
            raise ConfigError([no_single_offset("place", position)], what="bad range")
        if stream not in position:
            problem = f"has no offset for {stream}: the partitions are {', '.join(self.streams)}"
            raise ConfigError([Mistake("place", problem)], what="bad range")
        return position[stream]

    def read(self, stream: str, start: int, end: int) -> Iterator[ArrowBatch]:
        """Yield the records of a range; removed ones are left out."""
        span = PartitionRange(*self._partition(stream), start, end)
        yield from RangeReader(self._client, span, fail_on_data_loss=False).batches()

    def record_at(self, stream: str, offset: int) -> ArrowBatch:
        """Return the record at an offset.

        Raises:
            StreamError: there is none, with the reason if known.
        """
        bounds = self.bounds(stream)
        if not bounds.first <= offset < bounds.next:
            held_text = "is empty" if bounds.first == bounds.next else f"has {bounds.first:,} to {bounds.next - 1:,}"
            raise StreamError(f"there is no record {stream}:{offset}: the partition {held_text}", code=_NOT_FOUND)
        found = next(self.read(stream, offset, offset + 1), None)
        if found is None:
            reasons = "it was compacted away, or is a mark of a transaction or in one that was aborted"
            raise StreamError(f"there is no record {stream}:{offset}: {reasons}", code=_NOT_FOUND)
        return found

    def count(self, stream: str, start: int, end: int, filters: Sequence[str]) -> int:  # noqa: ARG002 - NATS has them
        """Return the number of offsets, as brokers do not count: compaction and transactions leave some without."""
        return max(0, end - start)

    def wait(self, positions: Mapping[str, int], stop: Event) -> None:  # noqa: ARG002 - would be a read from the brokers
        """Wait for a moment."""
        stop.wait(_WAIT_SECONDS)

    def _partition(self, stream: str) -> TopicPartition:
        topic, _, number = stream.rpartition(":")
        partition = (topic, int(number))
        if partition not in self._partitions:
            raise StreamError(f"there is no partition {stream}: there are {', '.join(self.streams)}", code=_NOT_FOUND)
        return partition


def hasty(client: KafkaOptions, seconds: float) -> KafkaOptions:
    """Return the options with short timeouts, as a caller waits for the answer."""
    return replace(client, timeout=seconds, patience=max(seconds, 10.0))


def no_single_offset(name: str, offset: int) -> Mistake:
    """Return the mistake of a bare number as a place."""
    problem = f"{offset} is no place in Kafka, where each partition has offsets of its own"
    return Mistake(name, f'{problem}: give a time, or {{"topic:partition": offset}}')


def offsets_by_topic(position: JsonMapping) -> JsonObject:
    """Return offsets by ``topic:partition`` as offsets by topic and partition; others stay as they are.

    >>> offsets_by_topic({"orders:0": 17, "orders:1": 4})
    {'orders': {'0': 17, '1': 4}}
    """
    grouped: JsonObject = {}
    for name, value in position.items():
        topic, colon, number = name.rpartition(":")
        if colon and is_whole(value, -2):
            grouped.setdefault(topic, {})[number] = value
        else:
            grouped[name] = value
    return grouped


@dataclass(frozen=True, slots=True)
class KafkaLetters:
    """Dead letters in one topic; see `turnout.runtime.endpoints.SinkLetters`."""

    client: KafkaOptions
    stream: str

    keeps_keys: ClassVar[bool] = True
    deletion_problem: ClassVar[str | None] = (
        "Kafka deletes no single records; without it, a note says which letters are delivered"
    )

    def stream_of(self, row: Fields) -> str:
        """Return the partition, as ``topic:partition``."""
        return f"{row['topic']}:{row['partition']}"

    def holds(self, stream: str) -> bool:
        """Return True for a partition of the topic."""
        return stream.rpartition(":")[0] == self.stream

    @contextmanager
    def history(self) -> Iterator[KafkaHistory]:
        """Open a connection to read the letters."""
        with KafkaAdmin(self.client) as admin:
            yield KafkaHistory(admin, self.client, [self.stream])

    def at(self, sequence: int) -> dict[str, int]:
        """Return the offset in each partition."""
        with self.history() as history:
            return dict.fromkeys(history.streams, sequence)

    def add(self, letter: NewLetter, stream: str) -> None:
        """Publish a message to a partition, and wait until it is stored."""
        with KafkaProducer(self.client) as producer:
            # A topic that is compacted takes nothing without a key, and keeps one record of each.
            key = uuid.uuid4().hex.encode()
            partition = int(stream.rpartition(":")[2])
            message = KafkaMessages([self.stream], [letter.value], [key], [letter.headers], None, [partition])
            producer.publish(message, _refused)
            producer.flush()

    def exchange(self, added: Sequence[NewLetter], deleted: Sequence[tuple[str, int]]) -> None:
        """Raise an error: see `deletion_problem`."""
        raise NotImplementedError(self.deletion_problem)


def _refused(_index: int, reason: StreamError) -> None:
    raise reason


_FAR = 10_000
"""Maximum distance of offsets that one connection reads."""


def kafka_originals(
    source: KafkaSource, opens: Callable[[], AbstractContextManager[KafkaHistory]], records: Sequence[SampleRecord]
) -> list[SampleRecord]:
    """Return records as their partitions have them; as given are deleted ones, and those of other or earlier topics.

    Args:
        source: source of the records.
        opens: opens its history.
        records: the records; each has its topic, its partition and its offset.
    """
    offsets: dict[str, set[int]] = {}
    for record in records:
        if record.offset is not None and source.reads(record.topic):
            offsets.setdefault(f"{record.topic}:{record.partition}", set()).add(record.offset)
    found: dict[tuple[str, int], JsonObject] = {}
    ids: dict[str, str | None] = {}
    if not offsets:
        return list(records)
    with opens() as history:
        ids |= history.topic_ids
        for stream in offsets.keys() & set(history.streams):
            bounds = history.bounds(stream)
            for start, end in _runs(offset for offset in offsets[stream] if bounds.first <= offset < bounds.next):
                for batch in history.read(stream, start, end):
                    chosen = batch.filter(pc.is_in(batch.column("offset"), value_set=pa.array(list(offsets[stream]))))
                    found |= {(stream, row["offset"]): row for row in rows_of(chosen)}
    rows = [
        found.get((f"{record.topic}:{record.partition}", record.offset or 0))
        if record.identity in ("", ids.get(record.topic) or record.identity)
        else None
        for record in records
    ]
    return [
        record if row is None else replace(record_of(row, None), identity=record.identity)
        for record, row in zip(records, rows, strict=True)
    ]


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges that have these offsets, without the larger gaps between them."""
    start = last = None
    for offset in sorted(offsets):
        if start is None or last is None or offset - last > _FAR:
            if start is not None and last is not None:
                yield start, last + 1
            start = offset
        last = offset
    if start is not None and last is not None:
        yield start, last + 1


_SECONDS: Final = 3.0


class KafkaFeedRecords:
    """Records of Kafka topics. A cursor has the offsets of partitions, and names the topics if there are several.

    Args:
        history: opens a connection that reads them.
        source: names them.
    """

    def __init__(self, history: Callable[[], AbstractContextManager[KafkaHistory]], source: KafkaSource) -> None:
        self._history = history
        self._client = hasty(source.client, _SECONDS)
        self._topics = listed(source.topics)
        self._only = self._topics[0] if len(self._topics) == 1 else None
        self._readers: dict[str, OffsetReader] = {}

    def close(self) -> None:
        """Close the consumers."""
        for reader in self._readers.values():
            reader.close()

    def streams(self, committed: Offsets) -> Sequence[str]:
        """Return the partitions that runs have read, topic by topic."""
        offsets = {topic: committed.next.get(topic) for topic in sorted(self._topics)}
        return [
            f"{topic}:{number}"
            for topic, numbers in offsets.items()
            if isinstance(numbers, dict)
            for number in sorted(map(int, numbers))
        ]

    def offsets(self, cursor: FeedCursor) -> dict[str, int]:
        """Return the offsets by partition."""
        offsets = offsets_in(cursor)
        if offsets is not None and self._only is not None:
            offsets = {f"{self._only}:{number}": at for number, at in offsets.items()}
        if offsets is None or not all(map(self._is_partition, offsets)):
            example = "0:17,2:4" if self._only is not None else f"{self._topics[0]}:0:17"
            raise wrong_cursor(cursor, f"the offsets of partitions, as in {example}")
        return offsets

    def _is_partition(self, name: str) -> bool:
        topic, _, number = name.rpartition(":")
        return topic in self._topics and number.isascii() and number.isdigit()

    def cursor(self, offsets: Mapping[str, int]) -> FeedCursor:
        """Return the offsets as text."""
        return cursor_among(offsets, self._only)

    def ends(self, streams: Sequence[str]) -> dict[str, int]:
        """Return the offsets behind the last records of partitions."""
        with self._history() as history:
            return {stream: history.bounds(stream).next for stream in streams}

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the offsets before a position in each partition."""
        if is_whole(position):
            problem = f"{position} is no position in a topic, where each partition has its offsets"
            raise ConfigError([Mistake("from", f"{problem}: expected earliest, latest or a time")], what="bad position")
        start = position_of("from", position)
        with self._history() as history:
            starts = {name: history.resolve(name, start) for name in history.streams}
        return self.cursor({name: following - 1 for name, following in starts.items() if following > 0})

    def read(self, keys: Sequence[RecordKey], committed: Offsets) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the records, partition by partition from the brokers; none of a topic that was made anew."""
        found: list[RecordKey] = []
        batches: list[ArrowBatch] = []
        ids: Mapping[str, str | None] = {}
        if committed.topic_ids:
            with self._history() as history:
                ids = history.topic_ids
        for stream, offsets in by_stream(keys).items():
            topic, _, number = stream.rpartition(":")
            known = committed.topic_ids.get(topic)
            is_there = known is None or ids.get(topic) in (None, known)
            records = self._reader(topic).read(int(number), offsets) if is_there else {}
            found += [(stream, offset) for offset in records]
            batches.append(record_batch(topic, int(number), list(records.values())))
        return in_order(keys, found, batches)

    def _reader(self, topic: str) -> OffsetReader:
        if topic not in self._readers:
            self._readers[topic] = OffsetReader(self._client, topic)
        return self._readers[topic]
