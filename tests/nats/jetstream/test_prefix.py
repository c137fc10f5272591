"""ADR-19 accepted on real servers: two accounts, a leaf node with domains, mirrors across them, permissions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.nats.jetstream.support import CONF, Errors, asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer, free_port
from turnout.errors import ConfigError, ConnectionLostError
from turnout.nats.jetstream import ConsumerConfig, JetStream, PullOptions, StorageType, StreamConfig, connect
from turnout.nats.jetstream.config import StreamSource
from turnout.nats.jetstream.errors import (
    FlowControlLostError,
    JetStreamNotEnabledError,
    NoRespondersError,
    PermissionDeniedError,
    RequestTimeoutError,
)
from turnout.nats.jetstream.kv import KeyExistsError, KeyNotFoundError, KeyValueConfig, WatchOptions
from turnout.nats.jetstream.objects import ObjectStoreConfig
from turnout.nats.protocol.options import Prefix


def conf(name: str, **places: object) -> str:
    text = (CONF / name).read_text(encoding="utf-8")
    for old, new in places.items():
        text = text.replace(old, str(new))
    return text


@pytest.fixture(scope="module")
def seed_server() -> Iterator[NatsServer]:
    """The server configuration of ADR-19, as it is."""
    with NatsServer(config=conf("seed-accounts.conf"), jetstream=False) as server:
        yield server


@pytest.fixture(scope="module")
def extended_server() -> Iterator[NatsServer]:
    """The same with what acks, flow control, batches and objects need."""
    with NatsServer(config=conf("extended-accounts.conf"), jetstream=False) as server:
        yield server


@pytest.fixture(scope="module")
def leaf_and_hub() -> Iterator[tuple[NatsServer, NatsServer]]:
    """A hub with a domain, and a leaf with another that is connected to it."""
    port = free_port()
    hub_text = conf("leaf-hub.conf").replace("15221", str(port))
    leaf_text = conf("leaf-leaf.conf").replace("15221", str(port))
    with NatsServer(config=hub_text, jetstream=False) as hub, NatsServer(config=leaf_text, jetstream=False) as leaf:
        asyncio.run(_joined(leaf))
        yield leaf, hub


async def _joined(leaf: NatsServer) -> None:
    async with connect(leaf.url, domain="HUB", timeout=1) as js:

        async def answers() -> bool:
            try:
                await js.account_info()
            except (NoRespondersError, RequestTimeoutError):
                return False
            return True

        await eventually(answers, 20)


def in_a(server: NatsServer, **options: Any) -> AbstractAsyncContextManager[JetStream]:
    return connect(server.url, user="a", password="a", **options)


def in_i(server: NatsServer, **options: Any) -> AbstractAsyncContextManager[JetStream]:
    options = {"prefix": "fromA", "inbox_prefix": "forI", **options}
    return connect(server.url, user="i", password="i", **options)


# -- the prefix as a value


@pytest.mark.parametrize(
    ("given", "api", "kv", "objects"),
    [
        ({}, "$JS.API.X", "$KV.b.k", "$O.b.M"),
        ({"prefix": "$JS.API"}, "$JS.API.X", "$KV.b.k", "$O.b.M"),
        ({"prefix": "fromA"}, "fromA.X", "fromA.$KV.b.k", "fromA.$O.b.M"),
        ({"prefix": "JS.from-acc1."}, "JS.from-acc1.X", "JS.from-acc1.$KV.b.k", "JS.from-acc1.$O.b.M"),
        ({"prefix": "fromA", "prefix_objects": False}, "fromA.X", "fromA.$KV.b.k", "$O.b.M"),
        ({"domain": "HUB"}, "$JS.HUB.API.X", "$JS.HUB.API.$KV.b.k", "$O.b.M"),
        ({"domain": "HUB", "prefix_objects": True}, "$JS.HUB.API.X", "$JS.HUB.API.$KV.b.k", "$JS.HUB.API.$O.b.M"),
    ],
)
def test_subjects(given: dict[str, Any], api: str, kv: str, objects: str) -> None:
    """The prefix goes in front of the API and of the views, as ADR-19 has it; the objects' rule is a choice."""
    prefix = Prefix.of(**given)

    assert (api, kv, objects) == (prefix.api("X"), prefix.view("$KV.b.k"), prefix.object("$O.b.M"))


