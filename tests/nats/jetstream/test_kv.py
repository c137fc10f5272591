"""Key-value buckets on a real server."""

from __future__ import annotations

import asyncio

import pytest
from tests.nats.jetstream.buckets import bucket
from tests.nats.jetstream.support import asynchronous, fresh

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream.errors import StreamNotFoundError, WrongLastSequenceError
from turnout.nats.jetstream.kv import KeyExistsError, KeyNotFoundError, KeyValueConfig
from turnout.nats.jetstream.kv_watch import Operation
from turnout.nats.jetstream.stream_config import StreamSource


@asynchronous
async def test_a_life(nats_server: NatsServer) -> None:
    """Put, get, update, delete and purge do what they say, with revisions that grow."""
    async with bucket(nats_server, history=5) as (_, kv):
        assert await kv.put("a.b", "one") == 1
        assert await kv.update("a.b", b"two", 1) == 2
        entry = await kv.get("a.b")
        assert (entry.key, entry.value, entry.revision, entry.operation) == ("a.b", b"two", 2, Operation.PUT)
        assert (await kv.get("a.b", revision=1)).value == b"one"
        with pytest.raises(WrongLastSequenceError):
            await kv.update("a.b", "three", 1)
        with pytest.raises(WrongLastSequenceError):
            await kv.delete("a.b", revision=1)
        await kv.delete("a.b")
        with pytest.raises(KeyNotFoundError):
            await kv.get("a.b")
        assert [e.operation for e in await kv.history("a.b")] == [Operation.PUT, Operation.PUT, Operation.DELETE]
        await kv.put("a.b", "four")
        await kv.purge("a.b")
        assert [e.operation for e in await kv.history("a.b")] == [Operation.PURGE]
        with pytest.raises(KeyNotFoundError):
            await kv.get("a.b", revision=5)


@asynchronous
async def test_create(nats_server: NatsServer) -> None:
    """Create sets a key that is not there, or was deleted or purged, and only such a key."""
    async with bucket(nats_server) as (_, kv):
        await kv.create("k", "1")
        with pytest.raises(KeyExistsError) as failure:
            await kv.create("k", "2")
        assert failure.value.err_code in (10071, 10164)
        await kv.delete("k")
        await kv.create("k", "3")
        await kv.purge("k")
        await kv.create("k", "4")
        assert (await kv.get("k")).value == b"4"


@asynchronous
async def test_only_one_creates(nats_server: NatsServer) -> None:
    """Of many that create one key at once, one succeeds."""
    async with bucket(nats_server) as (_, kv):
        results = await asyncio.gather(*(kv.create("k", str(n)) for n in range(20)), return_exceptions=True)

        assert sorted(type(r).__name__ for r in results)[-1] == "int"
        assert len([r for r in results if isinstance(r, KeyExistsError)]) == 19


@asynchronous
async def test_keys_and_purge_deletes(nats_server: NatsServer) -> None:
    """Keys are those that are there; purged markers are gone, young ones stay."""
    async with bucket(nats_server, history=3) as (js, kv):
        assert await kv.keys() == []
        for key in ("a", "b.c", "b.d"):
            await kv.put(key, "x")
        await kv.delete("a")
        assert sorted(await kv.keys()) == ["b.c", "b.d"]
        assert await kv.keys("b.c") == ["b.c"]
        assert await kv.purge_deletes() == 1
        assert (await kv.status()).state.messages == 3
        assert await kv.purge_deletes(older_than=0) == 1
        assert (await kv.status()).state.messages == 2
        assert kv.bucket in await js.key_value_names()
        await js.delete_key_value(kv.bucket)
        with pytest.raises(StreamNotFoundError):
            await js.key_value(kv.bucket)


@asynchronous
async def test_ttls_and_limits(nats_server: NatsServer) -> None:
    """A key with a TTL goes and leaves a marker; limits of the bucket hold."""
    async with bucket(nats_server, limit_marker_ttl=2, max_value_size=100) as (_, kv):
        await kv.create("short", "x", ttl=1)
        async with await kv.watch("short") as watcher:
            assert (await watcher.next()).value == b"x"  # type: ignore[union-attr]
            assert await watcher.next() is None
            marker = await watcher.next(4)
            assert marker is not None
            assert marker.operation is Operation.PURGE
        with pytest.raises(KeyNotFoundError):
            await kv.get("short")
        with pytest.raises(Exception, match="size exceeds"):
            await kv.put("big", b"x" * 200)


@asynchronous
async def test_local_mirror(nats_server: NatsServer) -> None:
    """A bucket that mirrors another is read in place, and written at its origin; create and update too."""
    async with bucket(nats_server) as (js, kv):
        await kv.put("k", "1")
        name = fresh("mirror")
        mirror = await js.create_key_value(KeyValueConfig(bucket=name, mirror=StreamSource(name=kv.bucket)))
        await mirror.put("k2", "2")
        await mirror.create("k3", "3")
        async with asyncio.timeout(5):
            while len(await mirror.keys()) < 3:
                await asyncio.sleep(0.02)

        assert (await kv.get("k3")).value == b"3"
        assert (await mirror.get("k")).value == b"1"
        with pytest.raises(KeyExistsError):
            await mirror.create("k", "x")


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", ">", "é"])
@asynchronous
async def test_bad_keys(nats_server: NatsServer, key: str) -> None:
    """An invalid key is refused before it is sent."""
    async with bucket(nats_server) as (_, kv):
        for call in (kv.put(key, "x"), kv.get(key), kv.create(key, "x"), kv.delete(key), kv.purge(key)):
            with pytest.raises(ConfigError):
                await call


def test_bad_buckets() -> None:
    """Every mistake of a bucket's configuration is told at once."""
    with pytest.raises(ConfigError) as failure:
        KeyValueConfig(bucket="a.b", history=65, limit_marker_ttl=0.5).to_stream()

    assert {m.path for m in failure.value.mistakes} == {"bucket", "history", "limit_marker_ttl"}
