"""Reading of a topic as a member of a consumer group, whose records are finished in any order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from turnout.base.files import FileChanges
from turnout.errors import StreamError, TurnoutError
from turnout.kafka.clients import (
    ErrorWatch,
    LastingConsumer,
    PartitionProgress,
    consumer_of,
    kafka_errors,
    polled,
    raise_error,
)
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PASSING, partition_bounds

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

_log = logging.getLogger(__name__)

SESSION_MILLISECONDS: Final = 10_000
"""A killed member's partitions go to another after so long."""

_MEMBER: Final[Mapping[str, str]] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": f"{SESSION_MILLISECONDS}",
    "heartbeat.interval.ms": "2000",
}
_LOOKUP: Final[Mapping[str, str]] = {"fetch.message.max.bytes": str(256 << 10), "queued.max.messages.kbytes": "1024"}
_COMMIT_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.5
_BATCH: Final = 500
_MAX_READ_OVER: Final = 1_000
"""Records between two wanted ones that are read rather than sought past."""


@dataclass(slots=True)
class _Partition:
    """Assignment of one partition to this member; a later one of the same partition is another."""

    progress: PartitionProgress
    committed: tuple[int, str]
    is_ours: bool = True


@dataclass(slots=True, eq=False)
class GroupRecord:
    """Record that this member has to finish.

    Attributes:
        message: of the client.
        partition: number of its partition.
        offset: in the partition.
        assigned: the partition, as long as this member has it.
    """

    message: Message
    partition: int
    offset: int
    assigned: _Partition

    @property
    def is_ours(self) -> bool:
        """False after the partition has gone to another member, which has the record too."""
        return self.assigned.is_ours


