"""Queue of deliveries in JetStream: the stream of those that wait, and that of those that were given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial
from itertools import compress
from typing import Final, Self

from turnout.base.background import keep_running
from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.delivery.queue import (
    OF_LETTERS,
    AttemptLog,
    Backlog,
    DeadDelivery,
    DeliveryQueue,
    JetStreamBucket,
    QueuedMessage,
    wait_after,
)
from turnout.errors import RunError, StreamError, message_of
from turnout.nats.jetstream import (
    AckPolicy,
    ConsumerConfig,
    Expect,
    JetStream,
    KeyValue,
    PullOptions,
    RawMessage,
    Stream,
    connect,
)
from turnout.nats.jetstream.config import SubjectTransformConfig
from turnout.nats.jetstream.errors import (
    ConsumerDeletedError,
    ConsumerNotFoundError,
    MessageNotFoundError,
    NoRespondersError,
    WrongLastSequenceError,
)
from turnout.nats.jetstream.kv import Entry, KeyNotFoundError
from turnout.nats.jetstream.message import Message
from turnout.nats.jetstream.publish import Ttl
from turnout.nats.protocol.headers import NAME_RULE, HeaderInput, fitting
from turnout.nats.protocol.positions import StreamIdentity
from turnout.routes.endpoints import NatsSink
from turnout.routes.webhooks import SHARES, WebhooksPart
from turnout.runtime.leases import TRIES, Membership, leased_seconds
from turnout.subscriptions.destinations import delivery_address

CONSUMER: Final = "turnout-deliver"
"""Beginning of the names of consumers: that of a share has its number and the term of its owner, so that what a former
owner acknowledges, and what the server still sends to it, is of no effect."""

ACK_WAIT_SECONDS: Final = 30.0
"""Seconds after which a message without a sign of life is delivered again."""

_LEASE_SECONDS: Final = 10.0
"""Length of a dispatcher's lease: another one has its endpoints so long after a kill."""

_FLUSH_SECONDS: Final = 2.0
_REQUESTED: Final = 500
_ROOM: Final = 16 << 10
"""Bytes below `max_payload` from which on the headers of a letter may be what is too much."""
_log = logging.getLogger(__name__)