@pytest.mark.parametrize(
    "given", [{"prefix": ""}, {"prefix": "a b"}, {"prefix": "a.*"}, {"prefix": "a..b"}, {"domain": "a.b"},
              {"domain": ""}, {"prefix": "a", "domain": "b"}]
)  # fmt: skip
def test_bad_prefixes(given: dict[str, Any]) -> None:
    """A prefix that cannot be in a subject, and a prefix with a domain, are refused."""
    with pytest.raises(ConfigError):
        Prefix.of(**given)


# -- two accounts, the seed's configuration


@asynchronous
async def test_seed_account_info(seed_server: NatsServer) -> None:
    """The importing account reaches A's JetStream by the prefix, and has none of its own."""
    async with in_i(seed_server) as js:
        info = await js.account_info()
        assert info.limits.max_streams == -1
        with pytest.raises(JetStreamNotEnabledError):
            await js.with_prefix().account_info()


@asynchronous
async def test_seed_map_of_the_adr(seed_server: NatsServer) -> None:
    """ADR-19's own example: what I puts in the map, A gets on ``$KV.map.put``, without a prefix."""
    received: list[tuple[str, bytes]] = []
    async with in_a(seed_server) as a, in_i(seed_server) as i:
        await a.connection.listen("$KV.map.>", lambda frames: received.extend((s.decode(), d) for s, _, _, d in frames))
        await a.connection.round_trip(2)
        kv = await i.create_key_value(KeyValueConfig(bucket="map", storage=StorageType.MEMORY))
        await kv.put("put", "hello world")
        await eventually(lambda: bool(received))

        assert received == [("$KV.map.put", b"hello world")]
        assert (await (await a.key_value("map")).get("put")).value == b"hello world"


@asynchronous
async def test_seed_kv(seed_server: NatsServer) -> None:
    """Every operation on a bucket works from I with the seed's configuration; keys never carry the prefix."""
    async with in_i(seed_server) as js:
        kv = await js.create_key_value(KeyValueConfig(bucket="all", history=4, storage=StorageType.MEMORY))
        await kv.put("a", "1")
        await kv.create("b", "2")
        with pytest.raises(KeyExistsError):
            await kv.create("b", "3")
        await kv.update("a", "4", 1)
        await kv.delete("b")
        with pytest.raises(KeyNotFoundError):
            await kv.get("b")
        await kv.put("c", "5")
        await kv.purge("c")
        async with await kv.watch() as watcher:
            entries = [await watcher.next() for _ in range(4)]
            await kv.put("d", "6")
            entries.append(await watcher.next())

        assert [entry and entry.key for entry in entries] == ["a", "b", "c", None, "d"]
        assert sorted(await kv.keys()) == ["a", "d"]
        assert [e.value for e in await kv.history("a")] == [b"1", b"4"]
        assert await kv.purge_deletes(older_than=0) == 2
        assert "all" in await js.key_value_names()


@asynchronous
async def test_seed_large_watch_goes_on_without_flow_control(seed_server: NatsServer) -> None:
    """The seed's configuration lets no flow control answers through: a watch notices, says so, and goes on."""
    errors = Errors()
    async with in_i(seed_server, error_callback=errors) as js:
        kv = await js.create_key_value(KeyValueConfig(bucket="large", storage=StorageType.MEMORY))
        for number in range(3000):
            await js.publish_async(f"fromA.$KV.large.k{number}", b"x" * 1000)
        await js.publish_async_complete(20)
        seen = 0
        async with await kv.watch(">", WatchOptions(heartbeat=0.2)) as watcher:
            while (await watcher.next(10)) is not None:
                seen += 1

        assert seen == 3000
        assert errors.of(FlowControlLostError)
        async with await kv.watch(">", WatchOptions(flow_control=False)) as watcher:
            for _ in range(3000):
                assert await watcher.next() is not None


@asynchronous
async def test_seed_what_is_not_imported(seed_server: NatsServer) -> None:
    """Subjects that the seed's configuration does not import fail clearly: plain publishes, acks, objects."""
    async with in_a(seed_server) as a, in_i(seed_server, timeout=0.7) as js:
        stream, subject = await stream_of_messages(a, 3)
        with pytest.raises(NoRespondersError):
            await js.publish(f"{subject}.a", retries=0)
        pull = await js.pull_subscribe(f"{subject}.a", stream=stream.name)
        message = await pull.next()
        with pytest.raises(NoRespondersError):
            await message.double_ack()
        objects = await js.create_object_store(ObjectStoreConfig(bucket="o", storage=StorageType.MEMORY))
        with pytest.raises(RequestTimeoutError, match="PubAck"):
            await objects.put("a", b"1")


