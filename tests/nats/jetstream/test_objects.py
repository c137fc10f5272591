"""Object stores on a real server."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.nats.jetstream.support import asynchronous, eventually, fresh

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import JetStream, StorageType, connect
from turnout.nats.jetstream.errors import StreamError, StreamNotFoundError
from turnout.nats.jetstream.objects import (
    DigestMismatchError,
    LinkError,
    ObjectMeta,
    ObjectMetaOptions,
    ObjectNotFoundError,
    ObjectStore,
    ObjectStoreConfig,
)


@asynccontextmanager
async def store(server: NatsServer) -> AsyncIterator[tuple[JetStream, ObjectStore]]:
    async with connect(server.url) as js:
        yield js, await js.create_object_store(ObjectStoreConfig(bucket=fresh("obj"), storage=StorageType.MEMORY))


BIG = os.urandom(1_000_001)


async def pieces() -> AsyncIterator[bytes]:
    for begin in range(0, len(BIG), 77_777):
        yield BIG[begin : begin + 77_777]


@pytest.mark.parametrize("form", ["bytes", "file", "path", "pieces", "list"])
@asynchronous
async def test_every_form_of_content(nats_server: NatsServer, tmp_path: Path, form: str) -> None:
    """Content of any form comes back as it was, in chunks, with its digest."""
    path = tmp_path / "big"
    path.write_bytes(BIG)
    contents: dict[str, Any] = {
        "bytes": BIG, "file": io.BytesIO(BIG), "path": path, "pieces": pieces(), "list": [BIG[:5], BIG[5:]],
    }  # fmt: skip
    async with store(nats_server) as (_, objects):
        info = await objects.put("dir/a file.bin", contents[form])

        assert (info.size, info.chunks) == (len(BIG), 8)
        assert await objects.get("dir/a file.bin") == BIG
        assert await objects.get_file("dir/a file.bin", tmp_path / "copy") == len(BIG)
        assert (tmp_path / "copy").read_bytes() == BIG
        assert sorted(p.name for p in tmp_path.iterdir()) == ["big", "copy"]


@asynchronous
async def test_meta_and_replacement(nats_server: NatsServer) -> None:
    """Metadata is kept; a new object under an old name leaves no old chunk."""
    meta = ObjectMeta(
        name="n", description="d", headers={"A": "1"}, metadata={"k": "v"}, options=ObjectMetaOptions(max_chunk_size=10)
    )
    async with store(nats_server) as (_, objects):
        first = await objects.put(meta, b"x" * 95)
        second = await objects.put("n", b"")

        assert (first.chunks, first.description, first.headers, first.metadata) == (10, "d", {"A": ["1"]}, {"k": "v"})
        assert second.size == 0
        assert await objects.get("n") == b""
        assert (await objects.status()).state.messages == 1
        await objects.update_meta("n", ObjectMeta(name="m", description="new"))
        assert (await objects.info("m")).description == "new"
        with pytest.raises(ObjectNotFoundError):
            await objects.info("n")


@asynchronous
async def test_delete_list_watch(nats_server: NatsServer) -> None:
    """Deleted objects are marks; lists leave them out; watchers see them."""
    async with store(nats_server) as (js, objects):
        assert await objects.list() == []
        await objects.put("a", b"1")
        await objects.put("b", b"2")
        await objects.delete("a")
        assert [i.name for i in await objects.list()] == ["b"]
        assert sorted(i.name for i in await objects.list(deleted=True)) == ["a", "b"]
        with pytest.raises(ObjectNotFoundError):
            await objects.get("a")
        assert (await objects.info("a", deleted=True)).deleted
        async with await objects.watch(updates_only=True) as watcher:
            await objects.put("c", b"3")
            assert (await watcher.next()).name == "c"  # type: ignore[union-attr]
        assert objects.bucket in await js.object_store_names()
        await js.delete_object_store(objects.bucket)
        with pytest.raises(StreamNotFoundError):
            await js.object_store(objects.bucket)


@asynchronous
async def test_links(nats_server: NatsServer) -> None:
    """A link to an object is followed, over stores too; one to a store is no content; none points to a link."""
    async with store(nats_server) as (js, objects):
        other = await js.create_object_store(ObjectStoreConfig(bucket=fresh("obj"), storage=StorageType.MEMORY))
        target = await other.put("real", b"content")
        link = await objects.add_link("link", target)
        await objects.add_bucket_link("whole", other)

        assert await objects.get("link") == b"content"
        with pytest.raises(LinkError, match="link to the store"):
            await objects.get("whole")
        with pytest.raises(LinkError, match="itself a link"):
            await objects.add_link("again", link)
        await objects.put("object", b"")
        with pytest.raises(LinkError, match="has an object"):
            await objects.add_link("object", target)


@asynchronous
async def test_seal(nats_server: NatsServer) -> None:
    """A sealed store can be read and not changed."""
    async with store(nats_server) as (_, objects):
        await objects.put("a", b"1")
        await objects.seal()
        assert await objects.get("a") == b"1"
        with pytest.raises(StreamError):
            await objects.put("b", b"2")


@asynchronous
async def test_damage_is_seen(nats_server: NatsServer, tmp_path: Path) -> None:
    """A chunk that is gone is an error, and leaves no file."""
    async with store(nats_server) as (js, objects):
        meta = ObjectMeta(name="a", options=ObjectMetaOptions(max_chunk_size=10))
        info = await objects.put(meta, b"0123456789" * 3)
        stream = await js.stream(f"OBJ_{objects.bucket}")
        await stream.delete_message(2)
        with pytest.raises(DigestMismatchError, match=info.digest):
            await objects.get("a")
        with pytest.raises(DigestMismatchError):
            await objects.get_file("a", tmp_path / "a")
        assert list(tmp_path.iterdir()) == []


@asynchronous
async def test_a_failed_put_leaves_nothing(nats_server: NatsServer) -> None:
    """A put that fails, or is cancelled, removes its chunks and leaves the old object."""
    async with store(nats_server) as (_, objects):
        await objects.put("a", b"old")

        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * 300_000
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError):
            await objects.put("a", broken())

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 130_000
                await asyncio.sleep(0.01)

        task = asyncio.create_task(objects.put("a", endless()))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def only_old() -> bool:
            return (await objects.status()).state.messages == 2

        await eventually(only_old)
        assert await objects.get("a") == b"old"


@asynchronous
async def test_bad_requests(nats_server: NatsServer) -> None:
    """An invalid request is refused before it is sent."""
    async with store(nats_server) as (js, objects):
        for meta in (ObjectMeta(name=""), ObjectMeta(name="a", options=ObjectMetaOptions(max_chunk_size=1 << 30))):
            with pytest.raises(ConfigError):
                await objects.put(meta, b"")
        with pytest.raises(ConfigError):
            await js.object_store("a.b")


def test_the_digest_is_of_the_form_that_others_write() -> None:
    """SHA-256= and base64 for URLs, as nats.go and nats-py have it; seen on the name too."""
    from turnout.nats.jetstream.objects import encode_name

    assert encode_name("dir/ä?") == "ZGlyL8OkPw=="
    assert hashlib.sha256(b"").digest()[:2] == b"\xe3\xb0"
