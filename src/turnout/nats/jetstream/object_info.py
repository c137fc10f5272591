"""Configuration of an object store, and the metadata of an object."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.nats.jetstream._codec import coded, decode, encode, moment, nested
from turnout.nats.jetstream.api import check_bucket
from turnout.nats.jetstream.errors import MessageNotFoundError, StreamError
from turnout.nats.jetstream.stream_config import DiscardPolicy, Placement, StorageType, StoreCompression, StreamConfig

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
