"""Queue of deliveries in Kafka: topics of those that wait, of those that were given up, and of failed attempts.

The key of a delivery is its address, ``ENDPOINT.SUBSCRIPTION``, so that deliveries of a subscription to an endpoint are
in one partition, in order. What has to be sent again later leaves memory, and is read again by its offset.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, TypeVar, TypeVarTuple, cast

from turnout.delivery.queue import (
    OF_LETTERS,
    AttemptLog,
    Backlog,
    DeadDelivery,
    DeliveryQueue,
    QueuedMessage,
    attempts_key,
    attempts_of,
    kafka_letters,
    wait_after,
)
from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import PartitionProgress
from turnout.kafka.group import SESSION_MILLISECONDS, GroupReader, GroupRecord, OffsetReader
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaHeaders, KafkaMessages, KafkaProducer
from turnout.kafka.reader import TopicTable, committed_progress
from turnout.nats.protocol.headers import MESSAGE_ID, HeaderInput, Headers, pairs_of
from turnout.routes.endpoints import KafkaSink
from turnout.routes.webhooks import WebhooksPart
from turnout.runtime.kafka.source import partitions_of
from turnout.runtime.leases import leased_seconds

_Arguments = TypeVarTuple("_Arguments")


class _Record(NamedTuple):
    """Record to store."""

    topic: str
    key: bytes
    value: bytes | None
    headers: KafkaHeaders


class KafkaWriter:
    """Stores records; one flush stores all that have arrived during the one before.

    Args:
        options: options of the client.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._producer = KafkaProducer(options)
        self._waiting: list[tuple[_Record, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def store(self, topic: str, key: bytes, value: bytes | None, headers: KafkaHeaders = ()) -> None:
        """Store a record; after the return it is in the topic.

        Raises:
            StreamError: a broker refuses it.
            ConnectionLostError: no broker answers.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_Record(topic, key, value, headers), stored))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await stored

    async def close(self) -> None:
        """Wait for what is being stored, and close the connections."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await asyncio.to_thread(self._producer.close)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                refused: dict[int, Exception] = {}
                failure: Exception | None = None
                try:
                    await asyncio.to_thread(self._publish, [record for record, _ in batch], refused)
                except Exception as problem:  # noqa: BLE001 - the caller that waits for a record raises it
                    failure = problem
                for index, (_, stored) in enumerate(batch):
                    reason = failure or refused.get(index)
                    if stored.done():
                        continue
                    if reason is None:
                        stored.set_result(None)
                    else:
                        stored.set_exception(reason)
        finally:
            self._flushing = None

    def _publish(self, records: Sequence[_Record], refused: dict[int, Exception]) -> None:
        def refuse(index: int, reason: StreamError) -> None:
            refused[index] = reason

        topics, keys, values, headers = map(list, zip(*records, strict=True))
        self._producer.publish(KafkaMessages(topics, values, keys, headers), refuse)
        self._producer.flush()


_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_PARTITION_BITS: Final = 20
_POLL_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 1.0
_MAX_DUE: Final = 500
_FRESH_SECONDS: Final = 1.0
_BLOCKED_SECONDS: Final = 3.0


class KafkaDelivery:
    """Record of the deliveries' topic with its acknowledgements.

    Args:
        queue: that has it.
        record: as the group has it, from an earlier read if it is read again.
        message: of the client.
    """

    def __init__(self, queue: KafkaQueue, record: GroupRecord, message: Any, *, is_repeated: bool) -> None:
        self.data: bytes = message.value() or b""
        self.subject = f"{queue.webhooks.subject}.{_text(message.key())}"
        self.sequence = record.offset << _PARTITION_BITS | record.partition
        self.is_redelivered = is_repeated or attempts_key(queue.label, self.sequence) in queue.table.values
        self.record = record
        self._queue = queue
        self._message = message

    @cached_property
    def headers(self) -> Headers:
        """All headers with their values in order."""
        table: Headers = {}
        for name, value in self._message.headers() or ():
            table.setdefault(name, []).append(_text(value))
        return table

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""
        return self.headers.get(name, [""])[0]

    @property
    def timestamp(self) -> datetime:
        """Time at which the message was stored, or that its producer gave."""
        return datetime.fromtimestamp(max(0, self._message.timestamp()[1]) / 1000, UTC)

    def ack_now(self) -> None:
        """Finish the delivery; that is committed within a second."""
        self._queue.group.finish(self.record)

    async def ack(self) -> None:
        """Finish the delivery."""
        self.ack_now()

    async def double_ack(self) -> None:
        """Finish the delivery: a kill before the commit repeats it."""
        self.ack_now()

    async def nak(self, delay: float | None = None) -> None:
        """Give the delivery back: it is read again after *delay* seconds."""
        self._queue.wait(self.record, delay or 0.0)

    def nak_now(self) -> None:
        """Do nothing: the delivery is unfinished, and the next reader of the partition has it."""

    async def in_progress(self) -> None:
        """Do nothing: a member keeps its partitions while it lives."""


class KafkaQueue:
    """Topics of deliveries, dead letters and attempts, which exist.

    All questions to brokers are asked by one thread of its own.

    Args:
        options: of the client.
        webhooks: names the topics.
    """

    def __init__(self, options: KafkaOptions, webhooks: WebhooksPart) -> None:
        self.webhooks = webhooks
        self._options = options
        self._label = self.name
        self._thread = ThreadPoolExecutor(1, "turnout-deliver-kafka")
        self._writer = KafkaWriter(options)
        self._due: list[tuple[float, int, GroupRecord]] = []
        self._fresh_until = 0.0
        self.table: TopicTable
        self.group: GroupReader
        self._lookup: OffsetReader
        self._clients = ExitStack()
        self._is_reading = False
        self._session_seconds = float(options.properties.get("session.timeout.ms", SESSION_MILLISECONDS)) / 1000
        self._claimed_at, self._blocked_until = leased_seconds(), 0.0

    @classmethod
    @asynccontextmanager
    async def opened(cls, options: KafkaOptions, webhooks: WebhooksPart) -> AsyncIterator[Self]:
        """Open the queue, and close it in the end.

        Raises:
            StreamError: a broker refuses a topic.
            ConnectionLostError: no broker answers.
        """
        queue = cls(options, webhooks)
        try:
            await queue._run(queue._open)
            yield queue
        finally:
            await queue._writer.close()
            await queue._run(queue._clients.close)
            queue._thread.shutdown(wait=False)

    def _open(self) -> None:
        _, _, attempts = self.webhooks.topics
        with KafkaAdmin(self._options) as admin:
            topic = admin.existing([self.name]).get(self.name)
        if topic is not None and topic.id is not None:
            self._label = f"{self.name}.{topic.id}"
        self.table = self._clients.enter_context(closing(TopicTable(self._options, attempts)))
        self.table.catch_up()
        self._lookup = self._clients.enter_context(closing(OffsetReader(self._options, self.name)))

    async def _run(self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    @property
    def name(self) -> str:
        """Name of the topic of deliveries."""
        return str(self.webhooks.stream)

    @property
    def label(self) -> str:
        """The topic with its id, if brokers give it one."""
        return self._label

    # -- deliveries

    @asynccontextmanager
    async def messages(
        self,
        under_way: Callable[[], Iterable[QueuedMessage]],  # noqa: ARG002 - brokers divide the partitions
    ) -> AsyncIterator[AsyncIterator[QueuedMessage]]:
        """Join the group, and fetch deliveries without an end."""
        await self._run(self._join)
        yield self._fetched()

    def _join(self) -> None:
        group = GroupReader(self._options, self.name, self.webhooks.group, before=self.table.catch_up)
        self.group = self._clients.enter_context(closing(group))
        self._is_reading = True

    async def _fetched(self) -> AsyncIterator[QueuedMessage]:
        while True:
            for delivery in await self._run(self._read_again, self._take_due()):
                yield delivery
            now = time.monotonic()
            next_due = self._due[0][0] - now if self._due else _POLL_SECONDS
            for record in await self._run(self.group.read, min(_POLL_SECONDS, max(0.0, next_due))):
                yield KafkaDelivery(self, record, record.message, is_repeated=False)

    def wait(self, record: GroupRecord, seconds: float) -> None:
        """Have a record read again after so many seconds; not if another member has it."""
        if record.is_ours:
            # The id decides between equal times, as records have no order.
            heapq.heappush(self._due, (time.monotonic() + seconds, id(record), record))

    def _take_due(self) -> list[GroupRecord]:
        """Remove and return the records whose time has come, in the order of their offsets."""
        now = time.monotonic()
        records: list[GroupRecord] = []
        while self._due and self._due[0][0] <= now and len(records) < _MAX_DUE:
            record = heapq.heappop(self._due)[2]
            if record.is_ours:
                records.append(record)
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def _read_again(self, records: Sequence[GroupRecord]) -> list[KafkaDelivery]:
        found = []
        for partition in dict.fromkeys(record.partition for record in records):
            wanted = [record for record in records if record.partition == partition]
            try:
                messages = self._lookup.read(partition, [record.offset for record in wanted])
                missing = [record for record in wanted if record.offset not in messages]
                first = self._lookup.first(partition) if missing else 0
            except TurnoutError as failure:
                _log.warning("%s; next try in %g s", failure, _AGAIN_SECONDS)
                for record in wanted:
                    self.wait(record, _AGAIN_SECONDS)
                continue
            for record in missing:
                self._missing(record, first)
            found += [
                KafkaDelivery(self, record, messages[record.offset], is_repeated=True)
                for record in wanted
                if record.offset in messages
            ]
        return found

    def _missing(self, record: GroupRecord, first: int) -> None:
        where = f"{self.name}:{record.partition}:{record.offset}"
        if record.offset < first:
            _log.warning("the delivery %s was removed by the topic's limits before an endpoint took it", where)
            self.group.finish(record)
            return
        _log.warning("the delivery %s cannot be read again; next try in %g s", where, _AGAIN_SECONDS)
        self.wait(record, _AGAIN_SECONDS)

    async def history_of(self, message: QueuedMessage) -> tuple[bool, float]:
        """Return whether an attempt has failed, and the seconds until the next: a restart may bring it too early."""
        if not message.is_redelivered:
            return False, 0.0
        return True, wait_after(attempts_of(self.table.values.get(attempts_key(self.label, message.sequence))))

    def claim(self) -> Hashable:
        """Return None just after a pause of this process so long that other members may have its partitions.

        The dispatcher asks twice a second; the client needs a moment to find its session ended.
        """
        now, before = leased_seconds(), self._claimed_at
        self._claimed_at = now
        if now - before > self._session_seconds / 2:
            self._blocked_until = now + _BLOCKED_SECONDS
        return None if now < self._blocked_until else ()

    def is_ours(self, message: QueuedMessage, *, begins: bool = False) -> bool:  # noqa: ARG002 - others wait for none
        """Return False if the partition of a delivery went to another member."""
        return not isinstance(message, KafkaDelivery) or message.record.is_ours

    async def is_drained(self) -> bool:
        """Return True if no delivery waits."""
        return self._is_reading and await self._run(self.group.is_finished)

    # -- attempts

    async def attempts(self) -> AttemptLog:
        """Open the log of failed attempts."""
        return await AttemptLog.open(self, self.label)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key of the attempts' topic, at most a second old if another member has written it."""
        if time.monotonic() >= self._fresh_until:
            await self._run(self.table.catch_up)
            self._fresh_until = time.monotonic() + _FRESH_SECONDS
        return self.table.values.get(key)

    async def put(self, key: str, value: bytes) -> None:
        """Store the value of a key in the attempts' topic."""
        await self._writer.store(self.webhooks.topics[2], key.encode(), value)
        self.table.values[key] = value

    async def purge(self, key: str) -> None:
        """Remove a key from the attempts' topic."""
        if key in self.table.values:
            await self._writer.store(self.webhooks.topics[2], key.encode(), None)
            self.table.values.pop(key, None)

    async def backlog(self) -> Backlog:
        """Return the deliveries that wait in all partitions, by what the group has committed."""
        return await self._run(self._backlog)

    def _backlog(self) -> Backlog:
        with KafkaAdmin(self._options) as admin:
            ends = admin.ends(partitions_of(admin.describe([self.name])))
        committed = committed_progress(self._options, self.name, self.webhooks.group, [number for _, number in ends])
        waiting, times = 0, []
        for (_, number), end in ends.items():
            progress = committed.get(number) or PartitionProgress(end.first)
            waiting += progress.unfinished + max(0, end.next - max(end.first, progress.bound))
            first = max(end.first, progress.commit()[0])
            if first < end.next:
                messages = self._lookup.read(number, [first]).values()
                times += [message.timestamp()[1] for message in messages if message.timestamp()[1] > 0]
        return Backlog(waiting, datetime.fromtimestamp(min(times) / 1000, UTC) if times else None)

    # -- dead letters

    async def store_dead(self, subject: str, body: bytes, headers: HeaderInput, identity: str) -> None:  # noqa: ARG002
        """Store a delivery that is given up; a kill before the commit stores it twice.

        Raises:
            StreamError: a broker does not store it.
            ConnectionLostError: no broker answers.
        """
        key = subject.removeprefix(f"{self.webhooks.subject}.").encode()
        await self._writer.store(
            self.webhooks.topics[1], key, body, [(name, value.encode()) for name, value in pairs_of(headers)]
        )

    async def store_notice(self, body: bytes, identity: str) -> None:
        """Store a notice for the operator.

        Raises:
            StreamError: a broker does not store it.
            ConnectionLostError: no broker answers.
        """
        subject = self.webhooks.notice_subject
        if subject is None:
            return
        headers = [("Content-Type", b"application/json"), (MESSAGE_ID, identity.encode())]
        prefix = f"{self.webhooks.subject}."
        is_delivery = subject.startswith(prefix)
        topic, key = (self.name, subject.removeprefix(prefix)) if is_delivery else (subject, identity)
        await self._writer.store(topic, key.encode(), body, headers)

    async def letters(self, count: int) -> list[DeadDelivery]:
        """Return the last dead letters that no redrive has moved, the newest first."""
        return await self._run(kafka_letters, self._options, self.webhooks, count)

    async def redrive(self, positions: Collection[str] | None = None) -> int:
        """Move dead letters that were not moved before back among the deliveries; return their number.

        Args:
            positions: ``partition:offset`` of the letters; None for all.
        """
        dead = self.webhooks.topics[1]
        letters = await self._run(GroupReader, self._options, dead, f"{self.webhooks.group}.redrive")
        moved = 0
        try:
            # What is given up meanwhile is left for the next time.
            ends = await self._run(letters.ends)
            while not await self._is_finished(letters, ends) and not letters.has_read(ends):
                found = await self._run(letters.read, _POLL_SECONDS)
                records = [
                    record
                    for record in found
                    if record.offset < ends[record.partition]
                    and (positions is None or f"{record.partition}:{record.offset}" in positions)
                ]
                await asyncio.gather(*map(self._move, records))
                for record in records:
                    letters.finish(record)
                moved += len(records)
        finally:
            await self._run(letters.close)
        return moved

    async def _is_finished(self, letters: GroupReader, ends: Mapping[int, int]) -> bool:
        """Return True if all letters are moved; False if that is unknown for now, as a group has no coordinator yet."""
        try:
            return await self._run(letters.is_finished, ends)
        except ConnectionLostError:
            if time.monotonic() > letters.heard_at + self._options.patience:
                raise
            return False

    async def _move(self, letter: GroupRecord) -> None:
        message = letter.message
        headers = cast("KafkaHeaders", message.headers() or ())
        kept = [(name, value) for name, value in headers if not name.lower().startswith(OF_LETTERS)]
        await self._writer.store(self.name, message.key() or b"", message.value(), kept)


def opened_topics(sink: KafkaSink, webhooks: WebhooksPart) -> AbstractAsyncContextManager[DeliveryQueue]:
    """Open the topics of a sink's deliveries; see `KafkaQueue.opened`."""
    return KafkaQueue.opened(sink.client, webhooks)


def _text(value: bytes | str | None) -> str:
    return value if isinstance(value, str) else (value or b"").decode("utf-8", "replace")
