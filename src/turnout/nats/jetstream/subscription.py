"""Push subscriptions: delivery, status management, gap detection (ADR-15, "Automatic Status Management")."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Self

from turnout.errors import StreamError, TurnoutError
from turnout.nats.jetstream._client import Frame, Watchdog, replies_of_messages
from turnout.nats.jetstream.config import AckPolicy, ConsumerInfo
from turnout.nats.jetstream.connection import Api, Interest, NatsConnection
from turnout.nats.jetstream.errors import (
    ConsumerDeletedError,
    FlowControlLostError,
    HeartbeatMissedError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    PinLostError,
    RequestTimeoutError,
    SequenceGapError,
    SlowConsumerError,
    StatusError,
    SubscriptionClosedError,
)
from turnout.nats.jetstream.message import Callback, Mailbox, Message, make_messages
from turnout.nats.protocol.frames import PullStatus
from turnout.nats.protocol.headers import Status
from turnout.nats.protocol.positions import sequences

_MAX_DIGITS = 19
"""Digits of a stream sequence that is read without further checks."""

_NONE = b" "
"""Prefix that no reply has: none contains a blank."""


class ConsumerPosition:
    """Sequences of the last message of a consumer.

    Attributes:
        consumer_seq: of the message in the consumer; 0 before the first.
        stream_seq: of the message in the stream.
    """

    __slots__ = ("_prefix", "consumer_seq", "stream_seq")

    def __init__(self) -> None:
        self.consumer_seq = 0
        self.stream_seq = 0
        self._prefix = _NONE

    def set(self, reply: bytes, stream_seq: int, consumer_seq: int) -> None:
        """Set the position to a message, whose reply has these sequences."""
        self.consumer_seq = consumer_seq
        self.stream_seq = stream_seq
        # Everything before the last five tokens, if these are the numbers.
        self._prefix = reply.rsplit(b".", 5)[0] if reply.count(b".") in (8, 10) else _NONE

    def advance(self, reply: bytes) -> bool:
        """Advance to a message if it is the next one of the same consumer; False if not."""
        tokens = reply.rsplit(b".", 5)
        if (
            tokens[0] != self._prefix
            or tokens[3] != b"%d" % (self.consumer_seq + 1)
            or not tokens[2].isdigit()
            or len(tokens[2]) > _MAX_DIGITS
        ):
            return False
        self.consumer_seq += 1
        self.stream_seq = int(tokens[2])
        return True

    def advance_all(self, replies: Sequence[bytes]) -> bool:
        """Advance to the last of these messages if each is the next one, as `advance` does for each; else False.

        Of one message it takes five times as long as `advance`, of many less than half.
        """
        count, next_seq = len(replies), self.consumer_seq + 1
        # Blanks are in no reply, and so mark where each begins; its prefix is cut off with the blank.
        tokens = (b" " + b" ".join(replies)).replace(b" %b." % self._prefix, b". .").split(b".")
        # Of each: the mark, deliveries, both sequences, time, and pending.
        if len(tokens) != 6 * count + 1 or tokens[1::6].count(b" ") != count:
            return False
        stream_seqs = tokens[3::6]
        expected = str(list(range(next_seq, next_seq + count)))[1:-1].encode()
        if (
            b", ".join(tokens[4::6]) != expected
            or not all(map(bytes.isdigit, stream_seqs))
            or max(map(len, stream_seqs)) > _MAX_DIGITS
        ):
            return False
        self.consumer_seq += count
        self.stream_seq = int(stream_seqs[-1])
        return True


_STALLS_UNTIL_LOST = 3
"""Heartbeats that repeat an answered request until its answers count as lost."""


class FlowControl:
    """Requests for flow control of one subscription.

    Args:
        connection: the connection that answers are sent on.
        lost: called with the subject of a request whose answers do not reach the consumer.
    """

    def __init__(self, connection: NatsConnection, lost: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._lost = lost
        self._answered = b""
        self._stalls = 0

    def answer(self, subject: bytes) -> None:
        """Answer a request, unless it is the one that was answered last."""
        if subject == self._answered:
            return
        self._answered = subject
        with contextlib.suppress(StreamError, ConnectionError):
            self._connection.send_to(subject)

    def stalled(self, subject: bytes, *, waiting: bool) -> None:
        """Handle a heartbeat that says that the consumer waits for the answer to a request.

        Args:
            subject: the subject of the request.
            waiting: whether messages are buffered, behind which the request may be.
        """
        if subject != self._answered:
            self._stalls = 0
            # The request itself was lost, or is still behind messages: it must not be answered early.
            if not waiting:
                self.answer(subject)
            return
        self._stalls += 1
        if self._stalls == _STALLS_UNTIL_LOST:
            self._lost(subject)


StatusCallback = Callable[[Status], "Awaitable[None] | None"]


def _nothing() -> None:
    """Do nothing."""


def status_error(status: Status, request: str) -> StatusError:
    """Return the error for a status."""
    kinds = {PullStatus.DELETED: ConsumerDeletedError, PullStatus.UNPINNED: PinLostError}
    return kinds.get(PullStatus.of(status.code, status.description), StatusError)(status, request=request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Delivery options of a subscription: callback, buffer and acknowledgement.

    Attributes:
        callback: called with every message, one at a time; None to take them with `next` or ``async for``.
        on_status: if given, it gets every status in its order among the messages, and nothing is managed:
            no heartbeats are watched, no flow control is answered, no gaps are reported.
        heartbeat_alarm: seconds of silence until an alarm; three heartbeat intervals if not given (ADR-15).
        max_messages: messages held until they are handed over; more are dropped and reported.
        max_bytes: payload bytes held.
    """

    callback: Callback | None = None
    on_status: StatusCallback | None = None
    heartbeat_alarm: float | None = None
    max_messages: int = 512 * 1024
    max_bytes: int = 128 * 1024 * 1024


