"""Publisher of messages to Kafka: limits of their sizes, transactions, and the notes of finished splits in them.

Limits of the producer and of brokers are applied before messages are sent: a transaction leaves none out. The notes are
in a compacted control topic, and are written in the transactions that hold the messages. A note has the key of a task's
slot in its query, and replaces the one of the micro-batch before. The state that was committed under a slot's
transactional id is in the topic before the next producer with that id begins its transaction, so that a repeated split
sees it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Self, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.caches import LruCache
from turnout.base.startup import pc
from turnout.base.untrusted import decimal
from turnout.engine import Counts, Messages, Result
from turnout.engine.messages import ListedMessages
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import patiently
from turnout.kafka.options import REPORTS, KafkaOptions
from turnout.kafka.producer import KafkaHeaders, KafkaMessages, KafkaProducer, partition_of
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.records.published import Published, Refuse
from turnout.records.types import Mask
from turnout.routes.endpoints import KafkaSink

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


_MAX_REQUEST_SIZE: Final = 1 << 20
"""Kafka's default of the producer's ``max.request.size``."""

_BUFFER_MEMORY: Final = 32 << 20
"""Kafka's default of the producer's ``buffer.memory``."""

_OVERHEAD: Final = 61 + 21
"""Bytes of a record batch and at most of a record in it (``DefaultRecordBatch``, ``DefaultRecord``)."""

_VARINT_STEPS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
"""Lengths from which on a zigzag varint takes a byte more."""


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """The largest records that one Kafka sink takes, in bytes as the producer estimates them.

    Attributes:
        producer: the producer's own limit, for every topic.
        topics: limits of topics that take less.
        others: the broker's limit for topics without one of their own; None if it is not known.
    """

    producer: int
    topics: Mapping[str, int] = field(default_factory=dict)
    others: int | None = None

    @classmethod
    def of(cls, sink: KafkaSink) -> Self:
        """Return the limits that a sink's options set.

        Raises:
            ConfigError: one of them is not a number of bytes.
        """
        options = sink.options()
        texts = {
            "kafka.max.request.size": options.get(
                "kafka.max.request.size", options.get("kafka.message.max.bytes", str(_MAX_REQUEST_SIZE))
            ),
            "kafka.buffer.memory": options.get("kafka.buffer.memory", str(_BUFFER_MEMORY)),
        }
        wrong = [
            Mistake(f"sink.options.{name}", f"expected a number of bytes, found {text!r:.40}")
            for name, text in texts.items()
            if decimal(text.strip()) is None
        ]
        if wrong:
            raise ConfigError(wrong)
        return cls(min(int(text) for text in texts.values()))

    def of_topic(self, topic: str) -> tuple[int, str]:
        """Return the limit of a topic and the setting that defines it."""
        own = self.topics.get(topic, self.others)
        if own is not None and own < self.producer:
            return own, "max.message.bytes of the topic" if topic in self.topics else "message.max.bytes of the broker"
        return self.producer, "max.request.size of the producer"


def record_sizes(records: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the upper bound of each record's size, as ``KafkaProducer`` estimates it before it sends.

    Args:
        records: the columns ``key``, ``value`` and ``headers``.
    """
    headers = records.column("headers")
    pairs = pc.list_flatten(headers)
    header_sizes = _field_sizes(pc.struct_field(pairs, [0])) + _field_sizes(pc.struct_field(pairs, [1]))
    owners = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    of_headers = np.bincount(owners, header_sizes, minlength=len(headers)).astype(np.int64)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes: NDArray[np.int64] = (
        _OVERHEAD
        + _field_sizes(records.column("key"))
        + _field_sizes(records.column("value"))
        + _varint_sizes(counts)
        + of_headers
    )
    return sizes


def fitting(result: Result, limits: tuple[KafkaLimits | None, ...]) -> list[Result]:
    """Return the batch without the messages that a Kafka sink would refuse for their size, and what replaces them.

    Behind the batch come its corrections: dead letters of refused messages, and dead letters without their values
    where those are too large themselves.

    Args:
        result: result of a batch.
        limits: limits of each of the route's sinks; None for other sinks than Kafka.

    Raises:
        RunError: a message is too large and the route tolerates no failures, or a dead letter is too large even
            without its record.
    """
    reasons = _too_large(result.messages, limits)
    if not reasons:
        return [result]
    results = [result.without(reasons)]
    letters = np.array([index for index in reasons if result.is_dead_letter(index)], np.int64)
    if len(letters):
        results.append(Result(Counts(), _emptied(result, letters, limits)))
    deliveries = {index: reason for index, reason in reasons.items() if not result.is_dead_letter(index)}
    return results + (fitting(result.refused(deliveries), limits) if deliveries else [])


