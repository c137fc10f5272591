"""Reader of an open split of Kafka's partitions."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import pyarrow as pa

from turnout.base.background import Background
from turnout.base.files import FileChanges
from turnout.base.untrusted import JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin, TopicPartition
from turnout.kafka.clients import (
    NOT_FOUND,
    RETRY_SECONDS,
    ErrorWatch,
    client_partition,
    consumer_of,
    kafka_errors,
    patiently,
    polled,
    raise_error,
)
from turnout.kafka.reader import PASSING, SCHEMA, LastRecord, LastRecords, listed_records, record_batch
from turnout.records.batch import TOPIC_ID, ListedRecords
from turnout.records.types import ArrowBatch
from turnout.runtime.kafka.source import KafkaOffsets, KafkaSourceOptions, by_topic
from turnout.runtime.open_splits import OpenPosition

if TYPE_CHECKING:
    from turnout.kafka.clients import KafkaError, Message

_CHECK_SECONDS: Final = 1.0
_FEW_RECORDS: Final = 200
"""Number of records up to which they are handed out as lists."""

_CALL_SECONDS: Final = 0.05
"""Longest wait for records: the owner hears nothing meanwhile."""

_GATHER_SECONDS: Final = 0.0005
"""Wait behind the first record of a batch: one of two records takes little longer than one of one."""

_MOST_RECORDS: Final = 1_000
_MOST_BYTES: Final = 8 << 20
_WHAT: Final = "the topics cannot be read"
_NOTHING: Final = pa.RecordBatch.from_pylist([], schema=SCHEMA)


class KafkaOpenReader:
    """Records of some partitions as they arrive; see `turnout.runtime.open_task.OpenRecords`.

    Gaps, as compaction and transactions leave them, are stepped over. No loss is: where offsets are gone, or topics or
    their data are others, it ends. The driver, which plans the next split, finds the same, and reports what is lost.

    Args:
        options: options of the source.
        topics: number of partitions of each of its topics.
        start: where to begin.
        admin: for questions about the topics.
        seconds: the longest wait.

    Attributes:
        offsets: next offset of each partition.
        pending: number of offsets behind the last batch, if it was a full one.
        has_ended: whether it reads no further; another thread may set it.
        failure: is raised by the reader; another thread may set it.
    """

    time: ClassVar[None] = None

    def __init__(
        self,
        options: KafkaSourceOptions,
        topics: Mapping[str, int],
        start: KafkaOffsets,
        admin: KafkaAdmin,
        seconds: float,
    ) -> None:
        self._options = options
        self._client = options.client
        self._topics = topics
        self._start = start
        self._admin = admin
        self._tick = seconds
        self._watch = ErrorWatch()
        self._changes = FileChanges(self._client.files.values())
        self._consumer = consumer_of(self._client, self._watch)
        self._read: dict[TopicPartition, Message] = {}
        self._count = _MOST_RECORDS
        self.offsets = start.next_offsets()
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

    @property
    def last(self) -> dict[TopicPartition, LastRecord]:
        """The last record before each position, as far as it is known."""
        return {**self._start.last, **{name: LastRecord.of(message) for name, message in self._read.items()}}

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
        with self._errors():
            self._consumer.assign([client_partition(*name, at) for name, at in self.offsets.items()])
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
                messages = polled(self._consumer, max(0.0, until - time.monotonic()), self._count, _GATHER_SECONDS)
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
        ends = [
            (self._consumer.get_watermark_offsets(client_partition(*name), cached=True)[1], at)
            for name, at in self.offsets.items()
        ]
        return sum(max(0, end - at) for end, at in ends)

    def _errors(self) -> AbstractContextManager[None]:
        return kafka_errors(_WHAT, self._client, self._watch)

    def look(self) -> None:
        """Check the topics on a thread beside the reader's, which ends, or raises the failure."""
        try:
            # The reader's own connection tells how long brokers are away.
            with suppress(ConnectionLostError):
                self._check()
        except StreamError as failure:
            self.failure = failure

    @property
    def next(self) -> OpenPosition:
        """The next offsets, with the ids of their topics and the last record before each."""
        return replace(self._start, next=by_topic(self.offsets), last=self.last).to_json()

    def check(self) -> bool:
        """Return False if a topic is gone or another one, or has other partitions than the driver has planned.

        Raises:
            StreamError: the topics may not be described.
            ConnectionLostError: no broker answers for ``patience`` seconds.
        """
        return patiently(self._client, self._check)

    def _check(self) -> bool:
        infos = self._options.found_topics(self._admin)
        ids = self._start.ids
        is_planned = {name: len(info.partitions) for name, info in infos.items()} == self._topics and all(
            ids.get(name, info.id) == info.id for name, info in infos.items()
        )
        if not is_planned:
            self.has_ended = True
        return is_planned

    def _columns(self, records: list[Any]) -> ArrowBatch | ListedRecords:
        def batch() -> ArrowBatch:
            columns = record_batch(None, 0, records)
            if not self._start.identified:
                return columns
            ids = [self._topic_id(cast("str", record.topic())) for record in records]
            return columns.append_column(TOPIC_ID, pa.array(ids, pa.string()))

        return batch() if len(records) > _FEW_RECORDS else listed_records(records, self._topic_id, batch)

    def _topic_id(self, topic: str) -> str | None:
        """Return what message ids have of a topic's id; None for nothing."""
        return self._start.ids.get(topic) if topic in self._start.identified else None


@contextmanager
def opened(
    options: KafkaSourceOptions,
    topics: Mapping[str, int],
    start: OpenPosition,
    _calls: socket.socket,
    seconds: float,
    _time: int | None = None,
) -> Iterator[KafkaOpenReader]:
    """Open the reader of a split.

    Args:
        options: how the source is read.
        topics: number of partitions of each topic of the source.
        start: the first offsets.
        seconds: the longest wait.
    """
    position = KafkaOffsets.of_json(cast("JsonObject", start))
    with (
        KafkaAdmin(options.client) as admin,
        closing(KafkaOpenReader(options, topics, position, admin, seconds)) as one,
        Background("check of the topics of an open split", one.look, every=_CHECK_SECONDS, delay=_CHECK_SECONDS),
    ):
        yield one