class Shares(Membership):
    """Shares of one member, whose table is in a bucket of JetStream.

    Args:
        bucket: keeps the table.
        key: its key there.
        name: name of this member, which no other has.
        count: number of shares.
        seconds: length of its lease.
        is_lasting: whether the table stays although others of the bucket expire.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        bucket: KeyValue,
        key: str,
        name: str,
        count: int,
        seconds: float,
        *,
        is_lasting: bool = False,
        clock: Callable[[], float] = leased_seconds,
    ) -> None:
        super().__init__(name, count, seconds, clock)
        self._bucket = bucket
        self._key = key
        self._ttl: Ttl | None = "never" if is_lasting else None

    async def step(self, busy: Collection[int] = (), *, ends: bool = False) -> bool:
        """Renew the lease, take free shares, and give up those that others are to have; return whether it is valid.

        Args:
            busy: leaving shares with work that is not done yet.
            ends: whether this member leaves.

        Raises:
            RunError: something else writes there, or other members divide the work otherwise.
            StreamError: the store refuses the table.
            ConnectionLostError: the store does not answer; the lease runs on until its end.
        """
        # Work may have begun meanwhile for those that this step finds to leave.
        done = self.leaving.difference(busy)
        for _ in range(TRIES):
            entry: Entry | None = None
            with suppress(KeyNotFoundError):
                entry = await self._bucket.get(self._key)
            table = self.read(None if entry is None else entry.value)
            begun = self.enter(table, done, ends=ends)
            try:
                if entry is None:
                    await self._bucket.create(self._key, table.text(), ttl=self._ttl)
                else:
                    await self._bucket.update(self._key, table.text(), entry.revision, ttl=self._ttl)
            except WrongLastSequenceError:
                continue
            self.written(table, begun)
            break
        return self.is_valid

    async def leave(self) -> None:
        """Give up all shares, when nothing more is done for them: others take them with their next steps."""
        # Whether the answer comes or not, others may have them from now on.
        self.owned, self.until = {}, self.clock()
        if self._seen:
            with suppress(StreamError, ConnectionError, RunError, asyncio.TimeoutError):
                await self.step(ends=True)


@dataclass(slots=True)
class _Pulling:
    """Share whose messages are pulled, since a term.

    Attributes:
        number: number of the share.
        term: term of this owner.
        before: sequence up to which messages may have been delivered before.
        work: pulls.
        last: the message that came last.
    """

    number: int
    term: int
    before: int = 0
    work: asyncio.Task[None] | None = None
    last: Message | None = None


class DeliveryStreams:
    """Stream of deliveries with the consumers of its shares, and the stream of dead letters.

    Args:
        js: has them.
        webhooks: names them.
        streams: the one of the deliveries, and that of the dead letters.
        labels: both with their identities, for ids: one that is made anew has the same sequences again.
        bucket: of the attempts.
    """

    def __init__(
        self, js: JetStream, webhooks: WebhooksPart, streams: list[Stream], labels: list[str], bucket: JetStreamBucket
    ) -> None:
        self.js, self.webhooks, self.labels = js, webhooks, labels
        self._waiting, self.dead = streams
        config, (source, target) = self._waiting.cached_info.config, webhooks.division
        self._is_queue = config.retention == "workqueue"
        divided = [source], SubjectTransformConfig(src=source, dest=target), True
        found = list(config.subjects or ()), config.subject_transform, self._is_queue
        self._count = SHARES if found == divided else 1
        self._log = AttemptLog(bucket, labels[0], set())
        name = js.connection.unique()
        self._shares = Shares(bucket.bucket, "shares", name, self._count, _LEASE_SECONDS, is_lasting=True)
        self._pulling: dict[str, _Pulling] = {}
        self._merged: asyncio.Queue[Message | Exception] = asyncio.Queue(_REQUESTED)
        self._under_way: Callable[[], Iterable[QueuedMessage]] = tuple
        self._renewing: asyncio.Task[None] | None = None
        self._deleted: set[int] = set()
        self._is_ending = False

    @classmethod
    async def open(cls, js: JetStream, webhooks: WebhooksPart) -> Self:
        """Open the streams, which exist, and the bucket of attempts.

        Raises:
            StreamError: the server refuses one.
        """
        streams = [await js.stream(name) for name in webhooks.streams]
        bucket = await JetStreamBucket.open(js, f"{webhooks.streams[0]}-attempts")
        return cls(js, webhooks, streams, [await _label(stream) for stream in streams], bucket)

    async def close(self) -> None:
        """Give up the shares: other dispatchers have their endpoints at once."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            await self._unanswered(self._pulling.values())
            await self._shares.leave()

    @property
    def name(self) -> str:
        """Name of the delivery stream."""
        return self.webhooks.streams[0]

    @property
    def label(self) -> str:
        """The delivery stream with its identity."""
        return self.labels[0]

    async def attempts(self) -> AttemptLog:
        """Open the log of failed attempts."""
        await self._log.refresh()
        return self._log

    # -- shares

    @asynccontextmanager
    async def messages(
        self, under_way: Callable[[], Iterable[QueuedMessage]]
    ) -> AsyncIterator[AsyncIterator[QueuedMessage]]:
        """Pull the deliveries of this dispatcher's shares without a pause; `close` gives the shares up."""
        self._under_way = under_way
        if self._count == 1:
            _log.info("%s: one dispatcher at a time delivers, as the stream does not divide its subjects", self.name)
        await self._renew()
        renew = keep_running(f"shares of {self.name}", self._renew, every=self._shares.pause, longest=1.0)
        self._renewing = asyncio.create_task(renew)
        try:
            yield self._received()
        finally:
            self._is_ending = True
            await self._stop(self._pulling.values())

    async def _received(self) -> AsyncIterator[QueuedMessage]:
        while True:
            message = await self._merged.get()
            if isinstance(message, Exception):
                raise message
            if self.is_ours(message, begins=True):
                yield message

    async def _stop(self, several: Iterable[_Pulling]) -> None:
        works = [pulling.work for pulling in several if pulling.work is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _renew(self) -> None:
        """Renew the lease; pull new shares, and nothing more of those that other dispatchers have or are to have."""
        shares = self._shares
        busy = {pulling.number for message in self._under_way() if (pulling := self._of(message)) is not None}
        leaving = shares.leaving - busy
        busy |= await self._unanswered(one for one in self._pulling.values() if one.number in leaving)
        await shares.step(busy)
        lost = {name: one for name, one in self._pulling.items() if not shares.owns(one.number, one.term)}
        await self._stop([*lost.values(), *(one for one in self._pulling.values() if one.number in shares.leaving)])
        for name in lost:
            self._pulling.pop(name, None)
            if name == CONSUMER:
                # Messages of its earlier term could not be told from new ones.
                await self._merged.put(RunError(f"{self.name}: another dispatcher has the deliveries now"))
        known = {one.number for one in self._pulling.values()}
        for number, term in shares.owned.items():
            if number not in known and not self._is_ending:
                pulling = _Pulling(number, term)
                name = f"{CONSUMER}-{number}-{term}" if self._is_queue else CONSUMER
                self._pulling[name] = pulling
                pulling.work = asyncio.create_task(self._pull(name, pulling))

    async def _unanswered(self, several: Iterable[_Pulling]) -> set[int]:
        """Return the shares of which the server may not have all acknowledgements: consumers take them in order."""
        lasts = {one.number: one.last.reply for one in several if one.last is not None}
        ask = partial(self.js.connection.ask_and_wait, payload=b"+WPI", timeout=_FLUSH_SECONDS)
        answers = await asyncio.gather(*map(ask, lasts.values()), return_exceptions=True)
        failed = (isinstance(one, Exception) and not isinstance(one, NoRespondersError) for one in answers)
        return set(compress(lasts, failed))

    async def _pull(self, name: str, pulling: _Pulling) -> None:
        try:
            subject = self.webhooks.subject
            filters = [f"{subject}.>"] if self._count == 1 else [f"{subject}.{pulling.number}.*.*"]
            if self._count > 1 and not pulling.number:
                # What waits since before the stream divided its subjects.
                filters.append(f"{subject}.*.*")
            await self._replace(name, pulling)
            config = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1)
            config = replace(config, ack_wait=ACK_WAIT_SECONDS, filter_subjects=filters)
            consumer = await self._waiting.create_or_update_consumer(config)
            if not self._is_queue and (await consumer.info()).num_ack_pending:
                _log.info("%s: deliveries wait for those that a former dispatcher had", self.name)
                await asyncio.sleep(ACK_WAIT_SECONDS + 2.0)
            async with await consumer.messages(PullOptions(max_messages=_REQUESTED)) as pulled:
                async for message in pulled:
                    pulling.last = message
                    await self._merged.put(message)
        except Exception as failure:  # noqa: BLE001 - the dispatcher raises it
            if self._is_queue and isinstance(failure, ConsumerDeletedError | ConsumerNotFoundError):
                # By the next owner, before this process has seen that it has lost the share; or by hand.
                _log.warning("%s: the consumer of share %d is gone: %s", self.name, pulling.number, message_of(failure))
                self._deleted.add(pulling.number)
                if self._pulling.get(name) is pulling:
                    del self._pulling[name]
            elif self._shares.owns(pulling.number, pulling.term):
                await self._merged.put(failure)
            else:
                _log.debug("%s: a share has gone: %s", self.name, message_of(failure))

    async def _replace(self, name: str, pulling: _Pulling) -> None:
        """Delete the consumers of former owners: what they have not acknowledged comes again, in order."""
        if not self._is_queue:
            return
        former = f"{CONSUMER}-" if self._count == 1 else f"{CONSUMER}-{pulling.number}-"
        found = [one async for one in self._waiting.consumers() if one.name.startswith(former) or one.name == CONSUMER]
        pulling.before = max((one.delivered.stream_seq for one in found), default=0)
        if not found and (pulling.term > 1 or pulling.number in self._deleted):
            # The owner before has deleted one, and ended before it made its own.
            pulling.before = (await self._waiting.info()).state.last_seq
        for one in found:
            if one.name != name:
                with suppress(ConsumerNotFoundError):
                    await self._waiting.delete_consumer(one.name)

    def _of(self, message: QueuedMessage) -> _Pulling | None:
        """Return the share that a message belongs to; None if it is not this dispatcher's any more."""
        pulling = self._pulling.get(message.metadata.consumer) if isinstance(message, Message) else None
        return pulling if pulling is not None and self._shares.owns(pulling.number, pulling.term) else None

    def claim(self) -> Hashable:
        """Return what this dispatcher may deliver now; None for nothing, as its lease is over."""
        return tuple(self._shares.owned.items()) if self._shares.is_valid else None

    def is_ours(self, message: QueuedMessage, *, begins: bool = False) -> bool:
        """Return False if another dispatcher has the endpoint of a message, or is to have it and a request begins."""
        pulling = self._of(message)
        return pulling is not None and not (begins and pulling.number in self._shares.leaving)

    async def history_of(self, message: QueuedMessage) -> tuple[bool, float]:
        """Return whether an attempt may have failed, also of a former owner; the seconds are for the latter's."""
        pulling = self._of(message)
        if message.is_redelivered or pulling is None or message.sequence > pulling.before:
            return message.is_redelivered, 0.0
        return True, wait_after(await self._log.of(message.sequence))

    async def store_dead(self, subject: str, body: bytes, headers: HeaderInput, identity: str) -> None:
        """Store a delivery that is given up, once.

        Raises:
            StreamError: the server does not store it.
        """
        # Without the number of its share, which the stream gives it anew.
        address = ".".join(subject.removeprefix(f"{self.webhooks.subject}.").split(".")[-2:])
        where = f"{self.webhooks.dead_subject}.{address}"
        kept = _fitting(headers, subject)
        if identity:
            expect = Expect(stream=f"{self.name}-dead")
            await self.js.publish(where, body, headers=kept, msg_id=identity, expect=expect)
        else:
            await self.js.publish(where, body, headers=kept or None)

    async def store_notice(self, body: bytes, identity: str) -> None:
        """Store a notice for the operator, once.

        Raises:
            StreamError: the server does not store it.
        """
        if (subject := self.webhooks.notice_subject) is not None:
            await self.js.publish(subject, body, headers={"Content-Type": "application/json"}, msg_id=identity)

    async def is_drained(self) -> bool:
        """Return True if no delivery waits."""
        return not (await self.backlog()).waiting

    async def backlog(self) -> Backlog:
        """Return the deliveries that wait, and the age of the oldest."""
        state = (await self._waiting.info()).state
        if self._is_queue:
            return Backlog(state.messages, state.first_ts if state.messages else None)
        # In a stream that keeps messages, the first one behind the acknowledged ones is the oldest.
        try:
            info = await self._waiting.consumer_info(CONSUMER)
        except ConsumerNotFoundError:
            return Backlog(state.messages, state.first_ts if state.messages else None)
        waiting = info.num_pending + info.num_ack_pending
        try:
            floor = max(state.first_seq, info.ack_floor.stream_seq + 1)
            return Backlog(waiting, (await self._waiting.get_message(floor)).time if waiting else None)
        except MessageNotFoundError:
            return Backlog(waiting, None)

    async def letters(self, count: int) -> list[DeadDelivery]:
        """Return the letters among the last *count* sequences, the newest first."""
        state = (await self.dead.info()).state
        sequences = range(state.last_seq, max(state.first_seq, state.last_seq - count + 1) - 1, -1)
        found = await asyncio.gather(*map(self._letter, sequences if state.messages else ()))
        return [letter for letter in found if letter is not None]

    async def _letter(self, sequence: int) -> DeadDelivery | None:
        try:
            stored = await self.dead.get_message(sequence)
        except MessageNotFoundError:
            return None
        address = delivery_address(self.webhooks.dead_subject, stored.subject)
        return DeadDelivery.of(f"{sequence}", address, stored.time, stored.headers, len(stored.data))

    async def _move(self, letter: RawMessage) -> None:
        tokens = letter.subject.removeprefix(f"{self.webhooks.dead_subject}.")
        kept = {name: values for name, values in letter.headers.items() if not name.lower().startswith(OF_LETTERS)}
        identity = f"redriven:{self.labels[1]}:{letter.sequence}"
        where = f"{self.webhooks.subject}.{tokens}"
        fitting_headers = _fitting(kept, letter.subject)
        try:
            await self.js.publish(where, letter.data, headers=fitting_headers, msg_id=identity)
        except StreamError:
            if len(letter.data) < self.js.connection.max_payload - _ROOM:
                raise
            # A letter as large as the server takes has no room for an identity.
            await self.js.publish(where, letter.data, headers=fitting_headers or None)
        await self.dead.delete_message(letter.sequence)

    async def redrive(self, positions: Collection[str] | None = None) -> int:
        """Move dead letters back into the delivery stream; return their number.

        Args:
            positions: sequences of the letters; None for all.
        """
        if positions is not None:
            return sum([await self._redrive_one(position) for position in positions])
        moved, sequence, last = 0, 0, (await self.dead.info()).state.last_seq
        with suppress(MessageNotFoundError):
            while sequence < last:
                letter = await self.dead.get_message(sequence + 1, next_by_subject=">")
                moved, sequence = moved + (letter.sequence <= last), letter.sequence
                if sequence <= last:
                    await self._move(letter)
        return moved

    async def _redrive_one(self, position: str) -> int:
        """Move the letter at a sequence; return 0 if there is none."""
        sequence = decimal(position, LARGEST_SEQUENCE)
        try:
            letter = await self.dead.get_message(sequence or 0) if sequence else None
        except MessageNotFoundError:
            letter = None
        if letter is None:
            return 0
        await self._move(letter)
        return 1


async def _label(stream: Stream) -> str:
    info = await stream.info()
    created = "" if info.created is None else f"{info.created.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    return StreamIdentity.of(created).label(info.config.name)


def _fitting(headers: HeaderInput, subject: str) -> HeaderInput:
    """Return the headers of a stored message that can be stored again; with others it could never be moved."""
    fitting_headers = fitting(headers)
    if len(fitting_headers) < len(headers):
        left_out = ", ".join(repr(name) for name in headers if name not in fitting_headers)
        _log.warning("a delivery on %r is stored without the headers %s: %s", subject, left_out, NAME_RULE)
    return fitting_headers


@asynccontextmanager
async def opened_streams(sink: NatsSink, webhooks: WebhooksPart) -> AsyncIterator[DeliveryQueue]:
    """Connect to the server of a sink, and open the streams of its deliveries.

    Raises:
        StreamError: the server refuses one.
        ConnectionLostError: it cannot be reached.
    """
    async with connect(sink.connection) as js:
        queue = await DeliveryStreams.open(js, webhooks)
        try:
            yield queue
        finally:
            await queue.close()
