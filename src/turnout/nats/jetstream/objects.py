"""Object stores: files of any size as chunks in a stream (ADR-19 for their subjects; nats.go for their form)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from turnout.base.files import new_file
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.nats.jetstream.config import (
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    Placement,
    StorageType,
    StoreCompression,
    StreamConfig,
    StreamInfo,
    coded,
    decode,
    encode,
    moment,
    nested,
)
from turnout.nats.jetstream.connection import check_bucket
from turnout.nats.jetstream.errors import MessageNotFoundError, StreamError
from turnout.nats.jetstream.ordered import OrderedSubscription, Watching
from turnout.nats.jetstream.publish import PubAck
from turnout.nats.jetstream.stream import Stream

if TYPE_CHECKING:
    from turnout.nats.jetstream.context import JetStream

DEFAULT_CHUNK = 128 * 1024


class ObjectNotFoundError(MessageNotFoundError):
    """Raised when an object is not there, or was deleted."""


class DigestMismatchError(StreamError):
    """Raised if the size or the digest of the content differs from the stored one."""


class LinkError(StreamError, ValueError):
    """Raised when a link cannot be made or followed."""


def encode_name(name: str) -> str:
    """An object's name as a subject token: base64 for URLs, with its padding."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def object_stream(bucket: str) -> str:
    """The name of an object store's stream.

    Raises:
        ConfigError: *bucket* cannot be a store's name.
    """
    return f"OBJ_{check_bucket(bucket)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreConfig:
    """An object store's configuration; durations are in seconds, a limit of None means no limit.

    >>> stream = ObjectStoreConfig(bucket="labels").to_stream()
    >>> stream.name, stream.subjects
    ('OBJ_labels', ['$O.labels.C.>', '$O.labels.M.>'])
    """

    bucket: str
    description: str | None = None
    ttl: float | None = None
    max_bytes: int | None = None
    storage: StorageType | str | None = None
    replicas: int = 1
    placement: Placement | None = None
    compression: bool = False
    metadata: Mapping[str, str] | None = None

    def to_stream(self) -> StreamConfig:
        """Return the configuration of the stream that holds the store.

        Raises:
            ConfigError: the bucket's name cannot be one.
        """
        return StreamConfig(
            name=object_stream(self.bucket),
            description=self.description,
            subjects=[f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
            max_age=self.ttl,
            max_bytes=self.max_bytes or -1,
            storage=self.storage,
            num_replicas=self.replicas,
            placement=self.placement,
            discard=DiscardPolicy.NEW,
            allow_rollup_hdrs=True,
            allow_direct=True,
            compression=StoreCompression.S2 if self.compression else None,
            metadata=self.metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLink:
    """Target of a link: an object, or a whole store where *name* is None."""

    bucket: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMetaOptions:
    """Storage options of an object."""

    link: ObjectLink | None = nested(ObjectLink)
    max_chunk_size: int | None = None


def _write_headers(headers: Mapping[str, Sequence[str] | str]) -> dict[str, list[str]]:
    return {name: [value] if isinstance(value, str) else list(value) for name, value in headers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """Metadata of an object that its writer chooses."""

    name: str
    description: str | None = None
    headers: Mapping[str, Sequence[str] | str] | None = coded(_write_headers, dict)
    metadata: Mapping[str, str] | None = None
    options: ObjectMetaOptions | None = nested(ObjectMetaOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """Stored metadata message of an object.

    Attributes:
        nuid: NUID in the subject of its chunks.
        size: in bytes.
        mtime: when it was stored; the time of the metadata message, not part of it.
        chunks: how many.
        digest: ``SHA-256=`` and the digest in base64 for URLs.
    """

    name: str
    bucket: str
    nuid: str
    size: int = 0
    mtime: datetime | None = moment()
    chunks: int = 0
    digest: str | None = None
    deleted: bool | None = None
    description: str | None = None
    headers: Mapping[str, Sequence[str]] | None = coded(_write_headers, dict)
    metadata: Mapping[str, str] | None = None
    options: ObjectMetaOptions | None = nested(ObjectMetaOptions)
    extra: JsonMapping = field(default_factory=dict)

    @property
    def link(self) -> ObjectLink | None:
        """Target of the link; None if this is no link."""
        return self.options.link if self.options else None

    def to_json(self) -> JsonObject:
        """The metadata message; the time is the server's to set."""
        document = encode(self)
        document.setdefault("size", 0)
        document["mtime"] = "0001-01-01T00:00:00Z"
        return document

    @classmethod
    def from_json(cls, document: JsonMapping, mtime: datetime | None) -> ObjectInfo:
        """An object's facts from its metadata message and that message's time."""
        return replace(decode(cls, document), mtime=mtime)


class ObjectWatcher(Watching[ObjectInfo]):
    """Objects as they change."""

    def __init__(self, subscription: OrderedSubscription, *, ignore_deletes: bool, updates_only: bool) -> None:
        super().__init__(subscription)
        self._ignore_deletes = ignore_deletes
        self._initial_reported = updates_only
        self._over = not subscription.initial_pending

    async def next(self, timeout: float | None = 5.0) -> ObjectInfo | None:
        """See `Watching.next`."""
        while True:
            if self._over and not self._initial_reported:
                self._initial_reported = True
                return None
            message = await self._subscription.next(timeout)
            self._over = self._over or message.metadata.num_pending == 0
            info = ObjectInfo.from_json(json.loads(message.data), message.timestamp)
            if not (info.deleted and self._ignore_deletes):
                return info


_MAX_CHUNKS_IN_FLIGHT = 32

Content = bytes | str | Path | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
"""Content to store: bytes, text, a file by its path, an open binary file, or an iterable of chunks."""


async def _pieces(content: Content, size: int) -> AsyncIterator[bytes]:
    """*content* in pieces of *size* bytes, the last one shorter."""
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        for begin in range(0, len(content), size):
            yield content[begin : begin + size]
        return
    if isinstance(content, Path):
        with content.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, size):
                yield piece
        return
    buffer = bytearray()
    async for piece in _sources(content, size):
        buffer += piece
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


async def _sources(content: BinaryIO | Iterable[bytes] | AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    if isinstance(content, AsyncIterable):
        async for piece in content:
            yield piece
    elif hasattr(content, "read"):
        while piece := await asyncio.to_thread(content.read, size):
            yield piece
    else:
        for piece in content:
            yield piece


class ObjectStore:
    """A store of objects; made by `JetStream.object_store` and `JetStream.create_object_store`."""

    def __init__(self, js: JetStream, bucket: str, stream: Stream) -> None:
        self._js = js
        self.bucket = bucket
        self._stream = stream

    def _meta_subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{encode_name(name)}"

    def _chunk_subject(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"

    @classmethod
    async def open(cls, js: JetStream, bucket: str) -> Self:
        """Return a store that exists.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return cls(js, bucket, await js.stream(object_stream(bucket)))

    # -- writing

    async def put(self, meta: ObjectMeta | str, content: Content) -> ObjectInfo:
        """Store an object, in place of the one that has its name.

        The chunks are stored first and the metadata last, so that a reader sees the old object or the new one. If it
        fails or is cancelled on the way, the chunks are removed again and the old object is kept.

        Raises:
            ConfigError: no name, a chunk size that cannot be, or a link (use `add_link`).
            StreamError: the stream refused it.
        """
        about = ObjectMeta(name=meta) if isinstance(meta, str) else meta
        size = (about.options.max_chunk_size if about.options else None) or DEFAULT_CHUNK
        mistakes = []
        if not about.name:
            mistakes.append(Mistake("name", "an object needs a name"))
        if about.options and about.options.link:
            mistakes.append(Mistake("options.link", "an object with content cannot be a link"))
        if not 0 < size <= self._js.connection.max_payload:
            mistakes.append(Mistake("options.max_chunk_size", f"{size} is not between 1 and the server's max_payload"))
        if mistakes:
            raise ConfigError(mistakes, what="bad object")
        before = await self._existing(about.name)
        nuid = self._js.connection.unique()
        flying: list[asyncio.Future[PubAck]] = []
        try:
            total, chunks, digest = await self._put_chunks(nuid, content, size, flying)
            info = ObjectInfo(
                name=about.name,
                bucket=self.bucket,
                nuid=nuid,
                size=total,
                chunks=chunks,
                digest=f"SHA-256={base64.urlsafe_b64encode(digest).decode()}",
                description=about.description,
                headers={name: [v] if isinstance(v, str) else list(v) for name, v in about.headers.items()}
                if about.headers
                else None,
                metadata=about.metadata,
                options=ObjectMetaOptions(max_chunk_size=size),
            )
            await self._put_info(info)
        except BaseException:
            self._js.api.spawn(self._forget_chunks(nuid, flying))
            raise
        if before is not None and not before.deleted and before.nuid:
            await self._stream.purge(self._chunk_subject(before.nuid))
        return await self.info(about.name)

    async def _put_chunks(
        self, nuid: str, content: Content, size: int, flying: list[asyncio.Future[PubAck]]
    ) -> tuple[int, int, bytes]:
        """Store the chunks and return (bytes, chunks, digest); *flying* collects unconfirmed publishes."""
        target = self._js.prefix.object(self._chunk_subject(nuid))
        digest = hashlib.sha256()
        total = chunks = 0
        async for piece in _pieces(content, size):
            digest.update(piece)
            total += len(piece)
            chunks += 1
            flying.append(await self._js.publish_async(target, piece))
            if len(flying) >= _MAX_CHUNKS_IN_FLIGHT:
                # wait, unlike await, leaves the future alone when we are cancelled: the clean-up waits for it too.
                await asyncio.wait(flying[:1])
                flying.pop(0).result()
        if flying:
            await asyncio.wait(flying)
        for future in flying:
            future.result()
        return total, chunks, digest.digest()

    async def _put_info(self, info: ObjectInfo) -> None:
        target = self._js.prefix.object(self._meta_subject(info.name))
        body = json.dumps(info.to_json(), separators=(",", ":")).encode()
        await self._js.publish(target, body, headers={"Nats-Rollup": "sub"})

    async def _forget_chunks(self, nuid: str, flying: list[asyncio.Future[PubAck]]) -> None:
        # The server may take a purge before a chunk that was sent earlier.
        await asyncio.gather(*flying, return_exceptions=True)
        with suppress(TurnoutError):
            await self._stream.purge(self._chunk_subject(nuid))

    async def update_meta(self, name: str, meta: ObjectMeta) -> None:
        """Change an object's metadata, including its name; its content is unchanged.

        Raises:
            ObjectNotFoundError: it is not there.
            StreamError: another object has the new name.
        """
        info = await self.info(name)
        if meta.name != name and (existing := await self._existing(meta.name)) is not None and not existing.deleted:
            raise StreamError(f"the store {self.bucket!r} has an object {meta.name!r}", code=400)
        headers = {k: [v] if isinstance(v, str) else list(v) for k, v in meta.headers.items()} if meta.headers else None
        changed = replace(
            info, name=meta.name, description=meta.description, headers=headers, metadata=meta.metadata, mtime=None
        )
        await self._put_info(changed)
        if meta.name != name:
            await self._stream.purge(self._meta_subject(name))

    async def delete(self, name: str) -> None:
        """Delete an object: a mark replaces it.

        Raises:
            ObjectNotFoundError: it is not there.
        """
        info = await self.info(name)
        await self._put_info(replace(info, size=0, chunks=0, digest=None, deleted=True, mtime=None))
        await self._stream.purge(self._chunk_subject(info.nuid))

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Make a link to an object, of this or of another store.

        Raises:
            LinkError: the target is deleted or is itself a link, or *name* is that of an object.
        """
        if target.deleted:
            raise LinkError(f"{target.name!r} is deleted: no link can point to it")
        if target.link is not None:
            raise LinkError(f"{target.name!r} is itself a link")
        return await self._add_link(name, ObjectLink(bucket=target.bucket, name=target.name))

    async def add_bucket_link(self, name: str, target: ObjectStore) -> ObjectInfo:
        """Make a link to a whole store.

        Raises:
            LinkError: *name* is that of an object.
        """
        return await self._add_link(name, ObjectLink(bucket=target.bucket))

    async def _add_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        if not name:
            raise ConfigError([Mistake("name", "a link needs a name")])
        before = await self._existing(name)
        if before is not None and not before.deleted and before.link is None:
            raise LinkError(f"the store {self.bucket!r} has an object {name!r}")
        nuid = self._js.connection.unique()
        await self._put_info(ObjectInfo(name=name, bucket=self.bucket, nuid=nuid, options=ObjectMetaOptions(link=link)))
        return await self.info(name)

    async def seal(self) -> None:
        """Seal the store permanently against changes."""
        info = await self._stream.info()
        await self._js.update_stream(replace(info.config, sealed=True))

    # -- reading

    async def _existing(self, name: str) -> ObjectInfo | None:
        try:
            message = await self._stream.get_last_message(self._meta_subject(name))
        except MessageNotFoundError:
            return None
        return ObjectInfo.from_json(json.loads(message.data), message.time)

    async def info(self, name: str, *, deleted: bool = False) -> ObjectInfo:
        """Return an object's metadata; with *deleted* also that of a deleted object.

        Raises:
            ObjectNotFoundError: it is not there.
        """
        object_info = await self._existing(name) if name else None
        if object_info is None or (object_info.deleted and not deleted):
            raise ObjectNotFoundError(f"the store {self.bucket!r} has no object {name!r}", code=404, err_code=10037)
        return object_info

    async def chunks(self, name: str, *, timeout: float | None = None) -> AsyncIterator[bytes]:
        """An object's content, chunk by chunk; the digest is checked at the end.

        Raises:
            ObjectNotFoundError: it is not there.
            LinkError: it is a link to a whole store.
            DigestMismatchError: after the last chunk, if the content differs from the stored one.
            RequestTimeoutError: a chunk did not arrive in time.
        """
        info = await self.info(name)
        if info.link is not None:
            if info.link.name is None:
                raise LinkError(f"{name!r} is a link to the store {info.link.bucket!r}, not to an object")
            store = self if info.link.bucket == self.bucket else await ObjectStore.open(self._js, info.link.bucket)
            async for piece in store.chunks(info.link.name, timeout=timeout):
                yield piece
            return
        digest, size, left = hashlib.sha256(), 0, info.size > 0
        if left:
            limit = timeout or max(self._js.api.timeout, 20.0)
            subscription = await self._js.ordered(self._chunk_subject(info.nuid), stream=self._stream.name)
            async with subscription:
                while left:
                    message = await subscription.next(limit)
                    left = message.metadata.num_pending > 0
                    digest.update(message.data)
                    size += len(message.data)
                    yield message.data
        digest_text = f"SHA-256={base64.urlsafe_b64encode(digest.digest()).decode()}"
        if size != info.size or (info.digest is not None and not hmac.compare_digest(digest_text, info.digest)):
            raise DigestMismatchError(
                f"the object {name!r} is damaged: {size} bytes with {digest_text}, "
                f"stored were {info.size} with {info.digest}"
            )

    async def get(self, name: str, *, timeout: float | None = None) -> bytes:
        """An object's whole content; see `chunks`."""
        return b"".join([piece async for piece in self.chunks(name, timeout=timeout)])

    async def get_file(self, name: str, path: Path) -> int:
        """Write an object's content to a file and return its size. A failure leaves no file."""
        size = 0
        with new_file(path, mode=0o666) as file:
            async for piece in self.chunks(name):
                size += file.write(piece)
        return size

    async def watch(
        self, *, ignore_deletes: bool = False, updates_only: bool = False, history: bool = False
    ) -> ObjectWatcher:
        """Watch every object of the store."""
        policy = DeliverPolicy.ALL if history else DeliverPolicy.LAST_PER_SUBJECT
        subscription = await self._js.ordered(
            f"$O.{self.bucket}.M.>",
            stream=self._stream.name,
            config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW if updates_only else policy),
        )
        return ObjectWatcher(subscription, ignore_deletes=ignore_deletes, updates_only=updates_only)

    async def list(self, *, deleted: bool = False) -> list[ObjectInfo]:
        """Every object, optionally with the marks of deleted ones."""
        objects: list[ObjectInfo] = []
        async with await self.watch(ignore_deletes=not deleted) as watcher:
            while (info := await watcher.next(max(self._js.api.timeout, 20.0))) is not None:
                objects.append(info)
        return objects

    async def status(self) -> StreamInfo:
        """Request the current state of the store's stream."""
        return await self._stream.info()