def _emptied(result: Result, letters: NDArray[np.int64], limits: tuple[KafkaLimits | None, ...]) -> Messages:
    """Return the dead letters at *letters* without values; if still too large, also without keys and record headers."""
    messages = result.messages.emptied(letters)
    if _too_large(messages, limits):
        messages = result.messages.emptied(letters, alone=False)
        for index, reason in _too_large(messages, limits).items():
            result.check(int(letters[index]), reason)
    return messages


def _too_large(messages: Messages, limits: tuple[KafkaLimits | None, ...]) -> dict[int, str]:
    """Return message index → reason that its sink's producer or broker refuses it."""
    if not len(messages) or not any(limits):
        return {}
    sizes = record_sizes(messages.records)[messages.rows]
    least = min(min((one.producer, *one.topics.values(), one.others or one.producer)) for one in limits if one)
    reasons = {}
    for index in np.flatnonzero(sizes > least).tolist():
        limit = limits[messages.sinks[index]]
        topic = messages.topics[index].as_py()
        if limit is None:
            continue
        most, setting = limit.of_topic(topic)
        if sizes[index] > most:
            found = f"found up to {sizes[index]:,} with its key and headers"
            reasons[index] = f"takes {most:,} bytes a record ({setting}), {found}"
    return reasons


def _field_sizes(column: pa.Array) -> NDArray[np.int64]:
    """Length and bytes of each key, value, or part of a header; a null is a length alone."""
    lengths: NDArray[np.int64] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    return lengths + _varint_sizes(lengths)


def _varint_sizes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return 1 + np.searchsorted(_VARINT_STEPS, numbers, side="right")


GATHER_SECONDS: Final = 0.003
"""Pause of an open split behind many records: each batch is a request for each partition, and an idempotent client,
which has five under way at most, turns in a loop while others wait."""

_OPEN_MS: Final = "30000"
"""Milliseconds after which brokers abort a transaction of an open split: one takes less than a second."""

_BATCH_BYTES: Final = 1_000_000
"""Bytes of a batch, if no limit is lower: librdkafka's own."""

_hash = lru_cache(4096)(partition_of)


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """Options of a Kafka sink, as tasks get them.

    Attributes:
        client: options of the client.
        partition_by: ``key``, ``record`` or ``header:NAME``.
        control_topic: topic of the notes of finished splits; None for at least once.
        transaction_seconds: longest time between two commits of an open split.
        deliveries: first tokens of the subjects of deliveries to webhooks, and the topic that has them; None for none.
    """

    client: KafkaOptions
    partition_by: str = "key"
    control_topic: str | None = None
    deliveries: tuple[str, str] | None = None
    transaction_seconds: float = 0.05

    @classmethod
    def of(cls, sink: KafkaSink) -> KafkaSinkOptions:
        """Return the options of a route's sink.

        Raises:
            ConfigError: lists every mistake of the client's options.
        """
        control_topic = sink.control_topic if sink.has_transactions else None
        seconds = sink.transaction_every / 1000
        return cls(sink.client, sink.partition_by, control_topic, sink.deliveries, seconds)

    @property
    def is_transactional(self) -> bool:
        """True if a split's messages are written in one transaction."""
        return self.control_topic is not None

    def at_least_once(self) -> KafkaSinkOptions:
        """Return the options without transactions, for publishing without micro-batches."""
        return replace(self, control_topic=None)

    def undelayed(self) -> KafkaSinkOptions:
        """Return the options for an open split: messages do not wait in the client, as the task gathers them.

        Decision 48 has the reasons. A dead task's transaction ends soon. Without transactions, a position is recorded
        when the messages below it are reported.
        """
        timeouts = {"transaction.timeout.ms": _OPEN_MS, "message.timeout.ms": _OPEN_MS}
        more = timeouts if self.is_transactional else {REPORTS: "false"}
        properties = {"linger.ms": "0", "socket.nagle.disable": "true", **more}
        return replace(self, client=replace(self.client, properties={**properties, **self.client.properties}))

    def with_limits(self, limits: KafkaLimits) -> KafkaSinkOptions:
        """Return the options of a producer whose batches no topic refuses for their size.

        Brokers take the limit of a record for that of its batch, and refuse the whole.
        """
        smallest = min(limits.producer, limits.others or _BATCH_BYTES, *limits.topics.values(), _BATCH_BYTES)
        properties = {"batch.size": str(smallest), **self.client.properties}
        return replace(self, client=replace(self.client, properties=properties))

    def publisher(self, slot: Slot | None = None) -> KafkaPublisher:
        """Return a publisher.

        Args:
            slot: slot of the task; needed for transactions.
        """
        return KafkaPublisher(self, slot)


