"""Reading of partitions without an end, in the engine's own columns: records of all of them as they arrive."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from turnout.base.files import FileChanges
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin, TopicPartition
from turnout.kafka.clients import (
    NOT_FOUND,
    RETRY_SECONDS,
    ErrorWatch,
    consumer_of,
    kafka_errors,
    patiently,
    polled,
    raise_error,
)
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PASSING, SCHEMA, LastRecord, LastRecords, record_batch
from turnout.records.listed import ListedRecords
from turnout.records.types import ArrowBatch

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_CALL_SECONDS: Final = 0.05
"""Longest wait for records: the owner hears nothing meanwhile."""

_MOST_RECORDS: Final = 1_000
_MOST_BYTES: Final = 8 << 20
_WHAT: Final = "the topics cannot be read"
_NOTHING: Final = pa.RecordBatch.from_pylist([], schema=SCHEMA)


class PartitionFollower(ABC):
    """Records of some partitions as they arrive.

    Gaps, as compaction and transactions leave them, are stepped over. No loss is: where offsets are gone, or topics or
    their data are others, it ends.

    Args:
        options: options of the client.
        admin: for questions about the topics.
        offsets: first offset of each partition.
        last: the last record before each, as far as it is known.
        seconds: the longest wait.

    Attributes:
        offsets: next offset of each partition.
        pending: number of offsets behind the last batch, if it was a full one.
        has_ended: whether it reads no further; another thread may set it.
        failure: is raised by the reader; another thread may set it.
    """

    def __init__(
        self,
        options: KafkaOptions,
        admin: KafkaAdmin,
        offsets: Mapping[TopicPartition, int],
        last: Mapping[TopicPartition, LastRecord],
        seconds: float,
    ) -> None:
        self._client = options
        self._admin = admin
        self._former = last
        self._tick = seconds
        self._watch = ErrorWatch()
        self._changes = FileChanges(options.files.values())
        self._consumer = consumer_of(options, self._watch)
        self._read: dict[TopicPartition, Message] = {}
        self._count = _MOST_RECORDS
        self.offsets = dict(offsets)
        self.pending = 0
        self.has_ended = False
        self.failure: StreamError | None = None
        self._ends: dict[TopicPartition, int] = {}
        try:
            self._ends = {name: end.next for name, end in admin.ends(self.offsets).items()}
        except StreamError as failure:
            if failure.code != NOT_FOUND:
                raise
            self.has_ended = True

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    @abstractmethod
    def check(self) -> bool:
        """Return False, and end, if the topics are not those that were planned."""

    @property
    def last(self) -> dict[TopicPartition, LastRecord]:
        """The last record before each position, as far as it is known."""
        return {**self._former, **{name: LastRecord.of(message) for name, message in self._read.items()}}

    @property
    def repeats(self) -> bool:
        """True up to the ends that the partitions had at the beginning."""
        return any(at < self._ends.get(name, at) for name, at in self.offsets.items())

    def wait_at_most(self, seconds: float) -> None:
        """Set the length of the longest wait."""
        self._tick = seconds

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield the records as they arrive, and a batch without any when a wait ends.

        Raises:
            StreamError: the partitions may not be read.
            ConnectionLostError: no broker answers for ``patience`` seconds.
        """
        from confluent_kafka import TopicPartition as KafkaPartition

        with self._errors():
            self._consumer.assign([KafkaPartition(*name, at) for name, at in self.offsets.items()])
        # An attempt that continues where another was killed may find other data than the driver has planned for.
        if not self.has_ended and not self._is_same():
            self.has_ended = True
        until: float | None = None
        while not self.has_ended:
            until = until or time.monotonic() + min(self._tick, _CALL_SECONDS)
            if self.failure is not None:
                raise self.failure
            if self._changes.found():
                # The next one has clients with the renewed certificates.
                self.has_ended = True
            with self._errors():
                messages = polled(self._consumer, max(0.0, until - time.monotonic()), self._count)
            if self._watch.last is not None and not self._is_same():
                break
            records = self._taken(messages)
            self.pending = self._waiting() if len(messages) >= self._count else 0
            if messages and not records and not self.has_ended and time.monotonic() < until:
                # The end of a partition, which follows each record, does not end the wait.
                continue
            if records:
                size = sum(len(record.value() or b"") + len(record.key() or b"") for record in records)
                self._count = int(min(_MOST_RECORDS, max(2, _MOST_BYTES * len(records) // max(1, size))))
            until = None
            yield self._columns(records) if records else _NOTHING

    def _taken(self, messages: list[Message]) -> list[Message]:
        """Return the records among messages and events, and note how far they go."""
        records: list[Message] = []
        for message in messages:
            error, name = message.error(), (cast("str", message.topic()), cast("int", message.partition()))
            offset = cast("int", message.offset())
            if error is None:
                # After a new connection, records may be received again.
                if offset >= self.offsets[name]:
                    self.offsets[name], self._read[name] = offset + 1, message
                    records.append(message)
            elif error.name() == "_PARTITION_EOF":
                self.offsets[name] = max(self.offsets[name], offset)
            elif error.name() in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET") or not self._passes(error):
                self.has_ended = True
        return records

    def _passes(self, error: KafkaError) -> bool:
        """Return True for an error that may end by itself; False if the topics have changed."""
        if error.retriable() or error.name() in PASSING:
            return True
        if self.check():
            raise_error(_WHAT, error, self._client, self._watch)
        return False

    def _is_same(self) -> bool:
        """Return True if the partitions still have the records that were read before the positions.

        It is asked at the beginning, and after each lost connection. Partitions that end before their positions have
        not, even if they have grown beyond these when the records are looked for: their ends are asked for first.
        """
        read = self.last

        def compared() -> bool:
            if self._watch.denied and self._watch.last is not None:
                raise_error(_WHAT, self._watch.last, self._client)
            if not self.check():
                return False
            ends = self._admin.ends(self.offsets)
            if any(end.next < self.offsets[name] for name, end in ends.items()):
                return False
            with closing(LastRecords(replace(self._client, timeout=RETRY_SECONDS * 4))) as records:
                found = records.now_before(self.offsets, read)
            self._watch.heard()
            return all(read[name].is_same(record) for name, record in found.items())

        return patiently(self._client, compared)

    def _waiting(self) -> int:
        """Return the number of offsets behind the last batch, as the client knows the partitions' ends."""
        from confluent_kafka import TopicPartition as KafkaPartition

        ends = [
            (self._consumer.get_watermark_offsets(KafkaPartition(*name), cached=True)[1], at)
            for name, at in self.offsets.items()
        ]
        return sum(max(0, end - at) for end, at in ends)

    def _columns(self, records: list[Message]) -> ArrowBatch | ListedRecords:
        """Return the records in the engine's columns, or as lists."""
        return record_batch(None, 0, records)

    def _errors(self) -> AbstractContextManager[None]:
        return kafka_errors(_WHAT, self._client, self._watch)
