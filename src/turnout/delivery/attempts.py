"""Failed attempts of deliveries, and disabled endpoints: in a key-value bucket, so that they outlive the dispatcher."""

from __future__ import annotations

from datetime import datetime
from typing import Self

import msgspec

from turnout.nats.jetstream import JetStream, KeyValue, KeyValueConfig
from turnout.nats.jetstream.errors import MessageNotFoundError

_KEPT_SECONDS = 45 * 86_400.0
_MARKER_SECONDS = 60.0


class Attempt(msgspec.Struct, frozen=True):
    """One request that failed.

    Attributes:
        at: its time.
        status: status of the response; None without one.
        error: the failure.
    """

    at: datetime
    status: int | None
    error: str


class AttemptLog:
    """Failed attempts by the delivery's sequence, and endpoints that said 410.

    Args:
        bucket: bucket that has them.
        disabled: destinations that are disabled.
    """

    def __init__(self, bucket: KeyValue, disabled: set[str]) -> None:
        self._bucket = bucket
        self.disabled = disabled

    @classmethod
    async def open(cls, js: JetStream, stream: str) -> Self:
        """Open the bucket of a delivery stream, or make it."""
        config = KeyValueConfig(bucket=f"{stream}-attempts", ttl=_KEPT_SECONDS, limit_marker_ttl=_MARKER_SECONDS)
        log = cls(await js.create_key_value(config), set())
        try:
            entry = await log._bucket.get("disabled")
        except MessageNotFoundError:
            return log
        log.disabled = set(msgspec.json.decode(entry.value, type=list[str]))
        return log

    async def of(self, sequence: int) -> list[Attempt]:
        """Return the failed attempts of a delivery."""
        try:
            entry = await self._bucket.get(f"{sequence}")
        except MessageNotFoundError:
            return []
        return msgspec.json.decode(entry.value, type=list[Attempt])

    async def keep(self, sequence: int, attempts: list[Attempt]) -> None:
        """Store the failed attempts of a delivery."""
        await self._bucket.put(f"{sequence}", msgspec.json.encode(attempts))

    async def forget(self, sequence: int) -> None:
        """Remove the attempts of a delivery that is done."""
        await self._bucket.purge(f"{sequence}", ttl=_MARKER_SECONDS)

    async def disable(self, destination: str) -> None:
        """Keep an endpoint from further requests, also after a restart."""
        self.disabled.add(destination)
        await self._bucket.put("disabled", msgspec.json.encode(sorted(self.disabled)))

    async def enable(self, destination: str) -> bool:
        """Let a disabled endpoint have requests; return False if it was not disabled."""
        if destination not in self.disabled:
            return False
        self.disabled.remove(destination)
        await self._bucket.put("disabled", msgspec.json.encode(sorted(self.disabled)))
        return True