class GroupReader:
    """Member of a consumer group that reads one topic.

    The lowest unfinished offset of each partition is committed, with a note of the others (`PartitionProgress`), every
    second and when the partition goes to another member. `finish` may be called by any thread, all else by one.

    Args:
        options: of the client.
        topic: to read.
        group: name of the group.
        before: called before records of partitions that are new to this member.

    Attributes:
        heard_at: time of the last answer about the group, by the monotonic clock.
    """

    def __init__(
        self, options: KafkaOptions, topic: str, group: str, before: Callable[[], None] = lambda: None
    ) -> None:
        self.heard_at = time.monotonic()
        self._is_closing = False
        self._before = before
        self._options = replace(options, properties={**_MEMBER, **options.properties, "group.id": group})
        self._topic = topic
        self._watch = ErrorWatch()
        self._lock = threading.Lock()
        self._partitions: dict[int, _Partition] = {}
        self._next_commit = 0.0
        self._changes = FileChanges(options.files.values())
        self._consumer = self._joined()

    def _joined(self) -> Consumer:
        """Return a consumer that joins the group."""
        consumer = consumer_of(self._options, self._watch)
        with self._errors():
            consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost_partitions
            )
        return consumer

    def close(self) -> None:
        """Commit what is finished, and leave the group."""
        self._is_closing = True
        self._commit(wait=True)
        self._consumer.close()

    def _join_again(self) -> None:
        """Leave the group, and join it by a client with the renewed certificates; open records come again."""
        self.close()
        for assigned in self._partitions.values():
            assigned.is_ours = False
        self._partitions.clear()
        self._is_closing = False
        self._consumer = self._joined()

    def read(self, seconds: float) -> list[GroupRecord]:
        """Return the records that have come, after a wait of at most *seconds* for the first.

        Raises:
            StreamError: the topic may not be read, or does not exist.
            ConnectionLostError: credentials are refused by all brokers.
        """
        if self._changes.found():
            self._join_again()
        with self._errors():
            messages = polled(self._consumer, seconds, _BATCH)
        records = [record for message in messages if (record := self._accept(message)) is not None]
        if not messages or time.monotonic() >= self._next_commit:
            self._commit()
        return records

    def finish(self, record: GroupRecord) -> None:
        """Note that a record is finished; it is committed soon."""
        with self._lock:
            record.assigned.progress.end(record.offset)

    def ends(self) -> dict[int, int]:
        """Return the offset behind the last record of each partition.

        Raises:
            StreamError: a broker refuses the request.
            ConnectionLostError: no broker answers.
        """
        with self._errors():
            found = self._consumer.list_topics(self._topic, self._options.timeout).topics[self._topic]
        return {number: self._bounds(number)[1] for number in found.partitions}

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Return True if this member has read all partitions up to these offsets."""
        read = {number: assigned.progress.next for number, assigned in self._partitions.items()}
        return all(read.get(number, -1) >= end for number, end in ends.items())

    def is_finished(self, ends: Mapping[int, int] | None = None) -> bool:
        """Return True if the group has finished all records, by what it has committed.

        Args:
            ends: offsets behind the last records to count; None for all records.

        Raises:
            StreamError: a broker refuses the request.
            ConnectionLostError: no broker answers.
        """
        self._commit(wait=True)
        until = self.ends() if ends is None else ends
        with self._errors():
            positions = self._consumer.committed(
                [self._position(number) for number in until], timeout=self._options.timeout
            )
        self.heard_at = time.monotonic()
        return all(
            max(self._bounds(position.partition)[0], position.offset) >= until[position.partition]
            for position in positions
        )

    # -- messages and events

    def _accept(self, message: Message) -> GroupRecord | None:
        number, offset = cast("int", message.partition()), cast("int", message.offset())
        assigned = self._partitions.get(number)
        error = message.error()
        if error is None:
            self._watch.heard()
            if assigned is None:
                return None
            with self._lock:
                is_new = assigned.progress.begin(offset)
            return GroupRecord(message, number, offset, assigned) if is_new else None
        if error.name() == "_PARTITION_EOF":
            if assigned is not None:
                with self._lock:
                    assigned.progress.skip(offset)
        elif error.name() in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
            self._lose(number)
        elif error.name() != "_MAX_POLL_EXCEEDED" and not error.retriable() and error.name() not in PASSING:
            raise_error(self._what, error, self._options)
        return None

    def _lose(self, number: int) -> None:
        """Continue with the first record that a partition still has."""
        assigned = self._partitions[number]
        first, _ = self._bounds(number)
        with self._lock:
            begin = assigned.progress.next
            assigned.progress.skip(first)
        _log.warning(
            "partition %d of the topic %r no longer has the offsets %d to %d, which were not delivered",
            *(number, self._topic, begin, max(begin, first) - 1),
        )
        with self._errors():
            self._consumer.seek(self._position(number, max(begin, first)))

    def _bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset of a partition, and that behind the last record that may be read."""
        with self._errors():
            return partition_bounds(self._consumer, self._topic, number, self._options)

    # -- partitions that come and go

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if self._is_closing:
            # Nothing of these is read, and brokers do not answer for a member that leaves.
            return
        with self._errors():
            positions = consumer.committed(list(partitions), timeout=self._options.timeout) if partitions else []
        for position in positions:
            if position.error is not None:
                raise_error(self._what, position.error, self._options)
            is_new = position.offset < 0
            begin = self._bounds(position.partition)[0] if is_new else position.offset
            progress = PartitionProgress(begin, "" if is_new else position.metadata or "")
            self._partitions[position.partition] = _Partition(progress, (begin, ""))
        if positions:
            self._before()
        consumer.incremental_assign(
            [
                self._position(position.partition, self._partitions[position.partition].progress.next)
                for position in positions
            ]
        )

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._commit(wait=True)
        self._lost_partitions(consumer, partitions)

    def _lost_partitions(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            assigned = self._partitions.pop(partition.partition, None)
            if assigned is not None:
                assigned.is_ours = False
        consumer.incremental_unassign(list(partitions))

    # -- commits

    def _commit(self, *, wait: bool = False) -> None:
        self._next_commit = time.monotonic() + _COMMIT_SECONDS
        with self._lock:
            states = {number: one.progress.commit() for number, one in self._partitions.items()}
        # One that is waited for repeats what was committed before and may not have arrived.
        changed = {
            number: state for number, state in states.items() if wait or state != self._partitions[number].committed
        }
        if not changed:
            return
        positions = [self._position(number, offset, note) for number, (offset, note) in changed.items()]
        try:
            with self._errors():
                if wait:
                    self._consumer.commit(offsets=positions, asynchronous=False)
                else:
                    self._consumer.commit(offsets=positions)
        except TurnoutError as failure:
            # Who has the partitions now delivers again what this member could not commit.
            _log.info("%s", failure)
            return
        for number, state in changed.items():
            self._partitions[number].committed = state

    def _position(self, number: int, offset: int | None = None, note: str = "") -> TopicPartition:
        from confluent_kafka import TopicPartition

        if offset is None:
            return TopicPartition(self._topic, number)
        return (
            TopicPartition(self._topic, number, offset, note) if note else TopicPartition(self._topic, number, offset)
        )

    @property
    def _what(self) -> str:
        return f"the topic {self._topic!r} cannot be read"

    def _errors(self) -> AbstractContextManager[None]:
        return kafka_errors(self._what, self._options, self._watch)


class OffsetReader:
    """Reads single records of a topic again, by their offsets; used by one thread.

    Args:
        options: of the client.
        topic: that has them.
    """

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self._options = replace(options, properties={**_LOOKUP, **options.properties})
        self._topic = topic
        self._watch = ErrorWatch()
        self._lasting = LastingConsumer(self._options, self._watch)
        self._consumer: Consumer = self._lasting.current()

    def close(self) -> None:
        """Close the connections."""
        self._lasting.close()

    def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Message]:
        """Return the records by their offsets; those that are not found are left out.

        Args:
            partition: that has them.
            offsets: of the records, ascending.

        Raises:
            StreamError: the topic may not be read.
            ConnectionLostError: no broker answers for ``options.patience`` seconds.
        """
        found: dict[int, Message] = {}
        self._consumer = self._lasting.current()
        deadline = time.monotonic() + self._options.patience
        at = 0
        self._seek(partition, offsets[0])
        while at < len(offsets):
            with self._errors():
                messages = polled(self._consumer, _POLL_SECONDS, _BATCH)
            if not messages and (self._watch.denied or time.monotonic() > deadline):
                self._raise_silence()
            passed = offsets[at] - 1
            for message in messages:
                passed = max(passed, self._passed(message, partition, offsets[at], found))
            before = at
            while at < len(offsets) and offsets[at] <= passed:
                at += 1
            if at > before:
                deadline = time.monotonic() + self._options.patience
            if at < len(offsets) and offsets[at] - passed > _MAX_READ_OVER:
                self._seek(partition, offsets[at])
        with self._errors():
            self._consumer.unassign()
        requested = set(offsets)
        return {offset: message for offset, message in found.items() if offset in requested}

    def first(self, partition: int) -> int:
        """Return the first offset of a partition; records below are gone.

        Raises:
            StreamError: a broker refuses the request.
            ConnectionLostError: no broker answers.
        """
        with self._errors():
            return partition_bounds(self._consumer, self._topic, partition, self._options)[0]

    def _passed(self, message: Message, partition: int, requested: int, found: dict[int, Message]) -> int:
        """Return the offset up to which everything has been seen by a message or an event."""
        error, offset = message.error(), cast("int", message.offset())
        if message.partition() != partition:
            return requested - 1
        if error is None:
            found[offset] = message
            return offset
        if error.name() == "_PARTITION_EOF":
            return max(requested, offset - 1)
        if error.name() in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
            first = max(self.first(partition), requested + 1)
            self._seek(partition, first)
            return first - 1
        if not error.retriable() and error.name() not in PASSING:
            raise_error(self._what, error, self._options)
        return requested - 1

    def _seek(self, partition: int, offset: int) -> None:
        with self._errors():
            self._consumer.assign([self._position(partition, offset)])

    def _position(self, partition: int, offset: int) -> TopicPartition:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._topic, partition, offset)

    @property
    def _what(self) -> str:
        return f"records of the topic {self._topic!r} cannot be read again"

    def _errors(self) -> AbstractContextManager[None]:
        return kafka_errors(self._what, self._options, self._watch)

    def _raise_silence(self) -> None:
        if self._watch.last is not None:
            raise_error(self._what, self._watch.last, self._options)
        raise StreamError(f"{self._what}: nothing came for {self._options.patience:g} s")


class GroupProgress:
    """Commits offsets to a consumer group without members, for tools that show its lag; nothing is read from it.

    Args:
        options: options of the client.
        group: name of the group.
    """

    def __init__(self, options: KafkaOptions, group: str) -> None:
        self._options = replace(options, properties={**options.properties, "group.id": group})
        self._group = group
        self._watch = ErrorWatch()
        self._lasting = LastingConsumer(self._options, self._watch)

    def close(self) -> None:
        """Close the connections."""
        self._lasting.close()

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit the next offset of each ``topic:partition``.

        Raises:
            StreamError: the broker refuses it, as it does for a group with members.
            ConnectionLostError: no broker answers.
        """
        from confluent_kafka import TopicPartition

        positions = [
            TopicPartition(name.rpartition(":")[0], int(name.rpartition(":")[2]), offset)
            for name, offset in offsets.items()
        ]
        with kafka_errors(f"the group {self._group!r} takes no offsets", self._options, self._watch):
            consumer = self._lasting.current()
            consumer.poll(0)
            consumer.commit(offsets=positions, asynchronous=False)
        self._watch.heard()
