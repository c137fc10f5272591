"""Failed attempts of deliveries, and disabled endpoints: in a bucket, so that they outlive the dispatcher."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Protocol, Self

import msgspec

from turnout.nats.jetstream import JetStream, KeyValue, KeyValueConfig
from turnout.nats.jetstream.errors import MessageNotFoundError

_log = logging.getLogger(__name__)
_KEPT_SECONDS = 45 * 86_400.0
_MARKER_SECONDS = 60.0
_DISABLED = "disabled"


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request that failed.

    Attributes:
        at: its time.
        status: status of the response; None without one.
        error: the failure.
        next: time of the next attempt; None if there is none, or if it follows as soon as possible.
    """

    at: datetime
    status: int | None
    error: str
    next: datetime | None = None


class Bucket(Protocol):
    """Values by keys, which outlive the dispatcher."""

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None for a key without one."""

    async def put(self, key: str, value: bytes) -> None:
        """Store a value."""

    async def purge(self, key: str) -> None:
        """Remove a key."""


class JetStreamBucket:
    """Bucket of JetStream.

    Args:
        bucket: that has the values.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    @classmethod
    async def open(cls, js: JetStream, name: str) -> Self:
        """Open the bucket of a name, or make it."""
        config = KeyValueConfig(bucket=name, ttl=_KEPT_SECONDS, limit_marker_ttl=_MARKER_SECONDS)
        return cls(await js.create_key_value(config))

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None for a key without one."""
        try:
            return (await self._bucket.get(key)).value
        except MessageNotFoundError:
            return None

    async def put(self, key: str, value: bytes) -> None:
        """Store a value."""
        await self._bucket.put(key, value)

    async def purge(self, key: str) -> None:
        """Remove a key; the mark of it stays for a minute."""
        await self._bucket.purge(key, ttl=_MARKER_SECONDS)


class AttemptLog:
    """Failed attempts by the delivery's sequence, and endpoints that said 410.

    Args:
        bucket: bucket that has them.
        label: stream or topic of the deliveries with its identity: one that is made anew has the same sequences again.
        disabled: destinations that are disabled.
    """

    def __init__(self, bucket: Bucket, label: str, disabled: set[str]) -> None:
        self._bucket = bucket
        self._label = label
        self.disabled = disabled

    @classmethod
    async def open(cls, bucket: Bucket, label: str) -> Self:
        """Return the log that a bucket has of a stream or topic."""
        log = cls(bucket, label, set())
        await log.refresh()
        return log

    async def refresh(self) -> None:
        """Look which endpoints are disabled now: others disable and enable them too."""
        disabled = await self._bucket.get(_DISABLED)
        try:
            self.disabled = set() if disabled is None else set(msgspec.json.decode(disabled, type=list[str]))
        except ValueError as problem:
            # The endpoints that were disabled before stay so.
            _log.warning("the list of disabled endpoints cannot be read, and will be replaced: %s", problem)

    async def of(self, sequence: int) -> list[Attempt]:
        """Return the failed attempts of a delivery."""
        return attempts_of(await self._bucket.get(attempts_key(self._label, sequence)))

    async def keep(self, sequence: int, attempts: list[Attempt]) -> None:
        """Store the failed attempts of a delivery."""
        await self._bucket.put(attempts_key(self._label, sequence), msgspec.json.encode(attempts))

    async def forget(self, sequence: int) -> None:
        """Remove the attempts of a delivery that is done."""
        await self._bucket.purge(attempts_key(self._label, sequence))

    async def disable(self, destination: str) -> None:
        """Keep an endpoint from further requests, also after a restart."""
        # Only what is stored counts as known: a failure here is repeated.
        await self._bucket.put(_DISABLED, msgspec.json.encode(sorted({*self.disabled, destination})))
        self.disabled.add(destination)

    async def enable(self, destination: str) -> bool:
        """Let a disabled endpoint have requests; return False if it was not disabled."""
        if destination not in self.disabled:
            return False
        await self._bucket.put(_DISABLED, msgspec.json.encode(sorted(self.disabled - {destination})))
        self.disabled.discard(destination)
        return True


def attempts_key(label: str, sequence: int) -> str:
    """Return the key of a delivery's attempts; *label* is the stream or topic with its identity."""
    return f"{label}.{sequence}"


def attempts_of(value: bytes | None) -> list[Attempt]:
    """Return the attempts that a bucket has for a delivery; none if others have written something else there."""
    try:
        return [] if value is None else msgspec.json.decode(value, type=list[Attempt])
    except (ValueError, RecursionError) as problem:
        _log.warning("failed attempts of a delivery cannot be read, and are not counted: %s", problem)
        return []