# -- two accounts, the extended configuration


@asynchronous
async def test_extended_everything(extended_server: NatsServer) -> None:
    """With the imports that they need: publish, pull batches, acks, push with flow control, ordered, objects."""
    async with in_i(extended_server) as js:
        stream = await js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], storage=StorageType.MEMORY))
        for number in range(3000):
            await js.publish_async("orders.a", b"x" * 1000, msg_id=str(number))
        await js.publish_async_complete(20)
        assert (await js.publish("orders.a", b"", msg_id="7")).duplicate

        pull = await js.pull_subscribe("orders.*", durable="P")
        batch = await pull.fetch(100)
        assert len(batch) == 100
        await batch[0].double_ack()
        async with await pull.messages(PullOptions(max_messages=500)) as messages:
            for _ in range(2000):
                await (await messages.next()).ack()
        config = ConsumerConfig(idle_heartbeat=1, flow_control=True, ack_policy="none")
        async with await js.subscribe("orders.*", config=config) as sub:
            assert [(await sub.next()).sequence for _ in range(3000)][-1] == 3000
        async with await js.ordered("orders.*") as ordered:
            assert [(await ordered.next()).sequence for _ in range(3000)][-1] == 3000
            assert ordered.resets == 0
        assert (await stream.info()).state.consumer_count == 1

        objects = await js.create_object_store(ObjectStoreConfig(bucket="o", storage=StorageType.MEMORY))
        content = bytes(range(256)) * 3000
        await objects.put("a", content)
        assert await objects.get("a") == content
        await objects.delete("a")
        assert await objects.list() == []
        assert (await stream.get_message(1)).subject == "orders.a"


@asynchronous
async def test_wrong_inbox_prefix_is_told(extended_server: NatsServer) -> None:
    """Without the inbox prefix that the account exports nothing arrives: the heartbeat alarm says so."""
    from turnout.nats.jetstream.errors import HeartbeatMissedError

    errors = Errors()
    async with in_i(extended_server, inbox_prefix="_INBOX", error_callback=errors) as js:
        async with in_a(extended_server) as a:
            await a.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], storage=StorageType.MEMORY))
        await js.subscribe("orders.a", stream="ORDERS", config=ConsumerConfig(idle_heartbeat=0.2))
        await errors.expect(HeartbeatMissedError)


# -- domains over a leaf node


async def _exercise(js: JetStream, bucket: str) -> None:
    kv = await js.create_key_value(KeyValueConfig(bucket=bucket, storage=StorageType.MEMORY, history=3))
    await kv.put("a", "1")
    await kv.create("b", "2")
    await kv.update("a", "3", 1)
    await kv.delete("b")
    assert (await kv.get("a")).value == b"3"
    assert await kv.keys() == ["a"]
    assert len(await kv.history("b")) == 2


@asynchronous
async def test_domain_from_leaf_and_hub(leaf_and_hub: tuple[NatsServer, NatsServer]) -> None:
    """The domain's prefix reaches the hub from the leaf and from the hub itself; each keeps its own streams."""
    leaf, hub = leaf_and_hub
    async with connect(leaf.url, domain="HUB") as far, connect(hub.url, domain="HUB") as near, connect(leaf.url) as own:
        await _exercise(far, "far")
        await _exercise(near, "near")
        await _exercise(own, "own")

        assert sorted(await near.key_value_names()) == sorted(await far.key_value_names()) == ["far", "near"]
        assert await own.key_value_names() == ["own"]
        assert ((await far.account_info()).domain, (await own.account_info()).domain) == ("HUB", "LEAF")


