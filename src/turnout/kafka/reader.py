"""Reading of ranges of a partition, in the engine's own columns and bounded in bytes; and of a topic as a table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self, TypeAlias, cast

import numpy as np
import pyarrow as pa

from turnout.base.startup import pc
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin, TopicPartition, time_text
from turnout.kafka.clients import (
    NOT_FOUND,
    ErrorWatch,
    LastingConsumer,
    PartitionProgress,
    consumer_of,
    kafka_errors,
    polled,
    raise_error,
)
from turnout.kafka.options import KafkaOptions
from turnout.records.batch import ListedRecords
from turnout.records.headers import headers_type
from turnout.records.types import ArrowArray, ArrowBatch

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka import TopicPartition as KafkaPartition


KafkaHeaders: TypeAlias = "list[tuple[str, bytes | None]] | None"
"""Headers of a record, as the client has them."""

_log = logging.getLogger(__name__)

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", headers_type()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
"""Columns of a record, by the names of Spark's Kafka connector; ``timestampType`` is 0 for the producer's time, 1 for
the broker's."""

_FIRST_MILLI: Final = -62_135_596_800_000
_LAST_MILLI: Final = 253_402_300_799_999
"""Milliseconds of the first and the last moment of the years 1 to 9999."""

PASSING: Final = frozenset(
    {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "GROUP_AUTHORIZATION_FAILED", "COORDINATOR_NOT_AVAILABLE"}
)
"""Errors that are not fatal: brokers may recover, and nothing is committed to the group."""

_UNKNOWN_YET: Final = frozenset(
    {"_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"}
)
"""Errors of a partition that was just made, at brokers that have not heard of it."""

_PAUSE_SECONDS: Final = 0.05
_MOST_RECORDS: Final = 10_000
_MOST_BYTES: Final = 16 << 20
_FIRST_RECORDS: Final = 500
_POLL_SECONDS: Final = 0.5

_NEAR: Final = 64
"""Offsets before a position among which its last record is looked for: the last ones may be control records."""

_ONE_RECORD: Final[Mapping[str, str]] = {
    "isolation.level": "read_uncommitted",
    "queued.min.messages": "1",
    "fetch.message.max.bytes": str(128 << 10),
}
"""Properties of a client that reads one record of each partition."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record before a position in a partition: a partition with another one there has other data.

    A broker that is restored to older data, and a replica that is elected without the newest records, keep the topic's
    id and give offsets to other records (KIP-320).

    Attributes:
        offset: its offset, below which the offsets are those of former records.
        time: its timestamp in milliseconds since 1970; -1 for none.
        epoch: leader epoch in which it was stored; -1 if the broker does not say.
    """

    offset: int
    time: int
    epoch: int = -1

    @classmethod
    def of(cls, message: Message) -> Self:
        """Return the record that a client has received."""
        epoch = message.leader_epoch()
        return cls(cast("int", message.offset()), message.timestamp()[1], -1 if epoch is None else epoch)

    def is_same(self, other: LastRecord) -> bool:
        """Return True if both may be the same record."""
        epochs = {self.epoch, other.epoch} - {-1}
        return (self.offset, self.time) == (other.offset, other.time) and len(epochs) < 2


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of one partition, from *start* up to, not including, *end*.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        start: first offset.
        end: offset behind the last.
        topic_id: required id of the topic; None for any.
        identified: whether message ids have the id of the topic.
        last: the last record before *end*, as the plan knows it; None if it does not, or another range ends there.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    identified: bool = False
    last: LastRecord | None = None

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}[{self.start}, {self.end})"


