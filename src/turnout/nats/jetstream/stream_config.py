"""Configuration and state of a stream, and limits and usage of the account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from turnout.base.untrusted import JsonMapping
from turnout.nats.jetstream._codec import enumeration, moment, nested, nested_list, seconds
from turnout.nats.protocol.headers import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """A server that follows.

    Attributes:
        name: the server's name.
        current: it has everything that the leader has.
        offline: the leader does not reach it.
        active: seconds since the leader heard from it.
        lag: how many operations it is behind.
    """

    name: str = ""
    current: bool = False
    offline: bool = False
    active: float = seconds(0.0)
    lag: int = 0
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The group of servers behind a stream or a consumer.

    Attributes:
        name: the cluster's name; empty for a server that is in none.
        raft_group: the group's name; empty for a server that is in no cluster.
        leader: the server that leads; empty while there is none.
        leader_since: when it was elected.
        replicas: the servers that follow.
    """

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: datetime | None = moment()
    replicas: Sequence[PeerInfo] = nested_list(PeerInfo, ())
    extra: JsonMapping = field(default_factory=dict)


class RetentionPolicy(StrEnum):
    """Rule by which messages leave a stream.

    >>> from turnout.nats.jetstream._codec import encode
    >>> encode(StreamConfig(name="JOBS", subjects=["jobs.>"], retention=RetentionPolicy.WORK_QUEUE))
    {'name': 'JOBS', 'subjects': ['jobs.>'], 'retention': 'workqueue'}
    """

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class StorageType(StrEnum):
    """Storage of messages."""

    FILE = "file"
    MEMORY = "memory"


class DiscardPolicy(StrEnum):
    """Messages discarded when a limit is reached.

    >>> from turnout.nats.jetstream._codec import encode
    >>> encode(StreamConfig(name="JOBS", max_msgs=1000, discard=DiscardPolicy.NEW))
    {'name': 'JOBS', 'max_msgs': 1000, 'discard': 'new'}
    """

    OLD = "old"
    NEW = "new"


