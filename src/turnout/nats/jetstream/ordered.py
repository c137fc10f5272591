"""Ordered consumers: every message once, in order, across consumer failures (ADR-15, "Ordered Consumers")."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, Self, TypeVar

from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.nats.jetstream.config import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, StreamInfo, decode
from turnout.nats.jetstream.connection import Api, name_mistake
from turnout.nats.jetstream.errors import (
    ConsumerNotFoundError,
    HeartbeatMissedError,
    PermissionDeniedError,
    SequenceGapError,
    StreamError,
    StreamNotFoundError,
    StreamReplacedError,
    SubscriptionClosedError,
)
from turnout.nats.jetstream.message import Message
from turnout.nats.jetstream.subscribe import create_consumer, stream_of
from turnout.nats.jetstream.subscription import Delivery, PushSubscription

_HEARTBEAT_SECONDS = 5.0
_ACK_WAIT_SECONDS = 22 * 3600.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0

# A new leader may answer before it has applied the last messages; asked this often it is no longer behind.
_MAX_OLDER_STATES = 6

# Starts that mean another message when the consumer is made again.
_FROM_NOW = (DeliverPolicy.NEW, DeliverPolicy.LAST)


@dataclass(frozen=True, slots=True)
class _Refused:
    """A field that an ordered consumer sets itself."""

    name: str
    why: str
    allowed: tuple[object, ...] = field(default=(None,))


_REFUSED = (
    _Refused("durable_name", "an ordered consumer is not durable"),
    _Refused("name", "an ordered consumer changes its name when it begins again"),
    _Refused("deliver_group", "an ordered consumer cannot be in a queue group"),
    _Refused("deliver_subject", "an ordered consumer chooses its deliver subject"),
    _Refused("ack_policy", "an ordered consumer has the ack policy none", (None, AckPolicy.NONE)),
    _Refused("max_deliver", "an ordered consumer delivers once", (None, 1)),
    _Refused("ack_wait", "an ordered consumer needs no acks"),
    _Refused("backoff", "an ordered consumer delivers once"),
    _Refused("max_waiting", "an ordered consumer is not pulled from"),
    _Refused("num_replicas", "an ordered consumer has one replica", (None, 1)),
)


def check_ordered(config: ConsumerConfig, *, subject: str = "", stream: str = "") -> None:
    """Refuse what an ordered consumer cannot be.

    Raises:
        ConfigError: with all mistakes; nothing has been sent.
    """
    mistakes = [
        Mistake(f"config.{rule.name}", f"{rule.why}: {getattr(config, rule.name)!r}")
        for rule in _REFUSED
        if getattr(config, rule.name) not in rule.allowed
    ]
    if not subject and not stream:
        mistakes.append(Mistake("subject", "a subject is required where no stream is given: it finds the stream"))
    if stream and (mistake := name_mistake("stream", stream)):
        mistakes.append(mistake)
    if mistakes:
        raise ConfigError(mistakes, what="bad ordered subscription")


class OrderedSubscription(PushSubscription):
    """A subscription that sees every message once and in order.

    On a gap, on silence, on a reconnect and on a deleted consumer it makes a new consumer that begins after the last
    message received. Each restart is reported to *on_reset* and counted in `resets`. It ends when its
    stream no longer exists. A stream that was deleted and made again, or restored to an older state, ends it with a
    `StreamReplacedError`; without *fail_on_data_loss* that is reported, and it reads the new stream from its first
    message.

    Not promised: that a message which the stream deletes meanwhile is seen.
    """

    def __init__(
        self,
        api: Api,
        delivery: Delivery,
        stream: str,
        config: ConsumerConfig,
        on_reset: Callable[[StreamError], None] | None = None,
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        super().__init__(api, delivery, acks_nothing=True)
        self._stream = stream
        self._config = config
        self._on_reset = on_reset
        self._resetting: asyncio.Task[None] | None = None
        self._stalled_out = False
        self._fail_on_data_loss = fail_on_data_loss
        self._first_look: asyncio.Task[StreamInfo | None] | None = None
        self._created: datetime | None = None
        self._older_states = 0
        # The sequence before the first message, known from the first consumer on.
        self._before_first: int | None = None
        self.resets = 0

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._stream

    async def begin(self) -> None:
        """Make the first consumer.

        Raises:
            StreamError: it cannot be made.
            StreamReplacedError: it should start behind the end of the stream.
        """
        self._connection.on_reconnected.append(self._reconnected)
        # Its answer is awaited where it is needed: a restart compares with it.
        self._first_look = self._api.spawn(self._find_stream())
        try:
            if self._config.opt_start_seq is not None:
                self._check_start(self._config.opt_start_seq, await asyncio.shield(self._first_look))
            await self._make(self._config)
        except BaseException:
            self.end()
            raise

    def _check_start(self, start: int, info: StreamInfo | None) -> None:
        if info is not None and start > info.state.last_seq + 1:
            raise StreamReplacedError(self._stream, start - 1, _last_of(info))

    async def _find_stream(self) -> StreamInfo | None:
        """Request the stream's state; None if that fails, or is not permitted."""
        try:
            return await self._stream_info()
        except (StreamError, ConnectionError):
            return None

    async def _stream_info(self) -> StreamInfo:
        return decode(StreamInfo, await self._api.call(f"STREAM.INFO.{self._stream}"))

    @property
    def initial_pending(self) -> int:
        """Number of messages pending at the creation of the first consumer."""
        return self._initial_pending

    _initial_pending = 0

    async def _make(self, config: ConsumerConfig) -> None:
        """Subscribe on a new inbox, and make a consumer that sends there."""
        inbox = self._connection.new_inbox()
        name = self._connection.unique()
        attempt = self.resets
        self._position.consumer_seq = 0
        self._watch_denial(inbox)
        interest = await self._connection.listen(inbox, self._receive)
        if self._ended or attempt != self.resets:
            self._connection.ignore(interest)
            return
        self._interest = interest
        full = replace(config, name=name, deliver_subject=inbox)
        work = self._api.spawn(create_consumer(self._api, self._stream, full))
        try:
            info: ConsumerInfo = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._api.spawn(self._forget_after(work, name))
            raise
        if self._before_first is None:
            self._before_first = info.delivered.stream_seq
        if self._ended or attempt != self.resets:
            # Its messages arrived before the confirmation of its creation, and had a gap already.
            self._api.spawn(self._api.forget_consumer(self._stream, name))
            return
        if not self.resets:
            self._initial_pending = info.num_pending
        self.bind(info, owned=True, ephemeral=True)

    async def _forget_after(self, work: asyncio.Task[ConsumerInfo], name: str) -> None:
        await asyncio.wait([work])
        await self._api.forget_consumer(self._stream, name)

    def bind(self, info: ConsumerInfo, *, owned: bool, ephemeral: bool = True) -> None:
        """Bind the consumer; messages may have arrived before its creation was confirmed."""
        if self._watchdog is not None:
            self._watchdog.stop()
        super().bind(info, owned=owned, ephemeral=ephemeral)

    # -- what makes it begin again

    def _refuse(self, message: Message) -> None:
        # It was not accepted, so it must be delivered again later, and all that follow it.
        super()._refuse(message)
        position = message.metadata
        self._position.stream_seq = position.stream_seq - 1
        failure = SequenceGapError(
            self.consumer_name, expected=position.consumer_seq, got=0, resume_from=position.stream_seq
        )
        self._begin_again(failure)

    def _gap(self, expected: int, received: int) -> None:
        resume = self._position.stream_seq + 1
        self._begin_again(SequenceGapError(self.consumer_name, expected=expected, got=received, resume_from=resume))

    def _denied(self, failure: PermissionDeniedError) -> None:
        self.end_with(failure)

    def _alarm(self, idle: float) -> None:
        self._begin_again(HeartbeatMissedError(self.consumer_name, idle))

    def _reconnected(self) -> None:
        self._begin_again(StreamError("the connection was lost and is back"))

    def _flow_control_lost(self, subject: bytes) -> None:
        # Across an account import without $JS.FC.> no answer ever arrives: continue without flow control.
        super()._flow_control_lost(subject)
        self._stalled_out = True
        self._begin_again(StreamError("flow control is not answered across this import"))

    def _begin_again(self, why: StreamError) -> None:
        if self._ended:
            return
        # At once, in the read loop: nothing more of the old consumer may be taken.
        old = self.consumer_name
        self.drop_interest()
        if self._watchdog is not None:
            self._watchdog.stop()
        self._owns_consumer = False
        self.resets += 1
        if self._on_reset is not None:
            self._on_reset(why)
        if self._resetting is None or self._resetting.done():
            self._resetting = asyncio.create_task(self._reset(old))

    async def _reset(self, old: str) -> None:
        if old:
            self._api.spawn(self._api.forget_consumer(self._stream, old))
        pause = _FIRST_PAUSE_SECONDS
        while not self._ended:
            await self._wait_for_room()
            attempt = self.resets
            try:
                await self._check_stream()
                await self._make(self._next_config())
                # It may have been replaced while the consumer was made.
                if not await self._check_stream():
                    self._begin_again(StreamError(f"the stream {self._stream!r} was replaced"))
            except (ConnectionError, StreamError) as failure:
                self.drop_interest()
                lasting = isinstance(failure, (StreamNotFoundError, ConsumerNotFoundError, StreamReplacedError))
                if lasting or self._connection.is_closed:
                    ending = failure if isinstance(failure, StreamError) else StreamError(str(failure))
                    self._connection.report(ending)
                    self.end_with(ending)
                    return
                # No JetStream yet, no leader, no answer: a restarting server. It recovers, or the user gives up.
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            except Exception as failure:
                # A task that ends by an exception would leave the subscription silent for ever.
                ending = StreamError(f"the ordered consumer cannot be made again: {type(failure).__name__}: {failure}")
                self._connection.report(ending)
                self.end_with(ending)
                raise
            else:
                if attempt == self.resets:
                    return

    async def _check_stream(self) -> bool:
        """Return True if the stream is the one that was read; False if it is another one, whose reading begins anew.

        Raises:
            StreamReplacedError: it is another one, or has an older state, and *fail_on_data_loss* is on.
            StreamError: it cannot be looked up now.
        """
        if self._created is None and self._first_look is not None:
            await asyncio.wait([self._first_look])
            first = self._first_look.result()
            self._first_look = None
            if first is None:
                self._connection.report(
                    StreamError(
                        f"whether the stream {self._stream!r} was replaced is not checked: its state could not be "
                        f"requested at the start; permit {self._api.prefix.api(f'STREAM.INFO.{self._stream}')}"
                    )
                )
            else:
                self._created = first.created
        if self._created is None:
            return True
        # Before the request: the next message may overtake the answer.
        last_read = self._last_read
        info = await self._stream_info()
        if info.created != self._created:
            why = f"that was created at {self._created}, this one at {info.created}"
        elif info.state.last_seq < last_read:
            why = _last_of(info)
            self._older_states += 1
            if self._older_states < _MAX_OLDER_STATES:
                raise StreamError(f"the stream {self._stream!r} has not caught up with {last_read}: {why}")
        else:
            self._older_states = 0
            return True
        replaced = StreamReplacedError(self._stream, last_read, why)
        if self._fail_on_data_loss:
            raise replaced
        self._connection.report(replaced)
        self._created = info.created
        self._received = False
        self._before_first = None
        self._older_states = 0
        if self._config.deliver_policy in (DeliverPolicy.BY_START_SEQUENCE, *_FROM_NOW):
            self._config = replace(self._config, deliver_policy=DeliverPolicy.ALL, opt_start_seq=None)
        return False

    @property
    def _last_read(self) -> int:
        """Sequence after which reading continues."""
        return self._position.stream_seq if self._received else self._before_first or 0

    async def _wait_for_room(self) -> None:
        while len(self._mailbox) > self._delivery.max_messages // 2 and not self._ended:
            await asyncio.sleep(0.01)

    def _next_config(self) -> ConsumerConfig:
        """Return the configuration that continues after the last message received."""
        config = self._config
        if self._stalled_out:
            config = replace(config, flow_control=None)
        if not self._received and (self._before_first is None or config.deliver_policy not in _FROM_NOW):
            return config
        return replace(
            config,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._last_read + 1,
            opt_start_time=None,
        )

    def end_with(self, reason: StreamError) -> None:
        """End with an error, which is raised after the buffered messages are taken."""
        self._mailbox.close(reason)
        if self._watchdog is not None:
            self._watchdog.stop()
        self.drop_interest()

    def end(self, reason: TurnoutError | None = None) -> None:
        """Remove the subscription from the connection and leave the consumer unchanged."""
        if self._reconnected in self._connection.on_reconnected:
            self._connection.on_reconnected.remove(self._reconnected)
        super().end(reason)
        if self._resetting is not None and self._resetting is not asyncio.current_task():
            self._resetting.cancel()


