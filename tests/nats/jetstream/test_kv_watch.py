"""Watches of key-value buckets on a real server."""

from __future__ import annotations

import pytest
from tests.nats.jetstream.buckets import bucket
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, fresh

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import StorageType, connect
from turnout.nats.jetstream.errors import RequestTimeoutError, StreamReplacedError
from turnout.nats.jetstream.kv import KeyValue, KeyValueConfig
from turnout.nats.jetstream.kv_watch import Entry, WatchOptions


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
