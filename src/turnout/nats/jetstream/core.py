"""JetStream without its views: streams, publishing and subscribing."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from turnout.errors import ConnectionLostError
from turnout.nats.jetstream.config import AccountInfo, ConsumerConfig, StreamConfig, StreamInfo, decode
from turnout.nats.jetstream.connection import Api, NatsConnection, check_name
from turnout.nats.jetstream.consumer import PullSubscription
from turnout.nats.jetstream.errors import StreamError, StreamNameInUseError
from turnout.nats.jetstream.message import Callback
from turnout.nats.jetstream.ordered import OrderedSubscription, subscribe_ordered
from turnout.nats.jetstream.publish import AsyncPublisher, AtomicBatch, FastBatch, PubAck, PublishOptions
from turnout.nats.jetstream.stream import Stream, in_order_of, open_stream, stream_body
from turnout.nats.jetstream.subscribe import SubscriptionRequest, establish_pull, establish_push, stream_of
from turnout.nats.jetstream.subscription import Delivery, PushSubscription
from turnout.nats.protocol.options import DEFAULT_WINDOW, Prefix

Subscription = TypeVar("Subscription", PushSubscription, PullSubscription, OrderedSubscription)


class JetStreamCore:
    """All of `turnout.nats.jetstream.JetStream` except the views: key-value buckets and object stores."""

    def __init__(
        self, connection: NatsConnection, prefix: Prefix, *, timeout: float, max_pending: int = DEFAULT_WINDOW
    ) -> None:
        self.connection = connection
        self.api = Api(connection, prefix, timeout)
        self._publisher = AsyncPublisher(connection, timeout=timeout, max_pending=max_pending)
        self.publish = self._publisher.publish
        """Store a message and wait for the server's word; see `AsyncPublisher.publish`."""
        self.publish_async = self._publisher.publish_async
        """Store a message and get the server's word later; see `AsyncPublisher.publish_async`."""
        self._max_pending = max_pending
        connection.on_closed.append(self._lost)
        self._open: set[PushSubscription | PullSubscription] = set()
        self._children: list[JetStreamCore] = []

    @property
    def prefix(self) -> Prefix:
        """Prefix of API and delivery subjects."""
        return self.api.prefix

    def with_prefix(
        self, *, prefix: str | None = None, domain: str | None = None, prefix_objects: bool | None = None
    ) -> Self:
        """Return another JetStream over the same connection, behind a prefix or a domain."""
        other = type(self)(
            self.connection,
            Prefix.of(prefix=prefix, domain=domain, prefix_objects=prefix_objects),
            timeout=self.api.timeout,
            max_pending=self._max_pending,
        )
        self._children.append(other)
        return other

    def behind(self, **options: Any) -> Self:
        """Return `with_prefix` with the same arguments; the name of the last release."""
        warnings.warn("JetStream.behind is now JetStream.with_prefix", DeprecationWarning, stacklevel=2)
        return self.with_prefix(**options)

    async def account_info(self) -> AccountInfo:
        """Request the account's usage and limits.

        Raises:
            JetStreamNotEnabledError: it has no JetStream.
            NoRespondersError: there is none behind the prefix.
        """
        return decode(AccountInfo, await self.api.call("INFO"))

    # -- streams

    async def create_stream(self, config: StreamConfig) -> Stream:
        """Make a stream; the same one again is no error.

        Raises:
            StreamNameInUseError: there is one of that name with another configuration.
        """
        try:
            return await self._put_stream("CREATE", config)
        except StreamNameInUseError:
            # The server compares lists in their order, which means nothing here.
            reordered = in_order_of(config, (await self.stream(config.name)).cached_info.config)
            if reordered is None:
                raise
            return await self._put_stream("CREATE", reordered)

    async def update_stream(self, config: StreamConfig) -> Stream:
        """Change a stream.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return await self._put_stream("UPDATE", config)

    async def create_or_update_stream(self, config: StreamConfig) -> Stream:
        """Make a stream, or change the one that has the name."""
        try:
            return await self.create_stream(config)
        except StreamNameInUseError:
            return await self.update_stream(config)

    async def _put_stream(self, verb: str, config: StreamConfig) -> Stream:
        check_name("config.name", config.name)
        answer = await self.api.call(f"STREAM.{verb}.{config.name}", stream_body(config))
        return Stream(self.api, config.name, decode(StreamInfo, answer))

    async def stream(self, name: str) -> Stream:
        """A stream that exists.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return await open_stream(self.api, name)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all it holds.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        await self.api.call(f"STREAM.DELETE.{check_name('stream', name)}")

    async def stream_names(self, subject: str | None = None) -> list[str]:
        """Return the names of all streams, or of the streams that capture a subject."""
        body = None if subject is None else {"subject": subject}
        return [str(name) async for name in self.api.pages("STREAM.NAMES", "streams", body)]

    async def streams(self, subject: str | None = None) -> AsyncIterator[StreamInfo]:
        """Yield every stream, or the streams that capture a subject."""
        body = None if subject is None else {"subject": subject}
        async for item in self.api.pages("STREAM.LIST", "streams", body):
            yield decode(StreamInfo, item)

    async def stream_name_by_subject(self, subject: str) -> str:
        """The one stream that takes a subject.

        Raises:
            NoMatchingStreamError: none does, or several.
        """
        return await stream_of(self.api, subject)

    # -- publishing

    def atomic_batch(self, *, ack_first: bool = True, ack_every: int = 0, timeout: float | None = None) -> AtomicBatch:
        """Begin a batch of which the stream stores every message or none (ADR-50); see `AtomicBatch`."""
        limit = self.api.timeout if timeout is None else timeout
        return AtomicBatch(self.connection, timeout=limit, ack_first=ack_first, ack_every=ack_every)

    async def publish_batch(
        self, messages: Iterable[tuple[str, bytes] | tuple[str, bytes, PublishOptions]], *, timeout: float | None = None
    ) -> PubAck:
        """Store messages together or not at all: subject, data, and headers or other options where it has some.

        Raises:
            BatchPublishError: there is none, or the stream refuses the batch; see `AtomicBatch.commit`.
        """
        batch = self.atomic_batch(timeout=timeout)
        waiting = deque(messages)
        while len(waiting) > 1:
            subject, data, *options = waiting.popleft()
            await batch.add(subject, data, **(options[0] if options else {}))
        if not waiting:
            return await batch.commit()
        subject, data, *options = waiting[0]
        return await batch.commit(subject, data, **(options[0] if options else {}))

    def fast_batch(
        self, *, flow: int = 100, max_outstanding: int = 2, gaps: bool = False, timeout: float | None = None
    ) -> FastBatch:
        """Begin a batch that is stored as it comes and confirmed in groups (ADR-50); see `FastBatch`.

        Raises:
            ConfigError: a number that cannot be.
        """
        limit = self.api.timeout if timeout is None else timeout
        return FastBatch(self.connection, timeout=limit, flow=flow, max_outstanding=max_outstanding, gaps=gaps)

    async def publish_async_complete(self, timeout: float | None = None) -> None:
        """Wait until every asynchronous publish is confirmed or has failed; see `AsyncPublisher.complete`."""
        await self._publisher.complete(timeout)

    @property
    def publish_async_pending(self) -> int:
        """Number of asynchronous publishes not confirmed yet."""
        return self._publisher.pending

    # -- subscribing

    async def subscribe(
        self,
        subject: str = "",
        callback: Callback | None = None,
        *,
        stream: str = "",
        consumer: str = "",
        durable: str = "",
        queue: str = "",
        config: ConsumerConfig | None = None,
        delivery: Delivery | None = None,
        delete_consumer: bool | None = None,
    ) -> PushSubscription:
        """Let the server send (ADR-15): find or make a push consumer, and subscribe to it.

        Args:
            subject: subject to receive; it finds the stream if none is given, and is the filter of a new consumer.
            callback: called with every message, plain or asynchronous; without it, take messages with ``async for``.
            stream: the stream, where it is known.
            consumer: bind to this consumer, which must exist.
            durable: use this durable consumer, or make it.
            queue: join this queue group.
            config: further configuration of a new consumer, compared with one that exists.
            delivery: buffers, alarms and handler of statuses; its own callback is used if none is given here.
            delete_consumer: whether a consumer that this call makes is deleted at the end. If not given, unsubscribing
                and draining delete it but for queues, and closing deletes it if it has no name.

        Raises:
            ConfigError: it cannot be so; nothing was sent.
            ConsumerMismatchError: the consumer that exists is another one.
            NoMatchingStreamError: the subject finds no stream, or several.
        """
        request = SubscriptionRequest(
            subject=subject,
            stream=stream,
            consumer=consumer,
            durable=durable,
            queue=queue,
            config=config or ConsumerConfig(),
            delete_consumer=delete_consumer,
        )
        handling = delivery or Delivery()
        if callback is not None:
            handling = replace(handling, callback=callback)
        subscription = await establish_push(self.api, request, handling)
        return self._tracked(subscription)

    async def pull_subscribe(
        self,
        subject: str = "",
        *,
        stream: str = "",
        consumer: str = "",
        durable: str = "",
        config: ConsumerConfig | None = None,
        delete_consumer: bool | None = None,
    ) -> PullSubscription:
        """Find or make a pull consumer (ADR-15), from which to fetch.

        The arguments are those of `subscribe`. Where *consumer* is given and cannot be looked up, the subscription
        continues without the checks: it may be permitted to pull and not to read the configuration.

        Raises:
            ConfigError: it cannot be so; nothing was sent.
            ConsumerMismatchError: the consumer that exists is another one.
            NoMatchingStreamError: the subject finds no stream, or several.
        """
        request = SubscriptionRequest(
            subject=subject,
            stream=stream,
            consumer=consumer,
            durable=durable,
            config=config or ConsumerConfig(),
            pull=True,
            delete_consumer=delete_consumer,
        )
        return self._tracked(await establish_pull(self.api, request))

    async def ordered(
        self,
        subject: str = "",
        callback: Callback | None = None,
        *,
        stream: str = "",
        config: ConsumerConfig | None = None,
        filters: Sequence[str] = (),
        flow_control: bool = True,
        heartbeat_alarm: float | None = None,
        on_reset: Callable[[StreamError], None] | None = None,
        fail_on_data_loss: bool = True,
    ) -> OrderedSubscription:
        """Every message once and in order, without acks (ADR-15, "Ordered Consumers").

        Args:
            subject: subject to receive; it finds the stream if none is given.
            callback: called with every message.
            stream: the stream, where it is known.
            config: start and other settings of an ordered consumer.
            filters: several subjects in place of one.
            flow_control: off for an account import without ``$JS.FC.>``; it is noticed by itself, but slowly.
            heartbeat_alarm: seconds of silence until it begins again; three heartbeats if not given.
            on_reset: called with the reason of each restart.
            fail_on_data_loss: whether a stream that was deleted and made again, or restored to an older state, ends it
                with a `StreamReplacedError`; otherwise that is reported, and it reads from the first message.

        Raises:
            ConfigError: the configuration has settings that an ordered consumer does not support.
            StreamReplacedError: the start is behind the end of the stream.
            NoMatchingStreamError: the subject finds no stream, or several.
        """
        settings = config or ConsumerConfig()
        if filters:
            settings = replace(settings, filter_subjects=tuple(filters))
        subscription = await subscribe_ordered(
            self.api,
            subject=subject,
            stream=stream,
            config=settings,
            delivery=Delivery(callback=callback, heartbeat_alarm=heartbeat_alarm),
            flow_control=flow_control,
            on_reset=on_reset,
            fail_on_data_loss=fail_on_data_loss,
        )
        return self._tracked(subscription)

    def _tracked(self, subscription: Subscription) -> Subscription:
        """Register a new subscription to be ended with this object, and return it."""
        self._open.add(subscription)
        subscription.on_end(self._open.discard)
        return subscription

    # -- the end

    def _lost(self) -> None:
        """End every open subscription after the connection is closed for good, so that no caller waits forever."""
        for consumer in tuple(self._open):
            consumer.end(ConnectionLostError("the connection is closed"))
        self._publisher.close()

    async def drain(self, timeout: float = 30.0) -> None:
        """Drain every subscription, wait for unconfirmed publishes, then close the connection.

        Like `close` it keeps the consumers that have a name.
        """
        for js in (self, *self._children):
            draining = [consumer.drain(timeout, keep_named=True) for consumer in tuple(js._open)]  # noqa: SLF001
            await asyncio.gather(*draining)
            if js.publish_async_pending:
                await js.publish_async_complete(timeout)
        await self.close()

    async def close(self) -> None:
        """End every subscription, delete the ephemeral consumers that this object made, and close the connection.

        A consumer with a name is kept: the next start, or another worker, continues with it.
        """
        for js in (self, *self._children):
            await js._end_all()  # noqa: SLF001
        await self.connection.shut()

    async def _end_all(self) -> None:
        for consumer in tuple(self._open):
            consumer.release()
        await self.api.settle(min(self.api.timeout, 2.0))
        self._publisher.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
