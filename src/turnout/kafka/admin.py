"""Questions to a Kafka cluster: topics with their ids, first and next offsets, offsets by time, and settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from turnout.base.clocks import EPOCH, milliseconds_now
from turnout.base.files import FileChanges
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.clients import NOT_FOUND, ErrorWatch, admin_of, code_of, consumer_of, kafka_errors, raise_error
from turnout.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from types import EllipsisType

    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec


_K = TypeVar("_K")
_V = TypeVar("_V")

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and a number of one of its partitions."""

_TOPICS_AT_ONCE: Final = 500
_EXISTS: Final = "TOPIC_ALREADY_EXISTS"
_LEADERLESS: Final = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")
_PAUSE_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 0.1
_NO_LIMIT: Final = (1 << 63) - 1
"""Kafka's value of a limit of time that is none."""

_CLOCKS_MS: Final = 60_000
"""Milliseconds by which a broker's clock may differ from this one."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as its cluster has it.

    Attributes:
        name: name of the topic.
        id: distinguishes it from an earlier topic of the same name (KIP-516); None for older brokers.
        partitions: numbers of its partitions, in order.
        writable: whether this user may write to it; None where brokers do not say.
    """

    name: str
    id: str | None
    partitions: tuple[int, ...]
    writable: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Bounds of a partition.

    Attributes:
        first: its first offset; records below were removed.
        next: the offset behind the last record that may be read: under ``read_committed`` the first of an open
            transaction, if there is one.
    """

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Largest record batches that brokers take, in bytes.

    Attributes:
        topics: of topics with a setting of their own.
        others: those of all other topics; None if unknown.
    """

    topics: Mapping[str, int] = field(default_factory=dict)
    others: int | None = None


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Settings by which a topic refuses records.

    Attributes:
        is_compacted: whether ``cleanup.policy`` has ``compact``: each record needs a key.
        before_ms: ``message.timestamp.before.max.ms``, the greatest age of a record's time; None for no limit.
        after_ms: ``message.timestamp.after.max.ms``, how far in the future a record's time may be; None for no limit.

    >>> TopicRules(is_compacted=True).problem(None, None)
    'is compacted (cleanup.policy), and takes no record without a key'
    """

    is_compacted: bool = False
    before_ms: int | None = None
    after_ms: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str | None]) -> Self:
        """Return the rules in a topic's settings; older brokers have one limit for both directions."""
        policy = (settings.get("cleanup.policy") or "").replace(" ", "").split(",")
        if settings.get("message.timestamp.type") == "LogAppendTime":
            return cls("compact" in policy)
        both = settings.get("message.timestamp.difference.max.ms")
        limits = (settings.get(f"message.timestamp.{side}.max.ms") or both for side in ("before", "after"))
        before, after = (None if text is None or int(text) >= _NO_LIMIT else int(text) for text in limits)
        return cls("compact" in policy, before, after)

    def text(self) -> str:
        """Return the rules as text, empty without any."""
        parts = ["is compacted: each record needs a key"] if self.is_compacted else []
        if self.before_ms is not None:
            parts.append(f"takes records of the last {self.before_ms:,} ms (message.timestamp.before.max.ms)")
        if self.after_ms is not None:
            parts.append(f"takes times up to {self.after_ms:,} ms from now (message.timestamp.after.max.ms)")
        return ", ".join(parts)

    def problem(self, key: bytes | None, milliseconds: int | None) -> str | None:
        """Return the reason that a record is refused in any case; None if it may be stored.

        Args:
            key: key of the record.
            milliseconds: time of the record since 1970; None for now.
        """
        if self.is_compacted and key is None:
            return "is compacted (cleanup.policy), and takes no record without a key"
        if milliseconds is None or (self.before_ms is None and self.after_ms is None):
            return None
        age = milliseconds_now() - milliseconds
        if self.before_ms is not None and age > self.before_ms + _CLOCKS_MS:
            limit = f"message.timestamp.before.max.ms is {self.before_ms:,}"
            return f"takes no record as old as this one, of {time_text(milliseconds)} ({limit})"
        if self.after_ms is not None and -age > self.after_ms + _CLOCKS_MS:
            limit = f"message.timestamp.after.max.ms is {self.after_ms:,}"
            return f"takes no record of a time as far in the future as {time_text(milliseconds)} ({limit})"
        return None


