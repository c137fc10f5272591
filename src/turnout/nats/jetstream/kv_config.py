"""Configuration of a key-value bucket, and of the stream that stores it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream.stream_config import (
    DiscardPolicy,
    Placement,
    RePublish,
    StorageType,
    StoreCompression,
    StreamConfig,
    StreamSource,
)

_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_HISTORY = 64
_WINDOW = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueConfig:
    """A bucket's configuration; durations are in seconds, a limit of None means no limit.

    Attributes:
        bucket: its name.
        history: how many entries of a key are kept, 1 to 64.
        ttl: seconds after which entries go.
        limit_marker_ttl: seconds that a marker stays where an entry went by its own TTL; allows TTLs per key.
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
            duplicate_window=min(self.ttl, _WINDOW) if self.ttl else _WINDOW,
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
            ("bucket", bool(_BUCKET.fullmatch(self.bucket)), "must be of letters, digits, - and _"),
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
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError([Mistake("bucket", f"{bucket!r} is not a bucket's name: letters, digits, - and _")])
    return f"KV_{bucket}"
