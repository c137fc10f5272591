"""Key-value buckets on a real server."""

from __future__ import annotations

import asyncio

import pytest
from tests.nats.jetstream.buckets import bucket
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, fresh

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import StorageType, connect
from turnout.nats.jetstream.config import StreamSource
from turnout.nats.jetstream.errors import (
    RequestTimeoutError,
    StreamNotFoundError,
    StreamReplacedError,
    WrongLastSequenceError,
)
from turnout.nats.jetstream.kv import (
    Entry,
    KeyExistsError,
    KeyNotFoundError,
    KeyValue,
    KeyValueConfig,
    Operation,
    WatchOptions,
)


async def initial(kv: KeyValue, options: WatchOptions, keys: object = ">") -> list[tuple[str, bytes, str]]:
    async with await kv.watch(keys, options) as watcher:  # type: ignore[arg-type]
        entries = []
        while (entry := await watcher.next()) is not None:
            entries.append((entry.key, entry.value, entry.operation.value))
    return entries


@asynchronous
async def test_watch_options(nats_server: NatsServer) -> None:
    """Every option of a watcher shows what it says, and the end of what was there is told once."""
    async with bucket(nats_server, history=4) as (_, kv):
        assert await initial(kv, WatchOptions()) == []
        for key, value in (("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")):
            await kv.put(key, value)
        await kv.delete("c")

        assert await initial(kv, WatchOptions()) == [("b", b"2", "PUT"), ("a", b"3", "PUT"), ("c", b"", "DEL")]
        assert await initial(kv, WatchOptions(ignore_deletes=True)) == [("b", b"2", "PUT"), ("a", b"3", "PUT")]
        assert await initial(kv, WatchOptions(keys_only=True), ("a", "b")) == [("b", b"", "PUT"), ("a", b"", "PUT")]
        assert len(await initial(kv, WatchOptions(history=True))) == 5
        assert await initial(kv, WatchOptions(resume_from=4)) == [("c", b"4", "PUT"), ("c", b"", "DEL")]
        with pytest.raises(ConfigError):
            WatchOptions(history=True, updates_only=True).to_consumer()

        async with await kv.watch(">", WatchOptions(updates_only=True)) as watcher:
            with pytest.raises(RequestTimeoutError):
                await watcher.next(0.1)
            await kv.put("new", "5")
            update = await watcher.next()
            assert isinstance(update, Entry)
            assert (update.key, update.value, update.delta) == ("new", b"5", 0)
        assert [entry async for entry in watcher] == []


@asynchronous
async def test_watch_survives_a_cut(nats_server: NatsServer) -> None:
    """A watcher goes on over a lost connection, without a change missed or seen twice."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=lambda e: None) as js:
        kv = await js.create_key_value(KeyValueConfig(bucket=fresh("bucket"), storage=StorageType.MEMORY))
        await kv.put("k", "0")
        async with connect(nats_server.url) as other, await kv.watch() as watcher:
            theirs = await other.key_value(kv.bucket)
            seen = [(await watcher.next()), (await watcher.next())]
            proxy.cut()
            for number in range(1, 6):
                await theirs.put(f"k{number}", str(number))
            keys = [(await watcher.next()).key for _ in range(5)]  # type: ignore[union-attr]

        assert seen[1] is None
        assert keys == ["k1", "k2", "k3", "k4", "k5"]


@asynchronous
async def test_a_bucket_made_again(nats_server: NatsServer) -> None:
    """A watch of a bucket that was deleted and made again ends with the reason, or watches the new one if it may."""
    for fails in (True, False):
        errors = Errors()
        async with connect(nats_server.url, error_callback=errors) as js:
            config = KeyValueConfig(bucket=fresh("bucket"), storage=StorageType.MEMORY)
            kv = await js.create_key_value(config)
            await kv.put("old", "1")
            async with await kv.watch(">", WatchOptions(heartbeat=0.2, fail_on_data_loss=fails)) as watcher:
                assert [getattr(await watcher.next(), "key", None) for _ in range(2)] == ["old", None]
                await js.delete_key_value(kv.bucket)
                again = await js.create_key_value(config)
                await again.put("new", "1")
                if fails:
                    with pytest.raises(StreamReplacedError, match="created at"):
                        await watcher.next(20)
                    with pytest.raises(StreamReplacedError):
                        await anext(watcher)
                else:
                    entry = await watcher.next(20)
                    assert isinstance(entry, Entry)
                    assert (entry.key, entry.revision) == ("new", 1)
            assert len(errors.of(StreamReplacedError)) == 1

            with pytest.raises(StreamReplacedError, match="position 6"):
                await again.watch(">", WatchOptions(resume_from=7))


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