def _last_of(info: StreamInfo) -> str:
    return f"its last sequence is {info.state.last_seq}, and it was created at {info.created}"


async def subscribe_ordered(
    api: Api,
    *,
    subject: str = "",
    stream: str = "",
    config: ConsumerConfig | None = None,
    delivery: Delivery | None = None,
    flow_control: bool = True,
    on_reset: Callable[[StreamError], None] | None = None,
    fail_on_data_loss: bool = True,
) -> OrderedSubscription:
    """Make an ordered subscription.

    Raises:
        ConfigError: the configuration has settings that it does not support.
        NoMatchingStreamError: the subject finds no stream, or several.
    """
    settings = config or ConsumerConfig()
    check_ordered(settings, subject=subject or settings.filter_subject or "", stream=stream)
    name = stream or await stream_of(api, subject or settings.filter_subject or "")
    full = replace(
        settings,
        filter_subject=settings.filter_subject or (subject or None) if not settings.filter_subjects else None,
        deliver_policy=settings.deliver_policy or DeliverPolicy.ALL,
        ack_policy=AckPolicy.NONE,
        max_deliver=1,
        ack_wait=_ACK_WAIT_SECONDS,
        flow_control=True if flow_control else None,
        idle_heartbeat=settings.idle_heartbeat or _HEARTBEAT_SECONDS,
        mem_storage=True,
        num_replicas=1,
    )
    subscription = OrderedSubscription(
        api, delivery or Delivery(), name, full, on_reset, fail_on_data_loss=fail_on_data_loss
    )
    await subscription.begin()
    return subscription


T = TypeVar("T")


class Watching(ABC, Generic[T]):
    """Iterator over the existing entries, then `None` once, then updates.

    Take them with ``async for`` or `next`. It begins again by itself after faults; see `OrderedSubscription`.
    As an asynchronous context manager it stops at the end of the block.
    """

    def __init__(self, subscription: OrderedSubscription) -> None:
        self._subscription = subscription

    @property
    def subscription(self) -> OrderedSubscription:
        """Subscription that the watcher reads."""
        return self._subscription

    @abstractmethod
    async def next(self, timeout: float | None = 5.0) -> T | None:
        """The next one; None, once, after the last of the initial entries.

        Raises:
            RequestTimeoutError: none arrived in *timeout* seconds.
            SubscriptionClosedError: it was stopped.
        """

    def __aiter__(self) -> AsyncIterator[T | None]:
        return self

    async def __anext__(self) -> T | None:
        try:
            return await self.next(None)
        except SubscriptionClosedError:
            raise StopAsyncIteration from None

    async def stop(self) -> None:
        """Watch no longer."""
        await self._subscription.unsubscribe()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.stop()