class KafkaAdmin:
    """Connection for questions; each answer is awaited for ``options.timeout`` seconds.

    Args:
        options: options of the client.

    Every method raises `StreamError` for a broker's refusal, with the code 404 for a topic or partition that does
    not exist, and `ConnectionLostError` where no broker answers.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._watch = ErrorWatch()
        self._changes = FileChanges(options.files.values())
        self._connected: AdminClient = admin_of(options, self._watch)

    @property
    def _client(self) -> AdminClient:
        """The client, made anew after a change of the certificates' files."""
        if self._changes.found():
            self._connected = admin_of(self._options, self._watch)
        return self._connected

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        # The client closes its connections when it is collected.
        del self._connected

    def topics(self) -> list[str]:
        """Return the names of all topics that may be seen, without the brokers' own."""
        with self._errors("the topics cannot be listed"):
            found = self._client.list_topics(timeout=self._options.timeout)
        self._watch.heard()
        return sorted(name for name in found.topics if not name.startswith("__"))

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Return each of the topics.

        Raises:
            StreamError: one does not exist.
        """
        found = self.existing(topics)
        for name in topics:
            if name not in found:
                raise StreamError(f"there is no topic {name!r} at {', '.join(self._options.servers)}", code=NOT_FOUND)
        return found

    def existing(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Return those of the topics that exist."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AclOperation

        names, described = list(topics), {}
        for begin in range(0, len(names), _TOPICS_AT_ONCE):
            part = names[begin : begin + _TOPICS_AT_ONCE]
            collection = TopicCollection(part)
            request = partial(
                self._client.describe_topics, collection, include_authorized_operations=True, **self._times
            )
            futures = self._answers(request)
            for name, future in futures.items():
                answer = self._answer(f"the topic {name!r} cannot be described", future, missing=None)
                if answer is not None:
                    partitions = tuple(sorted(partition.id for partition in answer.partitions))
                    allowed = answer.authorized_operations
                    writable = AclOperation.WRITE in allowed if allowed else None
                    described[name] = TopicInfo(name, _id_text(answer.topic_id), partitions, writable)
        return described

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionEnds]:
        """Return the bounds of each partition, as a consumer with the options' isolation level can read it."""
        from confluent_kafka.admin import OffsetSpec

        names = list(partitions)
        first, last = self._listed(names, OffsetSpec.earliest()), self._listed(names, OffsetSpec.latest())
        return {name: PartitionEnds(first[name], last[name]) for name in names}

    def offsets_at(self, partitions: Iterable[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition with at least this timestamp.

        A partition without one has its next offset.

        Args:
            partitions: partitions to query.
            milliseconds: since 1970.
        """
        from confluent_kafka.admin import OffsetSpec

        names = list(partitions)
        found = self._listed(names, OffsetSpec.for_timestamp(milliseconds))
        unresolved_names = [name for name, offset in found.items() if offset < 0]
        return found | self._listed(unresolved_names, OffsetSpec.latest())

    def record_limits(self, topics: Sequence[str]) -> RecordLimits:
        """Return the largest record batches of topics and brokers, without those that may not be described."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        resources += [ConfigResource(ResourceType.BROKER, number) for number in self._brokers()]
        futures = self._answers(lambda: self._client.describe_configs(resources, **self._times))
        own: dict[str, int] = {}
        others: list[int] = []
        for resource, future in futures.items():
            try:
                settings = self._answer(f"the settings of {resource.name!r} cannot be described", future)
            except StreamError:
                continue
            if resource.restype == ResourceType.BROKER:
                others.append(int(settings["message.max.bytes"].value))
            else:
                own[resource.name] = int(settings["max.message.bytes"].value)
        return RecordLimits(own, min(others, default=None))

    def topic_rules(self, topics: Iterable[str]) -> dict[str, TopicRules]:
        """Return the rules of topics, without those that may not be described."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        rules: dict[str, TopicRules] = {}
        if not resources:
            return rules
        futures = self._answers(lambda: self._client.describe_configs(resources, **self._times))
        for resource, future in futures.items():
            try:
                settings = self._answer(f"the settings of {resource.name!r} cannot be described", future)
            except StreamError:
                continue
            rules[resource.name] = TopicRules.of({name: entry.value for name, entry in settings.items()})
        return rules

    def creates_topics(self) -> bool | None:
        """Return True if brokers create a topic for its first record; None if access is denied."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.BROKER, self._brokers()[0])
        try:
            future = self._answers(lambda: self._client.describe_configs([resource], **self._times))[resource]
            settings = self._answer("the settings of the brokers cannot be described", future)
        except StreamError:
            return None
        return str(settings["auto.create.topics.enable"].value).lower() == "true"

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replicas: int = -1, *, dry: bool = False
    ) -> bool:
        """Create a topic and wait until it can be seen; return False if it exists.

        Args:
            name: name of the topic.
            partitions: their number.
            config: its settings.
            replicas: replicas of each partition; -1 for the brokers' default.
            dry: only ask whether it could be created.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, partitions, replicas, config=dict(config))
        future = self._client.create_topics([topic], validate_only=dry, **self._times)[name]
        try:
            future.result(self._options.timeout * 2)
        except KafkaException as failure:
            if failure.args[0].name() == _EXISTS:
                return False
            raise_error(f"the topic {name!r} cannot be created", failure.args[0], self._options, self._watch, failure)
        if dry:
            return True
        # Brokers learn of a topic one after the other.
        give_up = time.monotonic() + self._options.timeout
        while not self.existing([name]) and time.monotonic() < give_up:
            time.sleep(_PAUSE_SECONDS)
        return True

    # -- requests

    def _brokers(self) -> list[str]:
        """Return the numbers of the brokers, as needed to request their settings."""
        cluster = self._answer("the cluster cannot be described", self._client.describe_cluster(**self._times))
        return [str(node.id) for node in cluster.nodes]

    @property
    def _times(self) -> dict[str, float]:
        return {"request_timeout": self._options.timeout}

    def _listed(self, partitions: Sequence[TopicPartition], offset_spec: OffsetSpec) -> dict[TopicPartition, int]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as KafkaPartition

        if not partitions:
            return {}
        committed = self._options.isolation == "read_committed"
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        unresolved = {KafkaPartition(topic, number): offset_spec for topic, number in partitions}
        found: dict[TopicPartition, int] = {}
        give_up = time.monotonic() + self._options.timeout
        while unresolved:
            request = partial(self._client.list_offsets, unresolved, isolation_level=isolation, **self._times)
            moved = {}
            answers = self._answers(request)
            self._wake(answers)
            for partition, future in answers.items():
                topic, number = partition.topic, partition.partition
                what = f"the offsets of partition {number} of the topic {topic!r} cannot be listed"
                if _has_no_leader(future, self._options) and time.monotonic() < give_up:
                    moved[partition] = offset_spec
                else:
                    found[topic, number] = int(self._answer(what, future).offset)
            if unresolved := moved:
                time.sleep(_PAUSE_SECONDS)
        return found

    def _wake(self, answers: Mapping[KafkaPartition, Future[ListOffsetsResultInfo]]) -> None:
        """Have metadata of a topic sent again if its offsets are not here soon.

        librdkafka waits for metadata with the leader of a partition. If it has missed them, it waits for others, or for
        one or three seconds.
        """
        from confluent_kafka import KafkaException

        late = wait(answers.values(), _LATE_SECONDS).not_done
        topic = next((partition.topic for partition, future in answers.items() if future in late), None)
        if topic is not None:
            # A broker that does not answer is seen in the answer that is waited for.
            with suppress(KafkaException):
                self._client.list_topics(topic, timeout=1.0)

    def _answers(self, request: Callable[[], Mapping[_K, Future[_V]]]) -> Mapping[_K, Future[_V]]:
        with self._errors("the cluster cannot be queried"):
            return request()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raise librdkafka's errors as turnout's, with the reason that it has reported by itself."""
        from confluent_kafka import KafkaException

        with kafka_errors(what, self._options, self._watch):
            try:
                yield
            except KafkaException:
                self._connected.poll(0)
                raise

    def _answer(self, what: str, future: Future[_V], *, missing: _V | EllipsisType = ...) -> _V:
        """Wait for an answer; *missing*, if given, is returned for an unknown resource."""
        from confluent_kafka import KafkaException

        try:
            answer = future.result(self._options.timeout * 2)
        except FutureTimeoutError:
            raise ConnectionLostError(f"{what}: {', '.join(self._options.servers)} does not answer") from None
        except KafkaException as failure:
            error = failure.args[0]
            if missing is not ... and code_of(error) == NOT_FOUND:
                return missing
            self._connected.poll(0)
            raise_error(what, error, self._options, self._watch, failure)
        self._watch.heard()
        return answer


def _has_no_leader(future: Future[object], options: KafkaOptions) -> bool:
    """Return whether a partition's leader is being chosen or has moved: asking again helps."""
    from confluent_kafka import KafkaException

    try:
        failure = future.exception(options.timeout * 2)
    except FutureTimeoutError:
        return False
    return isinstance(failure, KafkaException) and failure.args[0].name() in _LEADERLESS


def _id_text(topic_id: Any) -> str | None:
    """Return a topic's id as text; brokers before KIP-516 give one of zeros."""
    if topic_id is None:
        return None
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    return None if halves == (0, 0) else str(topic_id)


def time_text(milliseconds: int) -> str:
    """Return a record's time as text, also one that no calendar has."""
    try:
        return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms since 1970"


_BATCH_RECORDS = 10_000


def count_records(options: KafkaOptions, topics: Iterable[str]) -> dict[str, int]:
    """Read topics to their ends, and return the number of records in each; by default only committed ones.

    Offsets do not give it: transactions and compaction leave some without a record.

    Raises:
        StreamError: a topic does not exist, or may not be read.
        ConnectionLostError: no broker answers for ``options.patience`` seconds.
    """
    from confluent_kafka import TopicPartition

    with KafkaAdmin(options) as admin:
        infos = admin.describe(list(topics))
        partitions = [(name, number) for name, info in infos.items() for number in info.partitions]
        ends = admin.ends(partitions)
    waiting = {topic_partition for topic_partition, end in ends.items() if end.next > end.first}
    counts = dict.fromkeys(infos, 0)
    watch, what = ErrorWatch(), "the topics cannot be counted"
    consumer = consumer_of(options, watch)
    try:
        with kafka_errors(what, options, watch):
            consumer.assign([TopicPartition(topic, number, ends[topic, number].first) for topic, number in waiting])
        deadline = time.monotonic() + options.patience
        while waiting:
            with kafka_errors(what, options, watch):
                messages = consumer.consume(_BATCH_RECORDS, 0.5)
            for message in messages:
                error = message.error()
                if error is None:
                    counts[str(message.topic())] += 1
                elif error.name() == "_PARTITION_EOF":
                    waiting.discard((str(message.topic()), int(message.partition() or 0)))
                elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
                    raise_error(what, error, options, watch)
            if messages:
                deadline = time.monotonic() + options.patience
            elif time.monotonic() > deadline:
                raise ConnectionLostError(f"{what}: nothing received for {options.patience:g} s")
    finally:
        consumer.close()
    return counts
