"""Configurations of streams and consumers, and their JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.nats.protocol.headers import Headers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Coding:
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


def coded(encoder: Callable[[Any], object], decoder: Callable[[Any], object], default: object = None) -> Any:
    """A field that is written by one function and read by another."""
    return field(default=default, metadata={"coding": _Coding(encoder, decoder)})


def seconds(default: object = None) -> Any:
    """A duration: seconds here, whole nanoseconds on the wire."""
    return coded(lambda value: round(value * 1_000_000_000), lambda value: value / 1_000_000_000, default)


def seconds_list() -> Any:
    """A list of durations."""
    return coded(
        lambda values: [round(value * 1_000_000_000) for value in values],
        lambda values: tuple(value / 1_000_000_000 for value in values),
    )


_FRACTION = re.compile(r"\.(\d+)")


def _read_moment(text: str) -> datetime | None:
    if text.startswith("0001-01-01"):
        return None
    # datetime knows microseconds; the server writes nanoseconds.
    return datetime.fromisoformat(_FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text))


def _write_moment(value: datetime | timedelta) -> str:
    if isinstance(value, timedelta):
        value = datetime.now(UTC) - value
    if value.tzinfo is None:
        value = value.astimezone()
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def moment() -> Any:
    """A time: an aware datetime here, RFC 3339 on the wire."""
    return coded(_write_moment, _read_moment)


def nested(kind: type[object]) -> Any:
    """Field with another of these dataclasses."""
    return coded(encode, lambda value: decode(kind, value))


def nested_list(kind: type[object], default: object = None) -> Any:
    """A field that is a list of other dataclasses."""
    return coded(
        lambda value: [encode(item) for item in value],
        lambda value: tuple(decode(kind, item) for item in value or ()),
        default,
    )


def enumeration(kind: type[StrEnum], default: object = None) -> Any:
    """Field with a member of an enumeration; an unknown value of a later server is kept as text."""

    def read(text: str) -> str:
        return kind(text) if text in set(kind) else text

    return coded(str, read, default)


def encode(value: Any) -> JsonObject:
    """The JSON object of a dataclass: fields that are None are left out, ``extra`` is merged in."""
    document: JsonObject = {}
    for attribute in fields(value):
        content = getattr(value, attribute.name)
        if attribute.name == "extra":
            document.update(content or {})
        elif content is not None:
            coding = attribute.metadata.get("coding")
            if coding is not None:
                content = coding.encode(content)
            elif isinstance(content, tuple):
                content = list(content)
            document[attribute.name] = content
    return document


def decode(kind: type[T], document: JsonMapping) -> T:
    """Build a dataclass from a JSON object; unknown members are stored in ``extra`` if the class has it."""
    known: JsonObject = {}
    names = set()
    for attribute in fields(kind):  # type: ignore[arg-type]
        names.add(attribute.name)
        if attribute.name == "extra" or document.get(attribute.name) is None:
            continue
        content = document[attribute.name]
        coding = attribute.metadata.get("coding")
        if coding is not None:
            content = coding.decode(content)
        elif isinstance(content, list):
            content = tuple(content)
        known[attribute.name] = content
    if "extra" in names:
        known["extra"] = {name: content for name, content in document.items() if name not in names}
    return kind(**known)


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

    >>> from turnout.nats.jetstream.config import encode
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

    >>> from turnout.nats.jetstream.config import encode
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

    >>> from turnout.nats.jetstream.config import encode
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

    >>> from turnout.nats.jetstream.config import encode
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

    >>> from turnout.nats.jetstream.config import decode
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


class DeliverPolicy(StrEnum):
    """Starting point of a consumer.

    >>> from turnout.nats.jetstream.config import encode
    >>> encode(ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=17))
    {'deliver_policy': 'by_start_sequence', 'opt_start_seq': 17}
    """

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"


class AckPolicy(StrEnum):
    """Messages that have to be acknowledged.

    >>> ConsumerConfig(ack_policy="none").ack_policy == AckPolicy.NONE
    True
    """

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"
    """Answers to flow control acknowledge: for streams that copy this one (ADR-60; servers from 2.14)."""


class PriorityPolicy(StrEnum):
    """Choice of the pull requests of a group that get messages (ADR-42).

    >>> from turnout.nats.jetstream.config import encode
    >>> encode(ConsumerConfig(priority_policy=PriorityPolicy.PINNED_CLIENT, priority_groups=["a"], priority_timeout=60))
    {'priority_policy': 'pinned_client', 'priority_groups': ['a'], 'priority_timeout': 60000000000}
    """

    NONE = "none"
    OVERFLOW = "overflow"
    """Those without a threshold, and those whose threshold the backlog has reached."""
    PINNED_CLIENT = "pinned_client"
    """Those of one client, until it is silent for `ConsumerConfig.priority_timeout`."""
    PRIORITIZED = "prioritized"
    """Those of the lowest number first."""


class ReplayPolicy(StrEnum):
    """At which pace stored messages are sent."""

    INSTANT = "instant"
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """A consumer's configuration, with the server's names; durations are in seconds.

    A field that is None is left to the server, and is not compared with a consumer that exists.
    ``extra`` holds unknown fields of later servers.

    >>> ours = ConsumerConfig(durable_name="worker", ack_wait=30.0)
    >>> ours.differences(ConsumerConfig(durable_name="worker", ack_wait=60.0, max_deliver=5))
    [('ack_wait', 30.0, 60.0)]
    >>> ConsumerConfig(deliver_subject="inbox").is_push, ours.is_push
    (True, False)
    """

    name: str | None = None
    durable_name: str | None = None
    description: str | None = None
    deliver_policy: DeliverPolicy | str | None = enumeration(DeliverPolicy)
    opt_start_seq: int | None = None
    opt_start_time: datetime | None = moment()
    ack_policy: AckPolicy | str | None = enumeration(AckPolicy)
    ack_wait: float | None = seconds()
    max_deliver: int | None = None
    backoff: Sequence[float] | None = seconds_list()
    filter_subject: str | None = None
    filter_subjects: Sequence[str] | None = None
    replay_policy: ReplayPolicy | str | None = enumeration(ReplayPolicy)
    rate_limit_bps: int | None = None
    sample_freq: str | None = None
    max_waiting: int | None = None
    max_ack_pending: int | None = None
    flow_control: bool | None = None
    idle_heartbeat: float | None = seconds()
    headers_only: bool | None = None
    max_batch: int | None = None
    max_expires: float | None = seconds()
    max_bytes: int | None = None
    deliver_subject: str | None = None
    deliver_group: str | None = None
    inactive_threshold: float | None = seconds()
    num_replicas: int | None = None
    mem_storage: bool | None = None
    metadata: Mapping[str, str] | None = None
    pause_until: datetime | None = moment()
    priority_policy: PriorityPolicy | str | None = enumeration(PriorityPolicy)
    priority_groups: Sequence[str] | None = None
    priority_timeout: float | None = seconds()
    """Seconds without a pull request after which a pinned client loses its pin; 120 if not given."""
    extra: JsonMapping = field(default_factory=dict)

    @property
    def is_push(self) -> bool:
        """True for a push consumer."""
        return bool(self.deliver_subject)

    def differences(self, actual: ConsumerConfig) -> list[tuple[str, object, object]]:
        """(field, requested, actual) for every field set here that another configuration has otherwise.

        The deliver subject is not compared: it is the one thing that may change (ADR-15). Values are compared as the
        server keeps them, see `_kept`. A start that is an age, and a default that depends on limits of the server, the
        account or the stream, cannot be compared.
        """
        different: list[tuple[str, object, object]] = []
        for setting in fields(self):
            name = setting.name
            requested, found = getattr(self, name), getattr(actual, name)
            if requested is None or name in _NOT_COMPARED or self._left_to_server(name):
                continue
            if name in _FILTERS:
                if _filters(self) == _filters(actual):
                    continue
            elif _kept(self, setting, actual.is_push) == _kept(actual, setting, actual.is_push):
                continue
            different.append((name, requested, found))
        if self.name is not None and self.name != (actual.name or actual.durable_name):
            different.append(("name", self.name, actual.name or actual.durable_name))
        return different

    def _left_to_server(self, name: str) -> bool:
        """Return True for a field whose value here does not tell what the server keeps."""
        value = getattr(self, name)
        if name == "ack_wait":
            # The first pause of a backoff replaces it.
            return bool(self.backoff)
        if name in ("flow_control", "idle_heartbeat"):
            return self.ack_policy == AckPolicy.FLOW_CONTROL
        if name in _LIMITED_DEFAULTS:
            return value == 0 or (value < 0 and name != "max_ack_pending")
        return isinstance(value, timedelta)


_NOT_COMPARED = frozenset({"deliver_subject", "metadata", "extra", "name"})
_FILTERS = ("filter_subject", "filter_subjects")

# Their default depends on limits of the server, the account or the stream.
_LIMITED_DEFAULTS = frozenset({"max_ack_pending", "max_batch", "inactive_threshold", "num_replicas"})

_DEFAULT_ACK_WAIT = 30_000_000_000
_DEFAULT_MAX_WAITING = 512
_DEFAULT_PINNED = 120_000_000_000


def _filters(config: ConsumerConfig) -> frozenset[str]:
    filters = config.filter_subjects or (config.filter_subject,)
    return frozenset(subject for subject in filters if subject and subject != ">")


def _kept(config: ConsumerConfig, setting: Field[object], push: bool) -> object:
    """Return a field's value as nats-server keeps it: whole nanoseconds, defaults in place of 0, None for nothing.

    The rules are those of its ``setConsumerConfigDefaults``.
    """
    name, value = setting.name, getattr(config, setting.name)
    coding = setting.metadata.get("coding")
    if coding is not None and value is not None:
        value = coding.encode(value)
    if name == "max_deliver":
        return -1 if value is None or value == 0 or value < -1 else value
    if name == "max_waiting" and not push:
        return value if value is not None and value > 0 else _DEFAULT_MAX_WAITING
    if name == "ack_wait" and config.ack_policy != AckPolicy.NONE:
        return value or _DEFAULT_ACK_WAIT
    if name == "priority_timeout" and config.priority_policy == PriorityPolicy.PINNED_CLIENT:
        return value or _DEFAULT_PINNED
    if name == "priority_policy":
        return None if value == PriorityPolicy.NONE else value
    if name == "max_ack_pending":
        return value if value is None else max(value, -1)
    if name == "sample_freq":
        value = (value or "").removesuffix("%")
    if isinstance(value, (list, tuple)):
        value = sorted(value) if name == "priority_groups" else list(value)
    if isinstance(value, (int, float)) and value < 0:
        return None
    return value or None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceInfo:
    """A position: in the consumer's deliveries and in the stream."""

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: datetime | None = moment()


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityGroupState:
    """State of a priority group: the client that has the pin, and since when; empty where none has it."""

    group: str = ""
    pinned_client_id: str = ""
    pinned_ts: datetime | None = moment()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """State of a consumer as the server reports it.

    >>> from turnout.nats.jetstream.config import decode
    >>> info = decode(ConsumerInfo, {"stream_name": "ORDERS", "name": "worker", "num_pending": 5, "of_2030": True})
    >>> info.num_pending, info.extra
    (5, {'of_2030': True})
    """

    stream_name: str
    name: str
    created: datetime | None = moment()
    config: ConsumerConfig = nested(ConsumerConfig)
    delivered: SequenceInfo = nested(SequenceInfo)
    ack_floor: SequenceInfo = nested(SequenceInfo)
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    push_bound: bool = False
    paused: bool = False
    pause_remaining: float = seconds(0.0)
    cluster: ClusterInfo | None = nested(ClusterInfo)
    priority_groups: Sequence[PriorityGroupState] = nested_list(PriorityGroupState, ())
    ts: datetime | None = moment()
    extra: JsonMapping = field(default_factory=dict)
