"""Key-value buckets: a stream seen as a map, under any API prefix (ADR-19, "KV Example")."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream.config import (
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    Placement,
    RawMessage,
    RePublish,
    StorageType,
    StoreCompression,
    StreamConfig,
    StreamInfo,
    StreamSource,
)
from turnout.nats.jetstream.connection import BUCKET, check_bucket
from turnout.nats.jetstream.errors import MessageNotFoundError, WrongLastSequenceError
from turnout.nats.jetstream.message import Message
from turnout.nats.jetstream.ordered import OrderedSubscription, Watching
from turnout.nats.jetstream.publish import Expect, Ttl
from turnout.nats.jetstream.stream import Stream

if TYPE_CHECKING:
    from turnout.nats.jetstream.context import JetStream


class Operation(StrEnum):
    """Operation that an entry records for its key.

    >>> Operation("DEL"), Operation.PUT == "PUT"
    (<Operation.DELETE: 'DEL'>, True)
    """

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"


@dataclass(frozen=True, slots=True)
class Entry:
    """Revision of a key in a bucket.

    Attributes:
        bucket: the bucket's name.
        key: the key; never with an API prefix.
        value: the value, empty for a marker.
        revision: the stream sequence.
        created: when it was stored.
        delta: number of later entries for the watcher when it was sent.
        operation: put, delete or purge.
    """

    bucket: str
    key: str
    value: bytes
    revision: int
    created: datetime | None
    delta: int
    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Selection of entries that a watcher receives.

    Attributes:
        history: every entry that is kept, not only the last of each key.
        updates_only: only later updates.
        resume_from: everything from this revision on.
        ignore_deletes: no markers.
        keys_only: no values.
        flow_control: off where ``$JS.FC.>`` is not imported; it is noticed by itself, but slowly.
        heartbeat: seconds between signs of life.
        fail_on_data_loss: whether a bucket that was deleted and made again, or restored to an older state, ends the
            watch with a `StreamReplacedError`; otherwise that is reported, and the new bucket is watched from its
            first entry.

    >>> WatchOptions(updates_only=True, keys_only=True).to_consumer().deliver_policy.value
    'new'
    >>> WatchOptions(history=True).to_consumer().deliver_policy.value
    'all'
    """

    history: bool = False
    updates_only: bool = False
    resume_from: int | None = None
    ignore_deletes: bool = False
    keys_only: bool = False
    flow_control: bool = True
    heartbeat: float = 5.0
    fail_on_data_loss: bool = True

    def to_consumer(self) -> ConsumerConfig:
        """Return the consumer configuration for these options.

        Raises:
            ConfigError: options that exclude each other.
        """
        chosen = [self.history, self.updates_only, self.resume_from is not None]
        if sum(chosen) > 1:
            raise ConfigError([Mistake("watch", "history, updates_only and resume_from exclude each other")])
        policy = DeliverPolicy.LAST_PER_SUBJECT
        if self.history:
            policy = DeliverPolicy.ALL
        elif self.updates_only:
            policy = DeliverPolicy.NEW
        elif self.resume_from is not None:
            policy = DeliverPolicy.BY_START_SEQUENCE
        return ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=self.resume_from,
            headers_only=True if self.keys_only else None,
            idle_heartbeat=self.heartbeat,
        )


def operation_of(header: str, marker: str) -> Operation:
    """Return an entry's operation: its own header, or the reason of a marker that the server stored."""
    if header in (Operation.DELETE.value, Operation.PURGE.value):
        return Operation(header)
    if marker in ("MaxAge", "Purge"):
        return Operation.PURGE
    return Operation.DELETE if marker == "Remove" else Operation.PUT


