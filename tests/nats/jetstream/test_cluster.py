"""Three servers, streams of three replicas, and the loss of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack

import pytest
from tests.nats.jetstream.support import Errors, asynchronous, eventually, fresh

from turnout.embedded import NatsServer, free_port
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.jetstream import (
    ConsumerConfig,
    JetStream,
    KeyValueConfig,
    Message,
    PullOptions,
    StorageType,
    Stream,
    StreamConfig,
    connect,
)

pytestmark = pytest.mark.heavy

NAMES = ("n1", "n2", "n3")

Cluster = dict[str, NatsServer]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nats-servers that know each other, with a leader; new ones for each test, as each test loses one."""
    ports = {name: free_port() for name in NAMES}
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports.values())
    with ExitStack() as running:
        servers = {}
        for name, port in ports.items():
            config = (
                f'server_name: {name}\ncluster {{ name: C, listen: "127.0.0.1:{port}", no_advertise: true,'
                f" routes: [{routes}] }}\n"
            )
            servers[name] = running.enter_context(NatsServer(config=config))
        asyncio.run(_formed(servers))
        yield servers


async def _formed(servers: Cluster) -> None:
    async with reach(servers) as js:

        async def makes_a_stream() -> bool:
            config = StreamConfig(name=fresh("FIRST"), storage=StorageType.MEMORY, num_replicas=3)
            try:
                await js.create_stream(config)
            except (StreamError, ConnectionLostError):
                return False
            return True

        await eventually(makes_a_stream, 40)


def reach(servers: Cluster, errors: Errors | None = None) -> AbstractAsyncContextManager[JetStream]:
    urls = [server.url for server in servers.values()]
    return connect(urls, error_callback=errors or Errors(), timeout=2, connect_timeout=20)


async def leader_of(stream: Stream) -> str:
    """The name of the server that leads, once there is one."""
    leader = ""

    async def leader_known() -> bool:
        nonlocal leader
        try:
            cluster = (await stream.info()).cluster
        except (StreamError, ConnectionLostError):
            return False
        leader = cluster.leader if cluster else ""
        return bool(leader)

    await eventually(leader_known, 30)
    return leader


async def store(js: JetStream, subject: str, numbers: range) -> None:
    """Publish each number until it is stored, under its own id."""
    for number in numbers:

        async def stored(number: int = number) -> bool:
            try:
                await js.publish(subject, b"%d" % number, msg_id=f"{subject}-{number}", timeout=1)
            except (StreamError, ConnectionLostError):
                return False
            return True

        await eventually(stored, 30)


@asynchronous
async def test_three_replicas_are_told(cluster: Cluster) -> None:
    """Stream and consumer say who leads and who follows."""
    async with reach(cluster) as js:
        name = fresh()
        stream = await js.create_stream(StreamConfig(name=name, subjects=[name.lower()], num_replicas=3))
        pull = await js.pull_subscribe(name.lower(), durable="d")
        for cluster_info in ((await stream.info()).cluster, (await pull.info()).cluster):
            assert cluster_info is not None
            assert cluster_info.name == "C"
            assert {cluster_info.leader, *(peer.name for peer in cluster_info.replicas)} == set(NAMES)


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "asked to stop"])
@asynchronous
async def test_the_leader_is_lost(cluster: Cluster, kill: bool) -> None:
    """Readers and writers go on under another leader: every message is stored once, and each reader gets it."""
    async with reach(cluster) as js:
        name = fresh()
        subject = name.lower()
        config = StreamConfig(name=name, subjects=[subject], num_replicas=3, duplicate_window=120)
        stream = await js.create_stream(config)
        pulled: list[int] = []

        async def take(message: Message) -> None:
            pulled.append(int(message.data))
            await message.ack()

        pull = await js.pull_subscribe(subject, durable="d", config=ConsumerConfig(ack_wait=2))
        consuming = await pull.consume(take, PullOptions(expires=2, heartbeat=0.5))
        seen: list[int] = []
        await js.ordered(
            subject, lambda message: seen.append(int(message.data)), config=ConsumerConfig(idle_heartbeat=0.5)
        )
        await store(js, subject, range(100))
        lost = await leader_of(stream)
        await asyncio.to_thread(cluster[lost].stop, kill=kill)
        try:
            await store(js, subject, range(100, 200))
            assert await leader_of(stream) != lost
            await eventually(lambda: set(pulled) == set(range(200)) and len(seen) == 200, 30)
            state = (await stream.info()).state
        finally:
            await asyncio.to_thread(cluster[lost].start)

        assert state.messages == state.last_seq == 200
        assert seen == list(range(200))
        await consuming.stop()

        async def whole_again() -> bool:
            cluster = (await stream.info()).cluster
            return cluster is not None and all(peer.current and not peer.offline for peer in cluster.replicas)

        await eventually(whole_again, 30)


@asynchronous
async def test_a_bucket_without_its_leader(cluster: Cluster) -> None:
    """A replicated bucket keeps what was put, and a watch goes on, when its leader goes."""
    async with reach(cluster) as js:
        bucket = fresh("b")
        kv = await js.create_key_value(KeyValueConfig(bucket=bucket, replicas=3))
        await kv.put("k", "1")
        watcher = await kv.watch("k")
        # A replica that lags says that all is told (None) before it has the value itself.
        first = await watcher.next(30) or await watcher.next(30)
        assert first is not None
        assert first.value == b"1"
        lost = await leader_of(await js.stream(f"KV_{bucket}"))
        await asyncio.to_thread(cluster[lost].stop, kill=True)
        try:

            async def put() -> bool:
                try:
                    await kv.put("k", "2")
                except (StreamError, ConnectionLostError):
                    return False
                return True

            async def stored() -> bool:
                # Any replica answers, also one that lags.
                return (await kv.get("k")).value == b"2"

            await eventually(put, 30)
            await eventually(stored, 30)

            async def updated() -> bool:
                entry = await watcher.next(20)
                return entry is not None and entry.value == b"2"

            await eventually(updated, 30)
        finally:
            await asyncio.to_thread(cluster[lost].start)
