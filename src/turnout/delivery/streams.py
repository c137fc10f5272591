"""Queue of deliveries in JetStream: the stream of those that wait, and that of those that were given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Final, Self

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.delivery.queue import (
    OF_LETTERS,
    AttemptLog,
    Backlog,
    DeadDelivery,
    DeliveryQueue,
    JetStreamBucket,
    QueuedMessage,
)
from turnout.errors import StreamError
from turnout.nats.jetstream import AckPolicy, Consumer, ConsumerConfig, Expect, JetStream, PullOptions, Stream, connect
from turnout.nats.jetstream.errors import MessageNotFoundError
from turnout.nats.protocol.headers import NAME_RULE, HeaderInput, Headers, fitting
from turnout.nats.protocol.positions import StreamIdentity
from turnout.routes.endpoints import NatsSink
from turnout.routes.webhooks import WebhooksPart
from turnout.subscriptions.destinations import delivery_address

CONSUMER: Final = "turnout-deliver"
"""Name of the durable consumer: several dispatchers share it, and each message goes to one of them."""

ACK_WAIT_SECONDS: Final = 30.0
"""Seconds after which a message of a killed dispatcher goes to another."""

_REQUESTED: Final = 2_000
_ROOM: Final = 16 << 10
"""Bytes below `max_payload` from which on the headers of a letter may be what is too much."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryStreams:
    """Stream of deliveries with its consumer, and the stream of dead letters.

    Attributes:
        js: has them.
        webhooks: names them.
        consumer: consumer of the deliveries.
        dead: stream of the dead letters.
        labels: both streams with their identities, for ids: one that is made anew has the same sequences again.
    """

    js: JetStream
    webhooks: WebhooksPart
    consumer: Consumer
    dead: Stream
    labels: tuple[str, str]

    @classmethod
    async def open(cls, js: JetStream, webhooks: WebhooksPart) -> Self:
        """Open the streams, which exist, and make the consumer.

        Raises:
            StreamError: the server refuses one.
        """
        waiting, dead = [await js.stream(name) for name in webhooks.streams]
        config = ConsumerConfig(
            durable_name=CONSUMER,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            max_ack_pending=-1,
            filter_subject=f"{webhooks.subject}.>",
        )
        labels = await _label(waiting), await _label(dead)
        return cls(js, webhooks, await waiting.create_or_update_consumer(config), dead, labels)

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
        return await AttemptLog.open(await JetStreamBucket.open(self.js, f"{self.name}-attempts"), self.label)

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[AsyncIterator[QueuedMessage]]:
        """Pull deliveries without a pause."""
        async with await self.consumer.messages(PullOptions(max_messages=_REQUESTED)) as pulled:
            yield pulled

    async def settling_seconds(self) -> float:
        """Return how long messages of a killed dispatcher may take to come again: their time for an acknowledgement."""
        return ACK_WAIT_SECONDS + 2.0 if (await self.consumer.info()).num_ack_pending else 0.0

    def wait_of(self, message: QueuedMessage) -> float:  # noqa: ARG002 - for queues that hold nothing back
        """Return 0: the server has held a message back until its time."""
        return 0.0

    def is_ours(self, message: QueuedMessage) -> bool:  # noqa: ARG002 - for queues that give messages to others
        """Return True: a message goes to another dispatcher only after no sign of life from this one."""
        return True

    async def store_dead(self, subject: str, body: bytes, headers: HeaderInput, identity: str) -> None:
        """Store a delivery that is given up, once.

        Raises:
            StreamError: the server does not store it.
        """
        where = f"{self.webhooks.dead_subject}.{subject.removeprefix(f'{self.webhooks.subject}.')}"
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
        info = await self.consumer.info()
        return not info.num_pending and not info.num_ack_pending

    async def backlog(self) -> Backlog:
        """Return the deliveries that wait, and the age of the oldest.

        The first message behind the acknowledged ones is the oldest that waits: also in a stream that keeps messages.
        """
        info = await self.consumer.info()
        waiting = info.num_pending + info.num_ack_pending
        if not waiting:
            return Backlog(0, None)
        stream = await self.js.stream(self.name)
        state = (await stream.info()).state
        floor = info.ack_floor.stream_seq
        if state.first_seq > floor:
            return Backlog(waiting, state.first_ts)
        try:
            return Backlog(waiting, (await stream.get_message(floor + 1)).time)
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

    async def _move(self, subject: str, headers: Headers, data: bytes, sequence: int) -> None:
        tokens = subject.removeprefix(f"{self.webhooks.dead_subject}.")
        kept = {name: values for name, values in headers.items() if not name.lower().startswith(OF_LETTERS)}
        identity = f"redriven:{self.labels[1]}:{sequence}"
        where = f"{self.webhooks.subject}.{tokens}"
        fitting_headers = _fitting(kept, subject)
        try:
            await self.js.publish(where, data, headers=fitting_headers, msg_id=identity)
        except StreamError:
            if len(data) < self.js.connection.max_payload - _ROOM:
                raise
            # A letter as large as the server takes has no room for an identity.
            await self.js.publish(where, data, headers=fitting_headers or None)

    async def redrive(self, positions: Collection[str] | None = None) -> int:
        """Move dead letters back into the delivery stream; return their number.

        Args:
            positions: sequences of the letters; None for all.
        """
        return await self._redrive_all() if positions is None else sum([await self._redrive_one(p) for p in positions])

    async def _redrive_one(self, position: str) -> int:
        """Move the letter at a sequence; return 0 if there is none."""
        sequence = decimal(position, LARGEST_SEQUENCE)
        try:
            letter = await self.dead.get_message(sequence or 0) if sequence else None
        except MessageNotFoundError:
            letter = None
        if letter is None:
            return 0
        await self._move(letter.subject, letter.headers, letter.data, letter.sequence)
        await self.dead.delete_message(letter.sequence)
        return 1

    async def _redrive_all(self) -> int:
        moved = 0
        last = (await self.dead.info()).state.last_seq
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, inactive_threshold=60.0)
        consumer = await self.dead.create_consumer(config)
        while letters := await consumer.fetch(500, no_wait=True, timeout=5.0):
            for letter in letters:
                if letter.sequence > last:
                    return moved
                await self._move(letter.subject, letter.headers, letter.data, letter.sequence)
                await self.dead.delete_message(letter.sequence)
                moved += 1
        return moved


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
        yield await DeliveryStreams.open(js, webhooks)
