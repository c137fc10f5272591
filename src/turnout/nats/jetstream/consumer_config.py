"""Configuration and state of a consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum

from turnout.base.untrusted import JsonMapping
from turnout.nats.jetstream._codec import enumeration, moment, nested, nested_list, seconds, seconds_list
from turnout.nats.jetstream.stream_config import ClusterInfo


class DeliverPolicy(StrEnum):
    """Starting point of a consumer.

    >>> from turnout.nats.jetstream._codec import encode
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

    >>> from turnout.nats.jetstream._codec import encode
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

    >>> from turnout.nats.jetstream._codec import decode
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