class PushSubscription:
    """Subscription to a push consumer: the server sends without requests.

    Made by `JetStream.subscribe`. Take messages with a callback, ``async for``, or `next`. As an asynchronous
    context manager it closes at the end of the block: a consumer that has a name is kept.
    """

    def __init__(self, api: Api, delivery: Delivery, *, queue: str = "", acks_nothing: bool = False) -> None:
        self._api = api
        self._connection = api.connection
        self._delivery = delivery
        self._queue = queue
        self._interest: Interest | None = None
        # Grows when frames that are still under way become void.
        self._generation = 0
        self._info: ConsumerInfo | None = None
        self._acks_nothing = acks_nothing
        self._checks_gaps = not queue and delivery.on_status is None
        self._position = ConsumerPosition()
        self._received = False
        self._reported_gap: tuple[int, int] | None = None
        self._flow_control = FlowControl(api.connection, self._flow_control_lost)
        self._forget_denial: Callable[[], None] = _nothing
        self._dropped = 0
        self._owns_consumer = False
        self._ephemeral = False
        self._watchdog: Watchdog | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ended = False
        self._on_end: list[Callable[[PushSubscription], None]] = []
        self._mailbox = Mailbox(
            max_messages=delivery.max_messages,
            max_bytes=delivery.max_bytes,
            answer=self._flow_control.answer,
            on_status=delivery.on_status,
        )

    # -- creation; called by the workflow in `subscribe`

    async def listen(self, subject: str) -> None:
        """Subscribe on the wire, before the consumer exists (ADR-15, "NATS subscription")."""
        self._watch_denial(subject)
        self._interest = await self._connection.listen(subject, self._receive, self._queue)

    def _watch_denial(self, subject: str) -> None:
        self._forget_denial()
        self._forget_denial = self._connection.on_denied(subject, self._denied)

    def _denied(self, failure: PermissionDeniedError) -> None:
        """Raise it where messages are awaited: the server will send none."""
        self._mailbox.close(failure)
        if self._watchdog is not None:
            self._watchdog.stop()

    def drop_interest(self) -> None:
        """Unsubscribe on the wire, and leave the consumer alone."""
        self._generation += 1
        self._forget_denial()
        self._forget_denial = _nothing
        if self._interest is not None:
            self._connection.ignore(self._interest)
            self._interest = None

    def bind_position(self, info: ConsumerInfo) -> None:
        """Set the position of an existing consumer before its messages arrive: its next sequence is not 1."""
        self._acks_nothing = info.config.ack_policy == AckPolicy.NONE
        self._position.consumer_seq = info.delivered.consumer_seq
        self._position.stream_seq = info.delivered.stream_seq

    def bind(self, info: ConsumerInfo, *, owned: bool, ephemeral: bool = False) -> None:
        """Bind the consumer; with *owned* this library created it, and deletes it; with *ephemeral* at closing too."""
        self._info = info
        self._owns_consumer = owned
        self._ephemeral = ephemeral
        heartbeat = info.config.idle_heartbeat
        if heartbeat and self._delivery.on_status is None and not self._queue:
            limit = self._delivery.heartbeat_alarm or 3 * heartbeat
            self._watchdog = Watchdog(limit, self._alarm)
            self._watchdog.start()
        if self._delivery.callback is not None and self._runner is None:
            self._runner = asyncio.create_task(self._mailbox.run(self._delivery.callback, self._connection.report))

    def on_end(self, call: Callable[[PushSubscription], None]) -> None:
        """Call when it has ended; for the context that keeps a list."""
        self._on_end.append(call)

    # -- state

    @property
    def consumer_name(self) -> str:
        """The consumer's name."""
        return self._info.name if self._info else ""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._info.stream_name if self._info else ""

    @property
    def subject(self) -> str:
        """The deliver subject on which it listens."""
        return self._interest.subject if self._interest else ""

    @property
    def queue(self) -> str:
        """The queue group, empty if it is in none."""
        return self._queue

    @property
    def owns_consumer(self) -> bool:
        """True if unsubscribing deletes the consumer."""
        return self._owns_consumer

    @property
    def pending(self) -> int:
        """Number of messages received and not handed over yet."""
        return len(self._mailbox)

    @property
    def dropped(self) -> int:
        """Number of messages dropped because the buffer was full."""
        return self._dropped

    @property
    def closed(self) -> bool:
        """True once the subscription has ended."""
        return self._ended

    async def consumer_info(self) -> ConsumerInfo:
        """Request the consumer's current state from the server."""
        return await self._api.consumer_info(self.stream, self.consumer_name)

    # -- the read loop's side

    def _receive(self, frames: Sequence[Frame]) -> None:
        if self._watchdog is not None:
            self._watchdog.last_seen = monotonic()
        connection, acks_nothing, generation = self._connection, self._acks_nothing, self._generation
        if self._checks_gaps:
            replies = replies_of_messages(frames)
            if replies is not None and self._position.advance_all(replies):
                self._accept(make_messages(connection, frames, acks_nothing))
                return
        messages: list[Message] = []
        for subject, reply, headers, data in frames:
            status = Status.of(headers, data, reply) if headers and not data else None
            # Most messages are the next one of the same consumer.
            if status is None and self._position.advance(reply):
                messages.append(Message(connection, subject, reply, headers, data, acks_nothing))
                continue
            self._accept(messages)
            messages = []
            if generation == self._generation:
                if status is not None:
                    self._receive_status(status)
                elif self._passes(reply):
                    messages.append(Message(connection, subject, reply, headers, data, acks_nothing))
            if generation != self._generation:
                return
        self._accept(messages)

    def _passes(self, reply: bytes) -> bool:
        """Advance to any message of a consumer and report a gap before it; return False for other messages."""
        try:
            stream_seq, consumer_seq = sequences(reply)
        except NotJetStreamMessageError as failure:
            self._connection.report(failure)
            return False
        expected = self._position.consumer_seq + 1
        if consumer_seq != expected and self._checks_gaps:
            generation = self._generation
            self._gap(expected, consumer_seq)
            if generation != self._generation:
                return False
        self._position.set(reply, stream_seq, consumer_seq)
        return True

    def _accept(self, messages: list[Message]) -> None:
        """Put messages into the buffer, one by one if there is no room for all."""
        if not messages:
            return
        if self._mailbox.put_all(messages):
            self._received = True
            return
        generation = self._generation
        for message in messages:
            if self._mailbox.put(message):
                self._received = True
            else:
                self._refuse(message)
                if generation != self._generation:
                    return

    def _refuse(self, message: Message) -> None:  # noqa: ARG002 - for subclasses
        """Count a message that was dropped, and report it."""
        self._dropped += 1
        if self._dropped & (self._dropped - 1) == 0:
            # At 1, 2, 4, 8, ... drops: a flood of reports would only make it slower.
            self._connection.report(SlowConsumerError(self.subject, dropped=self._dropped))

    def _receive_status(self, status: Status) -> None:
        if self._delivery.on_status is not None:
            self._mailbox.put_status(status)
        elif status.is_flow_control:
            self._mailbox.put_request(status.reply.encode())
        elif status.is_heartbeat:
            self._heartbeat(status)
        elif PullStatus.of(status.code, status.description) is not PullStatus.EXPIRED:
            self._connection.report(status_error(status, f"consumer {self.consumer_name!r}"))

    def _heartbeat(self, status: Status) -> None:
        stalled = status.header("Nats-Consumer-Stalled").encode()
        if stalled:
            self._flow_control.stalled(stalled, waiting=len(self._mailbox) > 0)
        last = status.number("Nats-Last-Consumer")
        if last is not None and self._checks_gaps and last != self._position.consumer_seq:
            self._gap(self._position.consumer_seq, last)

    def _flow_control_lost(self, subject: bytes) -> None:
        self._connection.report(
            FlowControlLostError(
                f"the consumer {self.consumer_name!r} stays stalled although {subject.decode()!r} was answered: "
                "answers do not reach it; the account must import $JS.FC.>, or leave flow control off"
            )
        )

    def _gap(self, expected: int, received: int) -> None:
        """Report missing consumer sequences, each gap once."""
        if self._reported_gap != (expected, received):
            self._reported_gap = (expected, received)
            resume = self._position.stream_seq + 1
            self._connection.report(
                SequenceGapError(self.consumer_name, expected=expected, got=received, resume_from=resume)
            )

    def _alarm(self, idle: float) -> None:
        self._connection.report(HeartbeatMissedError(self.consumer_name, idle))

    # -- the user's side

    async def next(self, timeout: float | None = 5.0) -> Message:
        """The next message.

        Raises:
            RequestTimeoutError: none arrived in *timeout* seconds.
            SubscriptionClosedError: it has ended.
        """
        return await self._mailbox.next(timeout)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._mailbox.messages()

    async def __anext__(self) -> Message:
        try:
            return await self._mailbox.next()
        except SubscriptionClosedError:
            raise StopAsyncIteration from None

    def release(self) -> None:
        """End it without waiting, and let the deletion of an ephemeral consumer follow.

        Messages that were not handed over are given back to a consumer that stays.
        """
        stays = not (self._ended or self._acks_nothing or self._ephemeral)
        rest = self._mailbox.rest() if stays else []
        self.end()
        # Behind the end of the subscription: the server would send them again at once, to this one.
        if not self._connection.is_closed:
            for message in rest:
                message.nak_now()
        if self._owns_consumer and self._ephemeral and self._connection.is_connected:
            self._owns_consumer = False
            self._api.spawn(self._api.forget_consumer(self.stream, self.consumer_name))

    async def close(self) -> None:
        """Stop immediately; delete an ephemeral consumer that this library created, and keep one that has a name.

        Raises:
            StreamError: the consumer could not be deleted; the subscription has ended nevertheless.
        """
        if self._owns_consumer and self._ephemeral:
            await self.unsubscribe()
        else:
            self.release()

    async def unsubscribe(self) -> None:
        """Stop immediately, drop buffered messages, and delete the consumer if this library created it.

        Raises:
            StreamError: the consumer could not be deleted; the subscription has ended nevertheless.
        """
        if self._ended:
            return
        self.end()
        if self._owns_consumer:
            await self._delete_consumer()

    async def drain(self, timeout: float = 30.0, *, keep_named: bool = False) -> None:
        """Stop receiving, hand over received messages, then delete the consumer if this library made it.

        With *keep_named* a consumer that has a name is kept, as `close` does.

        Returns when all of it is done. If messages are taken with `next` or ``async for``, another task must
        be taking them. Failures go to the error callback: too much time, or a consumer that cannot be
        deleted (ADR-15, "Drain").
        """
        if self._ended:
            return
        try:
            async with asyncio.timeout(timeout):
                if self._interest is not None:
                    self._connection.quiet(self._interest)
                    await self._connection.round_trip(timeout)
                self._mailbox.close()
                await self._mailbox.emptied()
        except TimeoutError:
            left = len(self._mailbox)
            self._connection.report(
                RequestTimeoutError(
                    f"the drain of {self.consumer_name!r} took over {timeout:g} s; {left} are left", code=408
                )
            )
        except ConnectionError as failure:
            self._connection.report(failure)
        except asyncio.CancelledError:
            self.release()
            raise
        self.end()
        if self._owns_consumer and (self._ephemeral or not keep_named):
            try:
                await self._delete_consumer()
            except StreamError as failure:
                self._connection.report(failure)

    def end(self, reason: TurnoutError | None = None) -> None:
        """Remove the subscription from the connection and leave the consumer unchanged."""
        if self._ended:
            return
        self._ended = True
        if self._watchdog is not None:
            self._watchdog.stop()
        self.drop_interest()
        self._mailbox.close(reason)
        self._mailbox.clear()
        if self._runner is not None and self._runner is not asyncio.current_task():
            self._runner.cancel()
        for call in self._on_end:
            call(self)

    async def _delete_consumer(self) -> None:
        self._owns_consumer = False
        await self._api.delete_consumer(self.stream, self.consumer_name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