class Watcher(Watching[Entry]):
    """Entries as they change."""

    def __init__(self, bucket: str, prefix: str, subscription: OrderedSubscription, options: WatchOptions) -> None:
        super().__init__(subscription)
        self._bucket = bucket
        self._prefix = prefix
        self._options = options
        self._initial = subscription.initial_pending
        self._received = 0
        self._initial_reported = options.updates_only
        self._reached_end = False

    def _entry(self, message: Message) -> Entry:
        metadata = message.metadata
        return Entry(
            bucket=self._bucket,
            key=message.subject.removeprefix(self._prefix),
            value=message.data,
            revision=metadata.stream_seq,
            created=metadata.timestamp,
            delta=metadata.num_pending,
            operation=operation_of(message.header("KV-Operation"), message.header("Nats-Marker-Reason")),
        )

    async def next(self, timeout: float | None = 5.0) -> Entry | None:
        """See `Watching.next`."""
        if self._is_initial_over():
            self._initial_reported = True
            return None
        while True:
            entry = self._entry(await self._subscription.next(timeout))
            self._received += 1
            self._reached_end = self._reached_end or entry.delta == 0
            if entry.operation is Operation.PUT or not self._options.ignore_deletes:
                return entry
            if self._is_initial_over():
                self._initial_reported = True
                return None

    def _is_initial_over(self) -> bool:
        """True if the last initial entry was read and its end was not reported yet.

        A watcher that began again may see entries that its first consumer would have passed over: then only an entry
        with nothing after it marks the end.
        """
        if self._initial_reported:
            return False
        counted = self._received >= self._initial and not self._subscription.resets
        return counted or self._reached_end


_MAX_HISTORY = 64
_DUPLICATE_WINDOW_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueConfig:
    """A bucket's configuration; durations are in seconds, a limit of None means no limit.

    Attributes:
        bucket: its name.
        history: how many entries of a key are kept, 1 to 64.
        ttl: seconds after which entries go.
        limit_marker_ttl: lifetime in seconds of the marker of an entry that expired by its own TTL; allows TTLs per
            key.
        mirror: another bucket's stream that this one mirrors; its name may be the bucket's.
        sources: the same for several.

    >>> stream = KeyValueConfig(bucket="stock", history=5, ttl=3600.0).to_stream()
    >>> stream.name, stream.subjects, stream.max_msgs_per_subject, stream.max_age
    ('KV_stock', ['$KV.stock.>'], 5, 3600.0)
    """

    bucket: str
    description: str | None = None
    history: int = 1
    ttl: float | None = None
    max_value_size: int | None = None
    max_bytes: int | None = None
    storage: StorageType | str | None = None
    replicas: int = 1
    placement: Placement | None = None
    republish: RePublish | None = None
    mirror: StreamSource | None = None
    sources: Sequence[StreamSource] | None = None
    compression: bool = False
    limit_marker_ttl: float | None = None

    def to_stream(self) -> StreamConfig:
        """Return the configuration of the stream that stores the bucket.

        Raises:
            ConfigError: with all mistakes.
        """
        self._check()
        subjects: list[str] | None = [f"$KV.{self.bucket}.>"]
        return StreamConfig(
            name=f"KV_{self.bucket}",
            description=self.description,
            subjects=None if self.mirror else subjects,
            max_msgs_per_subject=self.history,
            max_msgs=-1,
            max_consumers=-1,
            max_bytes=self.max_bytes or -1,
            max_age=self.ttl,
            max_msg_size=self.max_value_size or -1,
            storage=self.storage,
            num_replicas=self.replicas,
            placement=self.placement,
            republish=self.republish,
            discard=DiscardPolicy.NEW,
            duplicate_window=min(self.ttl, _DUPLICATE_WINDOW_SECONDS) if self.ttl else _DUPLICATE_WINDOW_SECONDS,
            allow_rollup_hdrs=True,
            deny_delete=True,
            allow_direct=True,
            mirror_direct=True if self.mirror else None,
            mirror=_bucket_source(self.mirror) if self.mirror else None,
            sources=[_bucket_source(source) for source in self.sources] if self.sources else None,
            compression=StoreCompression.S2 if self.compression else None,
            allow_msg_ttl=True if self.limit_marker_ttl else None,
            subject_delete_marker_ttl=self.limit_marker_ttl,
        )

    def _check(self) -> None:
        rules = (
            ("bucket", bool(BUCKET.fullmatch(self.bucket)), "must be of letters, digits, - and _"),
            ("history", 1 <= self.history <= _MAX_HISTORY, f"must be from 1 to {_MAX_HISTORY}"),
            ("mirror", not (self.mirror and self.sources), "cannot be given together with sources"),
            ("limit_marker_ttl", (self.limit_marker_ttl or 1) >= 1, "must be at least 1 second"),
        )
        mistakes = [Mistake(name, f"{getattr(self, name)!r} {why}") for name, good, why in rules if not good]
        if mistakes:
            raise ConfigError(mistakes, what="bad bucket")


def _bucket_source(source: StreamSource) -> StreamSource:
    return source if source.name.startswith("KV_") else replace(source, name=f"KV_{source.name}")