class KafkaPublisher:
    """Publishes a task's messages to one Kafka sink.

    Args:
        options: options of the sink.
        slot: slot of the task; None without transactions.
    """

    def __init__(self, options: KafkaSinkOptions, slot: Slot | None) -> None:
        self._options = options
        self._slot = slot if options.is_transactional else None
        self._producer = KafkaProducer(options.client, None if self._slot is None else self._slot.key)
        self._is_done = False
        self._check: Callable[[], None] | None = None

    def guard(self, check: Callable[[], None]) -> None:
        """Call *check* before messages are handed to the producer, and before a commit."""
        self._check = check

    def close(self) -> None:
        """Close the connections; a transaction that is open is aborted by the next one of its slot, or in time."""
        self._producer.close()

    # -- messages

    def send(self, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        """Send messages; those of a split that is committed already are left out.

        Raises:
            StreamError: a broker takes no messages at all.
            ConnectionLostError: no broker answers.
        """
        if self._is_done:
            return
        if self._check is not None:
            self._check()
        subjects, columns, read = _columns(messages)
        topics = self._topics(subjects)
        sendable, partitions = self._partitions(topics, columns.headers, read, refuse)
        columns = columns._replace(topics=topics, partitions=partitions)
        if topics is not subjects:
            ids = messages.ids if isinstance(messages, ListedMessages) else messages.ids.to_pylist()
            columns = self._addressed(columns, subjects, ids)
        rows = np.flatnonzero(sendable).tolist()
        if len(rows) < len(topics):
            columns = columns.take(rows)
        self._producer.publish(columns, lambda index, reason: refuse(rows[index], reason))

    def mark(self) -> Callable[[], bool] | None:
        """See `KafkaProducer.mark`."""
        return self._producer.mark()

    def collect(self) -> Published:
        """Process the acknowledgements that have arrived, without a wait for others; return their times alone.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        return Published() if self._is_done else Published(delivery=self._producer.collect())

    def flush(self) -> Published:
        """Wait until every message is stored or refused.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        return Published() if self._is_done else self._producer.flush()

    def _topics(self, subjects: list[str]) -> list[str]:
        """Return the topics of messages; those of deliveries to webhooks are in one."""
        if self._options.deliveries is None:
            return subjects
        prefix, topic = f"{self._options.deliveries[0]}.", self._options.deliveries[1]
        if not any(subject.startswith(prefix) for subject in subjects):
            return subjects
        return [topic if subject.startswith(prefix) else subject for subject in subjects]

    def _addressed(self, columns: KafkaMessages, subjects: Sequence[str], ids: Sequence[str | None]) -> KafkaMessages:
        """Return the messages; a delivery's key is its address, which chooses the partition, and it has its id."""
        assert self._options.deliveries is not None
        prefix = f"{self._options.deliveries[0]}."
        keys, headers = list(columns.keys), list(columns.headers or [None] * len(subjects))
        partitions = None if columns.partitions is None else list(columns.partitions)
        for index, subject in enumerate(subjects):
            if not subject.startswith(prefix):
                continue
            keys[index] = subject.removeprefix(prefix).encode()
            own = [pair for pair in headers[index] or () if pair[0].lower() != MESSAGE_ID.lower()]
            identity = ids[index]
            headers[index] = own if identity is None else [*own, (MESSAGE_ID, identity.encode())]
            if partitions is not None:
                partitions[index] = -1
        return columns._replace(keys=keys, headers=headers, partitions=partitions)

    def _partitions(
        self,
        topics: Sequence[str],
        headers: Sequence[KafkaHeaders | None] | None,
        read: Sequence[int],
        refuse: Refuse,
    ) -> tuple[Mask, list[int] | None]:
        """Return which messages can be sent, and their partitions where the sink's producer does not choose them."""
        sendable = np.ones(len(topics), np.bool_)
        by = self._options.partition_by
        if by == "key" and self._slot is None:
            return sendable, None
        counts = {topic: self._producer.partition_count(topic) for topic in set(topics)}
        for index in [index for index, topic in enumerate(topics) if not counts[topic]]:
            sendable[index] = False
            refuse(index, StreamError(f"there is no topic {topics[index]!r}", code=404))
        if by == "key":
            return sendable, None
        if by == "record":
            partitions = list(read)
            for index in [index for index, number in enumerate(partitions) if number >= counts[topics[index]] > 0]:
                sendable[index] = False
                problem = (
                    f"has the partitions 0 to {counts[topics[index]] - 1}, and its record is of {partitions[index]}"
                )
                refuse(index, StreamError(f"the topic {topics[index]!r} {problem}", code=404))
            return sendable, partitions
        values = _header_values(headers, len(topics), by.removeprefix("header:").strip())
        return sendable, [
            -1 if value is None or not counts[topic] else _hash(value, counts[topic])
            for topic, value in zip(topics, values, strict=True)
        ]

    # -- transactions

    @property
    def is_incomplete(self) -> bool:
        """True if a broker has refused a message of the transaction: it has to be made again, without that one."""
        return self._producer.is_incomplete

    def begin(self, split: str) -> Mapping[str, object] | None:
        """Begin the split's transaction; return the counts of the split if an earlier attempt has committed it.

        Raises:
            StreamError: a broker refuses it, or the control topic does not belong to the checkpoint.
            ConnectionLostError: no broker answers.
        """
        counts = self.resume(split)
        self._is_done = counts is not None
        return counts

    def resume(self, split: str) -> Mapping[str, object] | None:
        """Begin a transaction, and return what the last one was committed with; of an open split others follow.

        Raises:
            StreamError: as `begin`.
            ConnectionLostError: as `begin`.
            LeaseLostError: the server of this run does not lead any more.
        """
        assert self._slot is not None
        assert self._options.control_topic is not None
        client, topic, slot = self._options.client, self._options.control_topic, self._slot
        if self._check is not None:
            # A server that has lost its lease would end the transaction of the one that leads.
            self._check()
        self._producer.begin()
        # A broker that starts again is waited for, as for messages.
        note = patiently(client, lambda: find_note(client, topic, slot, split))
        return None if note is None else note.counts

    def commit(self, split: str, counts: Mapping[str, object], *, follows: bool = False) -> None:
        """Commit the split's messages together with the note that it is done; begin another transaction if it follows.

        Raises:
            FencedError: another attempt has taken over; nothing is committed.
            StreamError: a broker refuses it; nothing is committed.
            ConnectionLostError: no broker answers: the next attempt sees whether it is committed.
        """
        assert self._slot is not None
        assert self._options.control_topic is not None
        if self._is_done:
            self._producer.abort()
            return
        topic, key = self._options.control_topic, self._slot.key.encode()
        number = partition_of(key, self._producer.partition_count(topic))
        note = Note(self._slot.batch, split, counts).encode()
        self._producer.publish(KafkaMessages([topic], [note], [key], partitions=[number]), _refuse_note)
        self._producer.flush()
        if self._check is not None:
            self._check()
        self._producer.commit()
        if follows:
            self._producer.begin_next()


def _refuse_note(_index: int, reason: StreamError) -> None:
    raise StreamError(f"the note of a split cannot be written to the control topic: {reason}", code=reason.code)


def _columns(messages: Messages | ListedMessages) -> tuple[list[str], KafkaMessages, Sequence[int]]:
    """Return the subjects of messages, the messages under these, and the partitions of their records, -1 for none."""
    if isinstance(messages, ListedMessages):
        subjects, rows = list(messages.topics), messages.rows
        headers = [messages.headers[row] for row in rows]
        times = [messages.times[row] for row in rows]
        columns = KafkaMessages(
            subjects,
            [messages.values[row] for row in rows],
            [messages.keys[row] for row in rows],
            cast("list[KafkaHeaders | None]", headers) if any(headers) else None,
            [None if time is None else _kafka_time(time // 1000) for time in times],
        )
        return subjects, columns, [messages.partitions[row] for row in rows]
    subjects = messages.topics.to_pylist()
    columns = KafkaMessages(
        subjects,
        messages.column("value").to_pylist(),
        messages.column("key").to_pylist(),
        _headers(messages),
        milliseconds(messages.column("timestamp")),
    )
    return subjects, columns, pc.fill_null(messages.column("partition"), -1).to_pylist()


def _headers(messages: Messages) -> list[list[tuple[str, bytes | None]] | None] | None:
    """Return the headers of each message; those of a record are made once."""
    column = messages.records.column("headers")
    if column.null_count == len(column):
        return None
    pairs = [
        None if headers is None else [(header["key"], header["value"]) for header in headers]
        for headers in column.to_pylist()
    ]
    return [pairs[row] for row in messages.rows.tolist()]


def milliseconds(times: pa.Array) -> list[int | None] | None:
    """Return the time of each message as Kafka has it; None for one without, or before 1970, as Kafka takes none."""
    if times.null_count == len(times):
        return None
    millis = times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()).to_pylist()
    return [None if at is None else _kafka_time(at) for at in millis]


def _kafka_time(millis: int) -> int | None:
    return millis if millis > 0 else None


def _header_values(headers: Sequence[KafkaHeaders | None] | None, count: int, name: str) -> list[bytes | None]:
    """Return the last header of a name of each message; None where there is none."""
    if headers is None:
        return [None] * count
    return [
        next((value for key, value in reversed(pairs or []) if key == name and value is not None), None)
        for pairs in headers
    ]
