"""Publishing of a task's messages to a Kafka sink, in a transaction if the route configures it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.engine.messages import ListedMessages
from turnout.errors import StreamError
from turnout.kafka.control import Note, Slot, find_note
from turnout.kafka.murmur2 import partition_of
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.records.published import Published, Refuse
from turnout.routes.endpoints import KafkaSink
from turnout.runtime.kafka_limits import KafkaLimits

if TYPE_CHECKING:
    from turnout.engine import Messages

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
        deliveries: first tokens of the subjects of deliveries to webhooks, and the topic that has them; None for none.
    """

    client: KafkaOptions
    partition_by: str = "key"
    control_topic: str | None = None
    deliveries: tuple[str, str] | None = None

    @classmethod
    def of(cls, sink: KafkaSink) -> KafkaSinkOptions:
        """Return the options of a route's sink.

        Raises:
            ConfigError: lists every mistake of the client's options.
        """
        control_topic = sink.control_topic if sink.has_transactions else None
        return cls(sink.client, sink.partition_by, control_topic, sink.deliveries)

    @property
    def is_transactional(self) -> bool:
        """True if a split's messages are written in one transaction."""
        return self.control_topic is not None

    def at_least_once(self) -> KafkaSinkOptions:
        """Return the options without transactions, for publishing without micro-batches."""
        return replace(self, control_topic=None)

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
        if isinstance(messages, ListedMessages):
            messages = messages.whole
        subjects = messages.topics.to_pylist()
        topics = self._topics(subjects)
        sendable, partitions = self._partitions(messages, topics, refuse)
        columns = KafkaMessages(
            topics,
            messages.column("value").to_pylist(),
            messages.column("key").to_pylist(),
            _headers(messages),
            milliseconds(messages.column("timestamp")),
            partitions,
        )
        if topics is not subjects:
            columns = self._addressed(columns, subjects, messages.ids.to_pylist())
        rows = np.flatnonzero(sendable).tolist()
        if len(rows) < len(topics):
            columns = columns.take(rows)
        self._producer.publish(columns, lambda index, reason: refuse(rows[index], reason))

    def collect(self) -> None:
        """Process the acknowledgements that have arrived, without a wait for others.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        if not self._is_done:
            self._producer.collect()

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
        self, messages: Messages, topics: Sequence[str], refuse: Refuse
    ) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], list[int] | None]:
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
            partitions = pc.fill_null(messages.column("partition"), -1).to_pylist()
            for index in [index for index, number in enumerate(partitions) if number >= counts[topics[index]] > 0]:
                sendable[index] = False
                problem = (
                    f"has the partitions 0 to {counts[topics[index]] - 1}, and its record is of {partitions[index]}"
                )
                refuse(index, StreamError(f"the topic {topics[index]!r} {problem}", code=404))
            return sendable, partitions
        values = _header_values(messages, by.removeprefix("header:").strip())
        return sendable, [
            -1 if value is None or not counts[topic] else _hash(value, counts[topic])
            for topic, value in zip(topics, values, strict=True)
        ]

    # -- transactions

    @property
    def is_incomplete(self) -> bool:
        """True if a broker has refused a message of the transaction: it has to be made again, without that one."""
        return self._producer.is_incomplete

    def begin(self, split: str) -> Mapping[str, Any] | None:
        """Begin the split's transaction; return the counts of the split if an earlier attempt has committed it.

        Raises:
            StreamError: a broker refuses it, or the control topic does not belong to the checkpoint.
            ConnectionLostError: no broker answers.
        """
        assert self._slot is not None
        assert self._options.control_topic is not None
        self._producer.begin()
        note = find_note(self._options.client, self._options.control_topic, self._slot, split)
        self._is_done = note is not None
        return None if note is None else note.counts

    def commit(self, split: str, counts: Mapping[str, Any]) -> None:
        """Commit the split's messages together with the note that it is done.

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
        self._producer.commit()


def _refuse_note(_index: int, reason: StreamError) -> None:
    raise StreamError(f"the note of a split cannot be written to the control topic: {reason}", code=reason.code)


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
    return [None if at is None or at <= 0 else at for at in millis]


def _header_values(messages: Messages, name: str) -> list[bytes | None]:
    """Return the last header of a name of each message; None where there is none."""
    headers = _headers(messages)
    if headers is None:
        return [None] * len(messages)
    return [
        next((value for key, value in reversed(pairs or []) if key == name and value is not None), None)
        for pairs in headers
    ]