def bucket_stream(bucket: str) -> str:
    """The name of a bucket's stream.

    Raises:
        ConfigError: *bucket* cannot be a bucket's name.
    """
    return f"KV_{check_bucket(bucket)}"


_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_PATTERN = re.compile(r"([-/_=a-zA-Z0-9]+|\*)(\.([-/_=a-zA-Z0-9]+|\*))*(\.>)?|>")


class KeyNotFoundError(MessageNotFoundError):
    """Raised when a key is not there, or was deleted."""


class KeyExistsError(WrongLastSequenceError):
    """Raised when a key that should be created is there."""


@dataclass(frozen=True, slots=True)
class _BucketSubjects:
    """Subjects of a bucket's entries; a mirror uses the subjects of its origin (nats.go, ``mapStreamToKVS``).

    Attributes:
        read: prefix of stored subjects.
        write: prefix of the subject of a write, before the context's prefix.
        prefixed: whether that prefix is put in front.
    """

    read: str
    write: str
    prefixed: bool = True

    @classmethod
    def of(cls, info: StreamInfo, bucket: str) -> _BucketSubjects:
        mirror = info.config.mirror
        if mirror is None:
            own = f"$KV.{bucket}."
            return cls(own, own)
        origin = f"$KV.{mirror.name.removeprefix('KV_')}."
        if mirror.external is not None and mirror.external.api:
            return cls(origin, f"{mirror.external.api}.{origin}", prefixed=False)
        return cls(origin, origin)