class RangeReader:
    """Reads one range, once, over its own connection.

    Offsets without a record (compacted ones, control records, aborted transactions under ``read_committed``) are
    stepped over. Records that were removed before they were read are a loss. The topic's id is checked by
    `check_topic`, before or after the read.

    Args:
        options: options of the client.
        span: span to read.
        fail_on_data_loss: raise for a loss; if not, warn and continue behind it.
        most_bytes: maximum bytes of keys and values in a batch, unless one record has more.

    Attributes:
        next: the offset behind all that was read or stepped over.
        last: the last record that was read; None before the first.
    """

    def __init__(
        self,
        options: KafkaOptions,
        span: PartitionRange,
        *,
        fail_on_data_loss: bool = True,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._options = options
        self._span = span
        self._fail_on_data_loss = fail_on_data_loss
        self._most_bytes = most_bytes
        self._count = _FIRST_RECORDS
        self._watch = ErrorWatch()
        self._warned = False
        self.next = span.start
        self.last: LastRecord | None = None

    def batches(self) -> Iterator[ArrowBatch]:
        """Yield the records, of `SCHEMA`, in batches without an empty one.

        Raises:
            StreamError: records of the range were deleted and *fail_on_data_loss* is on (code 404), or the topic may
                not be read.
            ConnectionLostError: no broker answers for ``options.patience`` seconds.
        """
        if self.next >= self._span.end:
            return
        consumer = consumer_of(self._options, self._watch)
        try:
            with self._errors():
                self._assign(consumer)
            yield from self._all(consumer)
        finally:
            consumer.close()

    def _all(self, consumer: Consumer) -> Iterator[ArrowBatch]:
        deadline = time.monotonic() + self._options.patience
        while self.next < self._span.end:
            messages = self._polled(consumer)
            before = self.next
            records = self._taken(consumer, messages)
            if records:
                self.last = LastRecord.of(records[-1])
                yield self._columns(records)
            if self.next > before:
                self._watch.heard()
                deadline = time.monotonic() + self._options.patience
            elif self._watch.denied or time.monotonic() > deadline:
                self._raise_silence()

    def _polled(self, consumer: Consumer) -> list[Message]:
        with self._errors():
            return polled(consumer, _POLL_SECONDS, self._count)

    def _taken(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Return the records of the range among messages and events, and note how far they go."""
        records: list[Message] = []
        for message in messages:
            error = message.error()
            offset = cast("int", message.offset())
            if error is None:
                if offset >= self._span.end:
                    self.next = self._span.end
                    break
                # After a new assignment, records may be received again.
                if offset >= self.next:
                    self.next = offset + 1
                    records.append(message)
            elif error.name() == "_PARTITION_EOF":
                self.next = max(self.next, min(offset, self._span.end))
            elif error.name() in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
                self._lose(consumer)
            elif not error.retriable() and error.name() not in PASSING:
                raise_error(self._what, error, self._options)
        return records

    def _lose(self, consumer: Consumer) -> None:
        """Step over deleted records, to the first remaining offset."""
        from confluent_kafka import TopicPartition

        with self._errors():
            topic_partition = TopicPartition(self._span.topic, self._span.partition)
            first, last = consumer.get_watermark_offsets(topic_partition, timeout=self._options.timeout, cached=False)
        begin, resume = self.next, first if first > self.next else self._span.end
        failure = lost_records(self._span.topic, self._span.partition, begin, min(resume, self._span.end), first, last)
        if self._fail_on_data_loss:
            raise failure
        _log.warning("%s", failure)
        self.next = min(resume, self._span.end)
        if self.next < self._span.end:
            with self._errors():
                self._assign(consumer)

    def _assign(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self._span.topic, self._span.partition, self.next)])

    @property
    def _what(self) -> str:
        return f"partition {self._span.partition} of the topic {self._span.topic!r} cannot be read"

    def _errors(self) -> AbstractContextManager[None]:
        return kafka_errors(self._what, self._options, self._watch)

    def _raise_silence(self) -> None:
        if self._watch.last is not None:
            raise_error(self._what, self._watch.last, self._options)
        # librdkafka does not report that the topic may not be read.
        with KafkaAdmin(self._options) as admin:
            admin.describe([self._span.topic])
        waited = f"nothing received for {self._options.patience:g} s behind offset {self.next - 1}"
        raise ConnectionLostError(f"{self._what}: {waited}, and the range ends at {self._span.end}")

    def _columns(self, records: list[Message]) -> ArrowBatch:
        batch = record_batch(self._span.topic, self._span.partition, records)
        size = batch.column("key").nbytes + batch.column("value").nbytes
        # The next batch has as many records as fit, if they are as large as these.
        self._count = int(min(_MOST_RECORDS, max(2, self._most_bytes * len(records) // max(1, size))))
        if not self._warned:
            self._warned = _warned_of_times(self._span, records, batch)
        return batch


class LastRecords:
    """Finds the last records before positions, over a connection of its own.

    Every method raises `StreamError` where a partition may not be read, and `ConnectionLostError` where no broker
    answers.

    Args:
        options: options of the client.
    """

    def __init__(self, options: KafkaOptions) -> None:
        # A record of an aborted transaction, and one behind an open transaction, is as good as any.
        properties = {**options.properties, **_ONE_RECORD}
        self._options, self._watch = replace(options, properties=properties), ErrorWatch()
        self._lasting = LastingConsumer(self._options, self._watch)

    def close(self) -> None:
        """Close the connection."""
        self._lasting.close()

    def before(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastRecord]:
        """Return the last record before each position; none where control records or compaction have left none near."""
        found: dict[TopicPartition, LastRecord] = {}
        for distance in (1, _NEAR):
            spans = {
                name: (max(0, at - distance), at) for name, at in positions.items() if at > 0 and name not in found
            }
            found |= self._last_of(spans)
        return found

    def now_before(
        self, positions: Mapping[TopicPartition, int], records: Mapping[TopicPartition, LastRecord]
    ) -> dict[TopicPartition, LastRecord]:
        """Return the last record that each partition has now from the given record up to the position; none for none.

        Args:
            positions: positions in at least these partitions.
            records: the record that was the last one before the position.
        """
        return self._last_of({name: (record.offset, positions[name]) for name, record in records.items()})

    def _last_of(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, LastRecord]:
        """Return the last record in each span of offsets that has one."""
        from confluent_kafka import TopicPartition as KafkaPartition

        found: dict[TopicPartition, LastRecord] = {}
        waiting = dict(spans)
        if not waiting:
            return found
        deadline, consumer = time.monotonic() + self._options.timeout, self._lasting.current()
        with kafka_errors(self._what(waiting), self._options, self._watch):
            consumer.assign([KafkaPartition(*name, start) for name, (start, _) in waiting.items()])
            try:
                while waiting:
                    for message in polled(consumer, _POLL_SECONDS, _FIRST_RECORDS):
                        self._take(message, waiting, found)
                    if self._watch.denied or time.monotonic() > deadline:
                        break
            finally:
                consumer.unassign()
        if waiting and self._watch.last is not None:
            raise_error(self._what(waiting), self._watch.last, self._options)
        if waiting:
            silence = f"nothing received for {self._options.timeout:g} s"
            raise ConnectionLostError(f"{self._what(waiting)}: {silence}")
        self._watch.heard()
        return found

    def _take(
        self, message: Message, waiting: dict[TopicPartition, tuple[int, int]], found: dict[TopicPartition, LastRecord]
    ) -> None:
        """Note a record, and remove the partition whose span is over from those that are waited for."""
        name = cast("str", message.topic()), cast("int", message.partition())
        span, error = waiting.get(name), message.error()
        if span is None:
            return
        if error is None:
            record = LastRecord.of(message)
            if record.offset < span[1]:
                found[name] = record
            if record.offset >= span[1] - 1:
                del waiting[name]
        elif error.name() in ("_PARTITION_EOF", "OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
            del waiting[name]
        elif not error.retriable() and error.name() not in PASSING:
            raise_error(self._what([name]), error, self._options, self._watch)

    def _what(self, names: Iterable[TopicPartition]) -> str:
        topic, number = next(iter(names))
        return f"the last record before a position in partition {number} of the topic {topic!r} cannot be read"


def record_batch(topic: str | None, partition: int, records: Sequence[Message]) -> ArrowBatch:
    """Return records of a partition in the columns of `SCHEMA`; of several partitions without a *topic*.

    A timestamp is null where there is none, or none that a date can be: brokers accept any number, as that of a
    producer which counts nanoseconds.
    """
    count = len(records)
    one = topic is not None
    arrays = [
        pa.repeat(pa.scalar(topic), count) if one else pa.array([record.topic() for record in records], pa.string()),
        pa.repeat(pa.scalar(partition, pa.int32()), count)
        if one
        else pa.array([record.partition() for record in records], pa.int32()),
        pa.array([record.offset() for record in records], pa.int64()),
        pa.array([record.key() for record in records], pa.binary()),
        pa.array([record.value() for record in records], pa.binary()),
        headers_column([cast("KafkaHeaders", record.headers()) for record in records]),
        *_times([record.timestamp() for record in records]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def listed_records(
    records: Sequence[Message], topic_id: Callable[[str], str | None], make: Callable[[], ArrowBatch]
) -> ListedRecords:
    """Return a few records of any partitions as lists.

    Args:
        records: the records.
        topic_id: returns the id of a topic, as the column `turnout.records.batch.TOPIC_ID` has it.
        make: makes their record batch.
    """
    ids, topics, times = [], [], []
    for record in records:
        topic, (kind, millis) = cast("str", record.topic()), record.timestamp()
        time = millis * 1000 if kind and _FIRST_MILLI <= millis <= _LAST_MILLI else None
        label, origin = topic_id(topic), f"{topic}:{record.partition()}:{record.offset()}"
        if label is not None:
            origin = f"{origin}:{label}" if time is None else f"{origin}:{label}:{time}"
        ids.append(origin)
        topics.append(topic)
        times.append(time)
    return ListedRecords(
        ids,
        topics,
        [cast("int", record.partition()) for record in records],
        [cast("int", record.offset()) for record in records],
        times,
        [record.key() for record in records],
        [record.value() for record in records],
        [cast("KafkaHeaders", record.headers()) or () for record in records],
        make,
    )


def _times(times: list[tuple[int, int]]) -> tuple[ArrowArray, ArrowArray]:
    """Return the columns of timestamps and of their types."""
    table = np.array(times, np.int64).reshape(-1, 2)
    kinds, millis = table[:, 0], table[:, 1]
    without = kinds == 0
    absent = without | (millis < _FIRST_MILLI) | (millis > _LAST_MILLI)
    micros = np.where(absent, 0, millis) * 1000
    moments = pa.array(micros, pa.int64(), mask=absent).cast(SCHEMA.field("timestamp").type)
    return moments, pa.array((kinds - 1).astype(np.int32), pa.int32(), mask=without)


def _warned_of_times(span: PartitionRange, records: Sequence[Message], batch: ArrowBatch) -> bool:
    """Warn of the first record with a timestamp that no date can be; return False if there is none."""
    if batch.column("timestamp").null_count == batch.column("timestampType").null_count:
        return False
    strange = pc.and_(batch.column("timestamp").is_null(), batch.column("timestampType").is_valid())
    found = records[strange.index(pa.scalar(True)).as_py()].timestamp()[1]
    text = "%s has records with timestamps beyond the year 9999, as %d ms: they are read without a timestamp"
    _log.warning(text, span, found)
    return True


def partition_bounds(consumer: Consumer, topic: str, partition: int, options: KafkaOptions) -> tuple[int, int]:
    """Return the first offset of a partition, and that behind the last record that may be read.

    A partition of a new topic, which a broker does not know yet, is waited for.

    Raises:
        KafkaException: a broker does not say it for ``options.timeout`` seconds.
    """
    from confluent_kafka import KafkaException, TopicPartition

    position, deadline = TopicPartition(topic, partition), time.monotonic() + options.timeout
    while True:
        try:
            ends = consumer.get_watermark_offsets(position, timeout=options.timeout, cached=False)
        except KafkaException as failure:
            if failure.args[0].name() not in _UNKNOWN_YET or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return int(ends[0]), int(ends[1])


def committed_progress(
    options: KafkaOptions, topic: str, group: str, partitions: Sequence[int]
) -> dict[int, PartitionProgress]:
    """Return the progress that a group has committed, by partition; those without any are left out.

    Raises:
        StreamError: a broker refuses the request.
        ConnectionLostError: no broker answers.
    """
    from confluent_kafka import TopicPartition

    own, watch = replace(options, properties={**options.properties, "group.id": group}), ErrorWatch()
    wanted = [TopicPartition(topic, number) for number in partitions]
    with closing(consumer_of(own, watch)) as consumer, kafka_errors(f"the group {group!r} cannot be read", own, watch):
        found = consumer.committed(wanted, timeout=own.timeout)
    return {
        position.partition: PartitionProgress(position.offset, position.metadata or "")
        for position in found
        if position.offset >= 0
    }


def check_topic(admin: KafkaAdmin, span: PartitionRange) -> None:
    """Check that the topic of a range is the one that it was planned for: after the read, none else was read.

    Raises:
        StreamError: it was deleted, and possibly recreated (code 404).
    """
    if span.topic_id is None:
        return
    found = admin.existing([span.topic]).get(span.topic)
    if found is None or found.id != span.topic_id:
        raise recreated(span.topic, span.topic_id, None if found is None else found.id)


def recreated(topic: str, before: str, now: str | None) -> StreamError:
    """Return the error for a topic that was deleted or recreated."""
    what = "was deleted" if now is None else f"was deleted and made anew (its id was {before} and is {now})"
    return StreamError(
        f"the topic {topic!r} {what}: unread records are lost; set failOnDataLoss=false to continue"
        f"{'' if now is None else ' with the new one from its beginning'}",
        code=NOT_FOUND,
    )


def other_record(topic: str, partition: int, read: LastRecord, found: LastRecord | None, position: int) -> StreamError:
    """Return the error for a position before which the partition has another record than the one that was read."""
    what = (
        f"has no record {read.offset:,} any more, which was read ({_origin_text(read)})"
        if found is None
        else f"has another record {read.offset:,} than the one that was read"
        f" ({_origin_text(found)}, not {_origin_text(read)})"
    )
    return StreamError(
        f"partition {partition} of the topic {topic!r} {what}, and reading continues at {position:,}: the brokers were"
        " restored to older data, or a replica"
        " without the newest records was elected, and offsets below have been given to other records since; set"
        " failOnDataLoss=false to read the partition from its first record, or begin with another checkpoint at the"
        " offset that you want",
        code=NOT_FOUND,
    )


def _origin_text(record: LastRecord) -> str:
    time_ = "without a timestamp" if record.time < 0 else f"of {time_text(record.time)}"
    return time_ if record.epoch < 0 else f"{time_}, leader epoch {record.epoch}"


def headers_column(headers: list[KafkaHeaders]) -> ArrowArray:
    """Return the column of the records' headers; null for a record without any."""
    if not any(headers):
        return pa.nulls(len(headers), headers_type())
    sizes = np.fromiter((len(one) if one else 0 for one in headers), np.int64, len(headers))
    pairs = [pair for one in headers if one for pair in one]
    names = pa.array([name for name, _ in pairs], pa.string())
    texts = pa.array([text for _, text in pairs], pa.binary())
    items = pa.StructArray.from_arrays([names, texts], fields=list(headers_type().value_type))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    starts = pa.array(offsets, pa.int32(), mask=np.append(sizes == 0, False))
    return pa.ListArray.from_arrays(starts, items, type=headers_type())


def lost_records(topic: str, partition: int, start: int, end: int, first: int, following: int) -> StreamError:
    """Return the error for unread offsets that were deleted."""
    return StreamError(
        f"partition {partition} of the topic {topic!r} no longer has the offsets {start:,} to {end - 1:,}: it has"
        f" {first:,} to {following - 1:,} now, as records were removed by its limits or it was truncated; set"
        " failOnDataLoss=false to continue without them",
        code=NOT_FOUND,
    )


_TABLE_POLL_SECONDS: Final = 0.2
_BATCH: Final = 1_000


class TopicTable:
    """Values by keys; a record without a value removes its key. Used by one thread, but for *values*.

    Args:
        options: of the client.
        topic: with one partition, which is compacted.

    Attributes:
        values: as of the last `catch_up`, and of what its owner has written since.
    """

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self.values: dict[str, bytes] = {}
        self._options = options
        self._topic = topic
        self._watch = ErrorWatch()
        self._next = 0
        self._consumer: Consumer = consumer_of(options, self._watch)
        with self._errors():
            first, _ = self._ends()
            self._next = first
            self._consumer.assign([self._position(first)])

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def catch_up(self) -> None:
        """Read all that is written by now.

        Raises:
            StreamError: the topic may not be read.
            ConnectionLostError: no broker answers for ``options.patience`` seconds.
        """
        with self._errors():
            _, end = self._ends()
        deadline = time.monotonic() + self._options.patience
        while self._next < end:
            with self._errors():
                messages = polled(self._consumer, _TABLE_POLL_SECONDS, _BATCH)
            for message in messages:
                error = message.error()
                if error is None:
                    self._take(message.key(), message.value())
                    self._next = cast("int", message.offset()) + 1
                elif error.name() == "_PARTITION_EOF":
                    self._next = max(self._next, cast("int", message.offset()))
                elif not error.retriable() and error.name() not in PASSING:
                    raise_error(self._what, error, self._options)
            if self._watch.denied or time.monotonic() > deadline:
                raise ConnectionLostError(f"{self._what}: nothing came for {self._options.patience:g} s")

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode("utf-8", "replace")
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def _ends(self) -> tuple[int, int]:
        return partition_bounds(self._consumer, self._topic, 0, self._options)

    def _position(self, offset: int) -> KafkaPartition:
        from confluent_kafka import TopicPartition as KafkaPartition

        return KafkaPartition(self._topic, 0, offset)

    @property
    def _what(self) -> str:
        return f"the topic {self._topic!r} cannot be read"

    def _errors(self) -> AbstractContextManager[None]:
        return kafka_errors(self._what, self._options, self._watch)
