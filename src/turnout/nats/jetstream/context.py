"""JetStream with all its operations: streams, publishing, subscribing, the views of streams; and the connection."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, ConnectionLostError, Mistake
from turnout.nats.jetstream.config import AccountInfo, ConsumerConfig, StreamConfig, StreamInfo, decode
from turnout.nats.jetstream.connection import Api, ErrorCallback, NatsConnection, check_name
from turnout.nats.jetstream.consumer import PullSubscription
from turnout.nats.jetstream.errors import StreamError, StreamNameInUseError
from turnout.nats.jetstream.kv import KeyValue, KeyValueConfig, bucket_stream
from turnout.nats.jetstream.message import Callback
from turnout.nats.jetstream.objects import ObjectStore, ObjectStoreConfig, object_stream
from turnout.nats.jetstream.ordered import OrderedSubscription, subscribe_ordered
from turnout.nats.jetstream.publish import AsyncPublisher, AtomicBatch, FastBatch, PubAck, PublishOptions
from turnout.nats.jetstream.stream import Stream, in_order_of, open_stream, stream_body
from turnout.nats.jetstream.subscribe import SubscriptionRequest, establish_pull, establish_push, stream_of
from turnout.nats.jetstream.subscription import Delivery, PushSubscription
from turnout.nats.protocol.options import DEFAULT_WINDOW, ConnectionOptions, Credentials, Prefix

Subscription = TypeVar("Subscription", PushSubscription, PullSubscription, OrderedSubscription)


class JetStream:
    """JetStream of the connection's own account, or behind a prefix or a domain (ADR-19).

    Made by `connect`; `with_prefix` gives another JetStream over the same connection.
    """

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
        self._children: list[JetStream] = []

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

    # -- views: key-value buckets and object stores

    async def key_value(self, bucket: str) -> KeyValue:
        """A key-value bucket that exists.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return KeyValue(self, bucket, await self.stream(bucket_stream(bucket)))

    async def create_key_value(self, config: KeyValueConfig) -> KeyValue:
        """Make a bucket; the same one again is no error.

        Raises:
            StreamNameInUseError: there is one of that name with another configuration.
        """
        return KeyValue(self, config.bucket, await self.create_stream(config.to_stream()))

    async def update_key_value(self, config: KeyValueConfig) -> KeyValue:
        """Change a bucket.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return KeyValue(self, config.bucket, await self.update_stream(config.to_stream()))

    async def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with all it holds.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        await self.delete_stream(bucket_stream(bucket))

    async def key_value_names(self) -> list[str]:
        """The names of all buckets."""
        names = await self.stream_names("$KV.*.>")
        return [name.removeprefix("KV_") for name in names if name.startswith("KV_")]

    async def object_store(self, bucket: str) -> ObjectStore:
        """An object store that exists.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return await ObjectStore.open(self, bucket)

    async def create_object_store(self, config: ObjectStoreConfig) -> ObjectStore:
        """Make an object store; the same one again is no error.

        Raises:
            StreamNameInUseError: there is one of that name with another configuration.
        """
        return ObjectStore(self, config.bucket, await self.create_stream(config.to_stream()))

    async def delete_object_store(self, bucket: str) -> None:
        """Delete an object store with all it holds.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        await self.delete_stream(object_stream(bucket))

    async def object_store_names(self) -> list[str]:
        """The names of all object stores."""
        names = await self.stream_names("$O.*.C.>")
        return [name.removeprefix("OBJ_") for name in names if name.startswith("OBJ_")]

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


@asynccontextmanager
async def connect(
    servers: str | Sequence[str] | ConnectionOptions = "nats://127.0.0.1:4222",
    *,
    prefix: str | None = None,
    domain: str | None = None,
    inbox_prefix: str = "_INBOX",
    prefix_objects: bool | None = None,
    error_callback: ErrorCallback | None = None,
    timeout: float = 5.0,
    connect_timeout: float = 5.0,
    max_pending: int = DEFAULT_WINDOW,
    **options: object,
) -> AsyncIterator[JetStream]:
    """Connect to a JetStream, for as long as the block lasts.

    Args:
        servers: one address, or several, or the options that both clients share; those say what *prefix*, *domain*,
            *inbox_prefix*, *timeout* and *connect_timeout* say otherwise.
        prefix: the API prefix under which another account's JetStream is imported: ``fromA`` (ADR-19).
        domain: the domain of the JetStream, behind a leaf node: ``hub``.
        inbox_prefix: prefix of the subjects of answers and pushed messages; an account import needs an exported one.
        prefix_objects: whether object writes carry the prefix; see `Prefix`.
        error_callback: called with every error that belongs to no call, plain or asynchronous; logged if not given.
        timeout: seconds that a request may take, where its call does not say otherwise.
        connect_timeout: seconds that connecting may take, over all servers and attempts.
        max_pending: how many asynchronous publishes may be unconfirmed.
        options: further options of nats-py's ``connect``: user, password, tls, name, ...

    Raises:
        ConnectionLostError: no server was reached in time, or it refused the credentials.
        StreamError: TLS is required, and a server offers none; nothing was sent to it.
        ConfigError: a prefix and a domain, or one that cannot be; an address that is none.
    """
    shared: JsonObject = {}
    if isinstance(servers, ConnectionOptions):
        prefix, domain, inbox_prefix = servers.api_prefix, None, servers.inbox_prefix
        timeout, connect_timeout = servers.timeout, servers.connect_timeout
        addresses, shared = [server.secret_url for server in servers.servers], _client_settings(servers)
    else:
        addresses = servers.split(",") if isinstance(servers, str) else list(servers)
    if not addresses:
        raise ConfigError([Mistake("servers", "no address is given: expected one at least")])
    where = Prefix.of(prefix=prefix, domain=domain, prefix_objects=prefix_objects)
    settings: JsonObject = {
        "connect_timeout": connect_timeout,
        "flush_timeout": timeout,
        "max_reconnect_attempts": -1,
        "ping_interval": 20,
        "reconnect_time_wait": 0.25,
        **shared,
        **options,
    }
    connection = NatsConnection(error_callback)
    if isinstance(servers, ConnectionOptions) and servers.tls is not None and "tls" not in options:
        connection.tls_context = servers.tls.context
    await connection.open(addresses, timeout=connect_timeout, inbox_prefix=inbox_prefix, **settings)
    js = JetStream(connection, where, timeout=timeout, max_pending=max_pending)
    try:
        yield js
    finally:
        await js.close()


def _client_settings(options: ConnectionOptions) -> JsonObject:
    """The options that both clients share, as nats-py takes them."""
    settings = {"name": options.name, **_login(options.credentials)}
    if options.tls is not None:
        settings["tls"] = options.tls.context()
        settings["tls_handshake_first"] = options.tls.first
        if options.tls.hostname is not None:
            settings["tls_hostname"] = options.tls.hostname
    return settings


def _login(credentials: Credentials) -> JsonObject:
    """Return nats-py's arguments for these credentials.

    Raises:
        ConfigError: when a seed is none; nats-py would raise an error of its own, or of its libraries.
    """
    if not credentials.signs:
        login = {"user": credentials.user, "password": credentials.password, "token": credentials.token}
        return {name: value for name, value in login.items() if value is not None}
    credentials.connect_fields("nonce")
    if credentials.jwt is None:
        return {"nkeys_seed_str": credentials.seed}
    return {
        "user_jwt_cb": lambda: credentials.connect_fields("")["jwt"].encode(),
        "signature_cb": lambda nonce: credentials.connect_fields(nonce)["sig"].encode(),
    }