class StoreCompression(StrEnum):
    """Compression of stored blocks."""

    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    """Writing of confirmed messages by a server without replicas: at once, or a little later (ADR-56)."""

    DEFAULT = "default"
    ASYNC = "async"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Servers that may hold a stream."""

    cluster: str | None = None
    tags: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """JetStream of a remote source: its API prefix (``$JS.HUB.API``) and its delivery prefix."""

    api: str
    deliver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectTransformConfig:
    """A mapping of subjects that a stream applies (ADR-30)."""

    src: str
    dest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConsumerSource:
    """A durable consumer of the other stream that a source reads from (ADR-60)."""

    name: str | None = None
    deliver_subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConsumerLimits:
    """Defaults and limits of a stream's consumers; the threshold is in seconds."""

    inactive_threshold: float | None = seconds()
    max_ack_pending: int | None = None
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """A stream that another one mirrors or copies from.

    >>> from turnout.nats.jetstream._codec import encode
    >>> encode(StreamSource(name="ORDERS", opt_start_seq=17, external=External(api="$JS.hub.API")))
    {'name': 'ORDERS', 'opt_start_seq': 17, 'external': {'api': '$JS.hub.API'}}
    """

    name: str
    opt_start_seq: int | None = None
    opt_start_time: datetime | None = moment()
    filter_subject: str | None = None
    subject_transforms: Sequence[SubjectTransformConfig] | None = nested_list(SubjectTransformConfig)
    external: External | None = nested(External)
    consumer: StreamConsumerSource | None = nested(StreamConsumerSource)
    domain: str | None = field(default=None, metadata={"local": True})
    """A domain in place of *external*: ``HUB`` means ``External(api="$JS.HUB.API")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RePublish:
    """Subjects on which a stream republishes stored messages."""

    src: str | None = None
    dest: str
    headers_only: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """A stream's configuration, with the server's names; durations are in seconds.

    A field that is None is left to the server. ``extra`` holds unknown fields of later servers,
    so that reading a configuration, changing a field and writing it back loses nothing.

    >>> from turnout.nats.jetstream._codec import encode
    >>> encode(StreamConfig(name="ORDERS", subjects=["orders.>"], max_age=3600.0, storage=StorageType.MEMORY))
    {'name': 'ORDERS', 'subjects': ['orders.>'], 'max_age': 3600000000000, 'storage': 'memory'}
    """

    name: str
    description: str | None = None
    subjects: Sequence[str] | None = None
    retention: RetentionPolicy | str | None = enumeration(RetentionPolicy)
    max_consumers: int | None = None
    max_msgs: int | None = None
    max_bytes: int | None = None
    max_age: float | None = seconds()
    max_msgs_per_subject: int | None = None
    max_msg_size: int | None = None
    discard: DiscardPolicy | str | None = enumeration(DiscardPolicy)
    discard_new_per_subject: bool | None = None
    storage: StorageType | str | None = enumeration(StorageType)
    num_replicas: int | None = None
    no_ack: bool | None = None
    duplicate_window: float | None = seconds()
    placement: Placement | None = nested(Placement)
    mirror: StreamSource | None = nested(StreamSource)
    sources: Sequence[StreamSource] | None = nested_list(StreamSource)
    sealed: bool | None = None
    deny_delete: bool | None = None
    deny_purge: bool | None = None
    allow_rollup_hdrs: bool | None = None
    compression: StoreCompression | str | None = enumeration(StoreCompression)
    first_seq: int | None = None
    subject_transform: SubjectTransformConfig | None = nested(SubjectTransformConfig)
    republish: RePublish | None = nested(RePublish)
    allow_direct: bool | None = None
    mirror_direct: bool | None = None
    consumer_limits: StreamConsumerLimits | None = nested(StreamConsumerLimits)
    metadata: Mapping[str, str] | None = None
    allow_msg_ttl: bool | None = None
    subject_delete_marker_ttl: float | None = seconds()
    allow_msg_counter: bool | None = None
    """Only counters are stored (ADR-49)."""
    allow_atomic: bool | None = None
    """Atomic batches are taken (ADR-50)."""
    allow_batched: bool | None = None
    """Fast batches are taken (ADR-50)."""
    allow_msg_schedules: bool | None = None
    """Schedules are taken, and rollups with them (ADR-51)."""
    persist_mode: PersistMode | str | None = enumeration(PersistMode)
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """Messages, bytes and sequences that a stream holds now."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: datetime | None = moment()
    last_seq: int = 0
    last_ts: datetime | None = moment()
    consumer_count: int = 0
    num_subjects: int = 0
    num_deleted: int = 0
    deleted: Sequence[int] | None = None
    subjects: Mapping[str, int] | None = None
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSourceInfo:
    """Progress of a mirror or a source."""

    name: str
    lag: int = 0
    active: float = seconds(0.0)
    filter_subject: str = ""
    subject_transforms: Sequence[SubjectTransformConfig] | None = nested_list(SubjectTransformConfig)
    external: External | None = nested(External)
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """State of a stream as the server reports it.

    >>> from turnout.nats.jetstream._codec import decode
    >>> answer = {"config": {"name": "ORDERS", "max_age": 60_000_000_000}, "state": {"messages": 3}}
    >>> info = decode(StreamInfo, answer)
    >>> info.config.name, info.config.max_age, info.state.messages
    ('ORDERS', 60.0, 3)
    """

    config: StreamConfig = nested(StreamConfig)
    state: StreamState = nested(StreamState)
    created: datetime | None = moment()
    mirror: StreamSourceInfo | None = nested(StreamSourceInfo)
    sources: Sequence[StreamSourceInfo] | None = nested_list(StreamSourceInfo)
    cluster: ClusterInfo | None = nested(ClusterInfo)
    domain: str = ""
    ts: datetime | None = moment()
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """Limits of an account; -1 is no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountInfo:
    """JetStream usage of an account."""

    memory: int = 0
    storage: int = 0
    streams: int = 0
    consumers: int = 0
    domain: str = ""
    api: Mapping[str, int] | None = None
    limits: AccountLimits = nested(AccountLimits)
    extra: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message as the stream stores it, read without a consumer."""

    subject: str
    sequence: int
    data: bytes
    headers: Headers
    time: datetime | None

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""
        return self.headers.get(name, [""])[0]
