"""Configuration and state of a consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum

from turnout.nats.jetstream._codec import enumeration, moment, nested, seconds, seconds_list
from turnout.nats.jetstream.stream_config import ClusterInfo
from turnout.untrusted import JsonMapping


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
    priority_policy: str | None = None
    priority_groups: Sequence[str] | None = None
    extra: JsonMapping = field(default_factory=dict)

    @property
    def is_push(self) -> bool:
        """True for a push consumer."""
        return bool(self.deliver_subject)

    def differences(self, actual: ConsumerConfig) -> list[tuple[str, object, object]]:
        """(field, requested, actual) for every field set here that another configuration has otherwise.

        The deliver subject is not compared: it is the one thing that may change (ADR-15). False and absent are the
        same, as the server omits false; so are 0 and absent for limits.
        """
        different: list[tuple[str, object, object]] = []
        for setting in fields(self):
            if setting.name in ("deliver_subject", "metadata", "extra", "name"):
                continue
            requested, found = getattr(self, setting.name), getattr(actual, setting.name)
            if requested is None or requested == found or (not requested and not found):
                continue
            if (
                isinstance(requested, (list, tuple))
                and isinstance(found, (list, tuple))
                and list(requested) == list(found)
            ):
                continue
            different.append((setting.name, requested, found))
        if self.name is not None and self.name != (actual.name or actual.durable_name):
            different.append(("name", self.name, actual.name or actual.durable_name))
        return different


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceInfo:
    """A position: in the consumer's deliveries and in the stream."""

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: datetime | None = moment()


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
    ts: datetime | None = moment()
    extra: JsonMapping = field(default_factory=dict)