@asynchronous
async def test_domain_streams(leaf_and_hub: tuple[NatsServer, NatsServer]) -> None:
    """Across the leaf: publish tells the domain; pull, acks, push with flow control and ordered consumers work."""
    leaf, _ = leaf_and_hub
    async with connect(leaf.url, domain="HUB") as js:
        _, subject = await stream_of_messages(js, 2500, size=1000)
        assert (await js.publish(f"{subject}.b")).domain == "HUB"
        pull = await js.pull_subscribe(f"{subject}.a")
        for message in await pull.fetch(50):
            await message.ack()

        async def floor_is_50() -> bool:
            return (await pull.info()).ack_floor.stream_seq == 50

        await eventually(floor_is_50)
        config = ConsumerConfig(idle_heartbeat=1, flow_control=True, ack_policy="none")
        async with await js.subscribe(f"{subject}.a", config=config) as sub:
            for _ in range(2500):
                await sub.next()
        async with await js.ordered(f"{subject}.a") as ordered:
            for _ in range(2500):
                await ordered.next()


@asynchronous
async def test_domain_objects(leaf_and_hub: tuple[NatsServer, NatsServer]) -> None:
    """Objects cross the leaf without a prefix; with one they are refused, as the hub does not map ``$O``."""
    leaf, _ = leaf_and_hub
    async with connect(leaf.url, domain="HUB") as js:
        objects = await js.create_object_store(ObjectStoreConfig(bucket="o", storage=StorageType.MEMORY))
        await objects.put("a", b"content")
        assert await objects.get("a") == b"content"
    async with connect(leaf.url, domain="HUB", prefix_objects=True) as js:
        with pytest.raises(NoRespondersError):
            await (await js.object_store("o")).add_bucket_link("b", await js.object_store("o"))


def test_domain_objects_with_the_mapping() -> None:
    """With the mapping that the docs name in the hub's configuration, prefixed object writes work from the leaf."""
    port = free_port()
    mapping = 'mappings { "$JS.HUB.API.$O.>": "$O.>" }\n'
    hub_text = conf("leaf-hub.conf").replace("15221", str(port)) + mapping
    leaf_text = conf("leaf-leaf.conf").replace("15221", str(port))

    async def check(url: str) -> None:
        async with connect(url, domain="HUB", prefix_objects=True) as js:
            objects = await js.create_object_store(ObjectStoreConfig(bucket="o", storage=StorageType.MEMORY))
            await objects.put("a", b"content")
            assert await objects.get("a") == b"content"

    with NatsServer(config=hub_text, jetstream=False), NatsServer(config=leaf_text, jetstream=False) as leaf:
        asyncio.run(_joined(leaf))
        asyncio.run(check(leaf.url))


@asynchronous
async def test_unknown_domain(leaf_and_hub: tuple[NatsServer, NatsServer]) -> None:
    """An unknown domain is told at once."""
    async with connect(leaf_and_hub[0].url, domain="NOWHERE", timeout=3600) as js:
        with pytest.raises(NoRespondersError):
            await js.account_info()


@asynchronous
async def test_mirror_across_domains(leaf_and_hub: tuple[NatsServer, NatsServer]) -> None:
    """A bucket on the leaf that mirrors one of the hub is read at the leaf, and written at the hub."""
    leaf, _ = leaf_and_hub
    async with connect(leaf.url) as js:
        hub = js.with_prefix(domain="HUB")
        origin = await hub.create_key_value(KeyValueConfig(bucket="origin", storage=StorageType.MEMORY))
        await origin.put("a", "1")
        config = KeyValueConfig(bucket="copy", mirror=StreamSource(name="origin", domain="HUB"))
        mirror = await js.create_key_value(config)
        await mirror.put("b", "2")
        revision = await mirror.create("c", "3")
        await mirror.update("c", "4", revision)
        await mirror.delete("a")
        assert (await origin.get("c")).value == b"4"

        async def arrived() -> bool:
            return sorted(await mirror.keys()) == ["b", "c"]

        await eventually(arrived, 15)
        assert (await mirror.get("c")).value == b"4"
        with pytest.raises(KeyNotFoundError):
            await mirror.get("a")


# -- permissions


PERMISSIONS = """
jetstream: enabled
authorization { users: [
  { user: u, password: u, permissions: {
      publish: { deny: ["$JS.API.STREAM.DELETE.>", "$KV.secret.>", "no.>"] }
      subscribe: { deny: ["_INBOX.bad.>", "forbidden.>"] } } }
] }
"""