class KeyValue:
    """A bucket; made by `JetStream.key_value` and `JetStream.create_key_value`."""

    def __init__(self, js: JetStream, bucket: str, stream: Stream) -> None:
        self._js = js
        self.bucket = bucket
        self._stream = stream
        self._subjects = _BucketSubjects.of(stream.cached_info, bucket)

    # -- writing

    def _target(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise ConfigError([Mistake("key", f"{key!r} is not a key: letters, digits and -/_=. , no dot at its ends")])
        subject = f"{self._subjects.write}{key}"
        return self._js.prefix.view(subject) if self._subjects.prefixed else subject

    async def put(self, key: str, value: bytes | str, *, ttl: Ttl | None = None) -> int:
        """Set a key and return its revision."""
        ack = await self._js.publish(self._target(key), _bytes(value), ttl=ttl)
        return ack.seq

    async def create(self, key: str, value: bytes | str, *, ttl: Ttl | None = None) -> int:
        """Set a key that does not exist and return its revision.

        Raises:
            KeyExistsError: it is there.
        """
        try:
            return await self.update(key, value, 0, ttl=ttl)
        except WrongLastSequenceError as failure:
            # A deleted key leaves a marker, over which it can be created.
            last = await self._last(key)
            if last is None or last.operation is Operation.PUT:
                raise _exists(self.bucket, key, failure) from failure
            try:
                return await self.update(key, value, last.revision, ttl=ttl)
            except WrongLastSequenceError as again:
                raise _exists(self.bucket, key, again) from again

    async def update(self, key: str, value: bytes | str, revision: int, *, ttl: Ttl | None = None) -> int:
        """Set a key whose last revision is *revision*, and return its new revision.

        Raises:
            WrongLastSequenceError: it was changed concurrently.
        """
        expect = Expect(last_subject_seq=revision)
        ack = await self._js.publish(self._target(key), _bytes(value), expect=expect, ttl=ttl)
        return ack.seq

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key, with its history kept.

        Raises:
            WrongLastSequenceError: its last revision is not *revision*.
        """
        expect = None if revision is None else Expect(last_subject_seq=revision)
        await self._js.publish(self._target(key), headers={"KV-Operation": "DEL"}, expect=expect)

    async def purge(self, key: str, *, revision: int | None = None, ttl: float | None = None) -> None:
        """Delete a key with its history; the marker expires after *ttl* seconds if the bucket allows TTLs.

        Raises:
            WrongLastSequenceError: its last revision is not *revision*.
        """
        expect = None if revision is None else Expect(last_subject_seq=revision)
        headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
        await self._js.publish(self._target(key), headers=headers, expect=expect, ttl=ttl)

    # -- reading

    async def get(self, key: str, *, revision: int | None = None) -> Entry:
        """The last entry of a key, or the one with a revision.

        Raises:
            KeyNotFoundError: there is none, it was deleted, or the revision is another key's.
        """
        entry = await (self._last(key) if revision is None else self._at(key, revision))
        if entry is None or entry.operation is not Operation.PUT:
            raise KeyNotFoundError(f"the bucket {self.bucket!r} has no key {key!r}", code=404, err_code=10037)
        return entry

    async def _last(self, key: str) -> Entry | None:
        self._target(key)
        try:
            return self._read(key, await self._stream.get_last_message(f"{self._subjects.read}{key}"))
        except MessageNotFoundError:
            return None

    async def _at(self, key: str, revision: int) -> Entry | None:
        self._target(key)
        try:
            message = await self._stream.get_message(revision)
        except MessageNotFoundError:
            return None
        return self._read(key, message) if message.subject == f"{self._subjects.read}{key}" else None

    def _read(self, key: str, message: RawMessage) -> Entry:
        operation = operation_of(message.header("KV-Operation"), message.header("Nats-Marker-Reason"))
        return Entry(self.bucket, key, message.data, message.sequence, message.time, 0, operation)

    async def watch(self, keys: str | Sequence[str] = ">", options: WatchOptions | None = None) -> Watcher:
        """Watch keys: one, a pattern with ``*`` and ``>``, or several of them.

        Raises:
            ConfigError: something that is no pattern of keys.
            StreamReplacedError: *resume_from* is behind the end of the bucket.
        """
        chosen = options or WatchOptions()
        patterns = (keys,) if isinstance(keys, str) else tuple(keys)
        bad = [
            Mistake("keys", f"{pattern!r} is not a key, nor a pattern of keys")
            for pattern in patterns
            if not _PATTERN.fullmatch(pattern)
        ]
        if bad or not patterns:
            raise ConfigError(bad or [Mistake("keys", "no key is given")], what="bad watch")
        subjects = [f"{self._subjects.read}{pattern}" for pattern in patterns]
        subscription = await self._js.ordered(
            subjects[0] if len(subjects) == 1 else "",
            stream=self._stream.name,
            filters=subjects if len(subjects) > 1 else (),
            config=chosen.to_consumer(),
            flow_control=chosen.flow_control,
            fail_on_data_loss=chosen.fail_on_data_loss,
        )
        return Watcher(self.bucket, self._subjects.read, subscription, chosen)

    async def _entries(self, keys: str | Sequence[str], options: WatchOptions) -> AsyncIterator[Entry]:
        """Yield the existing entries."""
        async with await self.watch(keys, options) as watcher:
            while (entry := await watcher.next(max(self._js.api.timeout, 20 * options.heartbeat))) is not None:
                yield entry

    async def keys(self, *patterns: str) -> list[str]:
        """Return the existing keys, all or by pattern."""
        options = WatchOptions(ignore_deletes=True, keys_only=True)
        async with aclosing(self._entries(patterns or ">", options)) as entries:  # type: ignore[type-var]
            return [entry.key async for entry in entries]

    async def history(self, key: str) -> list[Entry]:
        """Every entry that is kept for a key, markers too, oldest first.

        Raises:
            KeyNotFoundError: there is none.
        """
        async with aclosing(self._entries(key, WatchOptions(history=True))) as entries:  # type: ignore[type-var]
            kept = [entry async for entry in entries]
        if not kept:
            raise KeyNotFoundError(f"the bucket {self.bucket!r} has no key {key!r}", code=404, err_code=10037)
        return kept

    async def purge_deletes(self, *, older_than: float = 30 * 60.0) -> int:
        """Remove deleted keys; markers younger than *older_than* seconds stay, without the history before them.

        Returns:
            How many keys were looked after.
        """
        border = datetime.now(UTC) - timedelta(seconds=older_than)
        count = 0
        async with aclosing(self._entries(">", WatchOptions())) as entries:  # type: ignore[type-var]
            markers = [entry async for entry in entries if entry.operation is not Operation.PUT]
        for entry in markers:
            young = older_than > 0 and entry.created is not None and entry.created > border
            await self._stream.purge(f"{self._subjects.read}{entry.key}", keep=1 if young else None)
            count += 1
        return count

    async def status(self) -> StreamInfo:
        """Request the current state of the bucket's stream."""
        return await self._stream.info()


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _exists(bucket: str, key: str, failure: WrongLastSequenceError) -> KeyExistsError:
    return KeyExistsError(f"the bucket {bucket!r} has the key {key!r}", code=failure.code, err_code=failure.err_code)
