"""JetStream context with all its operations, and the connection behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream.connection import ErrorCallback, NatsConnection
from turnout.nats.jetstream.core import JetStreamCore
from turnout.nats.jetstream.kv import KeyValue, KeyValueConfig, bucket_stream
from turnout.nats.jetstream.objects import ObjectStore, ObjectStoreConfig, object_stream
from turnout.nats.protocol.options import DEFAULT_WINDOW, ConnectionOptions, Credentials, Prefix


class JetStream(JetStreamCore):
    """JetStream of the connection's own account, or behind a prefix or a domain (ADR-19).

    Made by `connect`; `with_prefix` gives another JetStream over the same connection.
    """

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