def test_permissions() -> None:
    """A subject that the server refuses is an error at once, and tells which; nothing else is disturbed."""
    errors = Errors()

    async def check(url: str) -> None:
        # An error that came with the end of a request's time would not come here.
        async with connect(url, user="u", password="u", error_callback=errors, timeout=3600) as js:
            await js.create_stream(StreamConfig(name="S", subjects=["s", "no.>"], storage=StorageType.MEMORY))
            with pytest.raises(PermissionDeniedError) as failure:
                await js.delete_stream("S")
            assert failure.value.operation == "publish"
            assert isinstance(failure.value, PermissionError)
            kv = await js.create_key_value(KeyValueConfig(bucket="secret", storage=StorageType.MEMORY))
            with pytest.raises(PermissionDeniedError):
                await kv.put("a", "1")
            with pytest.raises(PermissionDeniedError):
                await (await js.publish_async("no.way"))
            await js.connection.listen("forbidden.x", lambda frames: None)
            await eventually(lambda: any(e.operation == "subscription" for e in errors.of(PermissionDeniedError)))
            await js.publish("s")

    async def wrong_password(url: str) -> None:
        with pytest.raises(ConnectionLostError):
            async with connect(url, user="u", password="wrong", connect_timeout=1):
                raise AssertionError("connected")

    with NatsServer(config=PERMISSIONS) as server:
        asyncio.run(check(server.url))
        asyncio.run(wrong_password(server.url))


@pytest.mark.parametrize("denied", ["$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.CONSUMER.MSG.NEXT.Orders.Worker", "inbox"])
def test_a_denied_pull_request(denied: str) -> None:
    """A pull request that may not be sent, or answered, raises the denial with the subject as it is written."""
    refused = '{ deny: ["_INBOX.Pull.>"] }' if denied == "inbox" else "{}"
    config = f"""jetstream: enabled
    authorization {{ users: [ {{ user: u, password: u, permissions: {{
      publish: {{ deny: ["{denied}"] }}, subscribe: {refused} }} }} ] }}"""
    errors = Errors()

    async def check(url: str) -> None:
        async with connect(url, user="u", password="u", error_callback=errors) as js:
            await js.create_stream(StreamConfig(name="Orders", subjects=["orders.>"], storage=StorageType.MEMORY))
            await js.publish("orders.Eu")
            consumer = await js.pull_subscribe("orders.>", durable="Worker")
            if denied == "inbox":
                numbers = itertools.count(1)
                js.connection.new_inbox = lambda: f"_INBOX.Pull.{next(numbers)}"  # type: ignore[method-assign]
            operation = "subscription" if denied == "inbox" else "publish"
            prefix = "_INBOX.Pull." if denied == "inbox" else "$JS.API.CONSUMER.MSG.NEXT.Orders.Worker"

            async def consumed() -> None:
                consuming = await consumer.consume(lambda message: None)
                await eventually(lambda: not consuming.running)
                raise errors[-1]

            async def iterated() -> None:
                async for _ in await consumer.messages():
                    pass

            async def pushed() -> None:
                await (await js.subscribe("orders.>")).next()

            async def in_order() -> None:
                await (await js.ordered("orders.>")).next()

            calls = [
                lambda: consumer.fetch(1),
                lambda: consumer.fetch(1, no_wait=True),
                lambda: consumer.next(),
                iterated,
                consumed,
            ]
            for call in calls + ([pushed, in_order] if denied == "inbox" else []):
                with pytest.raises(PermissionDeniedError) as failure:
                    await call()
                assert failure.value.operation == operation
                assert failure.value.subject.startswith(prefix)
            if denied != "inbox":
                assert js.connection._denial_handlers == {}

    with NatsServer(config=config) as server:
        asyncio.run(check(server.url))


def test_denied_answers() -> None:
    """A user who may not subscribe to the inbox of answers gets that denial, and no timeout."""
    config = """jetstream: enabled
    authorization { users: [ { user: u, password: u, permissions: { subscribe: { deny: ["_INBOX.>"] } } } ] }"""

    async def check(url: str) -> None:
        async with connect(url, user="u", password="u", error_callback=Errors(), timeout=60) as js:
            for _ in range(2):
                with pytest.raises(PermissionDeniedError, match=r"subscription '_INBOX\.") as failure:
                    await js.account_info()
                assert failure.value.operation == "subscription"

    with NatsServer(config=config) as server:
        asyncio.run(check(server.url))
