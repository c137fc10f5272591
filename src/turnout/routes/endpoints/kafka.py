"""Kafka topics as a source and as a sink."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.kafka.options import KafkaOptions, security_mistakes, translated
from turnout.routes.endpoints.base import Endpoint, Sink, Source, TimedSink
from turnout.routes.values import Brokers, JavaPattern, KafkaStart, KafkaTopics, listed
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.java.regex_characters import JavaRegexError

_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_OWN_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


_MAX_FEED_TOPIC = 180
"""Characters of a topic with feeds: its name is in the names of files."""

_LARGEST_PARTITION: Final = (1 << 31) - 1

_CLIENT: Final = "kafka."
"""Beginning of the options that are properties of Kafka's client."""

_CONNECTORS: Final = {
    "minPartitions": "partitions",
    "startingTimestamp": "start, which takes an ISO time",
    "startingOffsetsByTimestamp": "start, which takes an ISO time",
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
    "failOnDataLoss": "failOnDataLoss",
    "assign": "topics",
}
"""Options of Spark's connector → the corresponding option."""


class _Kafka(Endpoint):
    """Connection to a Kafka cluster.

    Attributes:
        security: properties of Kafka's clients for TLS and logins, by their names in Java or in librdkafka.
        options_: more properties of Kafka's client, each with kafka. before its name.
    """

    format: Literal["kafka"]
    servers: Brokers = Field(description="host:port, or a list of them")
    security: dict[str, str | int | bool] | None = Field(
        None, description="TLS and logins by the names of Kafka's properties: security.protocol, sasl.jaas.config, …"
    )
    options_: dict[str, str | int | bool] = Field(default_factory=dict, alias="options")

    @model_validator(mode="after")
    def _properties_can_be_used(self) -> Self:
        foreign = [name for name in self.options_ if not name.startswith(_CLIENT)]
        problems = [
            f"options.{name}: is of Spark's connector; "
            + (f"there is {_CONNECTORS[name]}" if name in _CONNECTORS else "routes are read and written without it")
            for name in foreign
        ]
        mistakes = [*translated(self.client_properties, "options").mistakes, *security_mistakes(self.security or {})]
        problems += map(str, mistakes)
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def client_properties(self) -> dict[str, str | int | bool]:
        """Properties of Kafka's client among the options."""
        return {name.removeprefix(_CLIENT): value for name, value in self.options_.items() if name.startswith(_CLIENT)}

    @property
    def client(self) -> KafkaOptions:
        """Options of a client; files with certificates are read anew each time.

        Raises:
            ConfigError: lists every mistake, such as a file that cannot be read.
        """
        return KafkaOptions.of(listed(self.servers), self.security, self.client_properties)


class KafkaSource(_Kafka, Source):
    """Kafka topics, read by the stage itself.

    Attributes:
        end: end of a bounded run: latest, or offsets by topic and partition.
        max_records_per_trigger: the most offsets in a micro-batch.
        fail_on_data_loss: fail if unread records were deleted (the default), or warn and continue.
    """

    topics: KafkaTopics = Field(None, description="topics to read")
    topic_pattern: JavaPattern = Field(None, description="or a Java regular expression of topics")
    start: KafkaStart = Field(
        "earliest", description="earliest, latest, an ISO time (UTC without a zone), or offsets by topic and partition"
    )
    end: str | JsonObject | None = None
    max_records_per_trigger: int | None = Field(None, gt=0)
    partitions: int | None = Field(None, gt=0, description="tasks that read at the same time, about")
    fail_on_data_loss: bool | None = None
    poll_wait: int | None = Field(None, gt=0, description="seconds to wait for the next record")
    commit_group: str | None = Field(
        None,
        min_length=1,
        max_length=249,
        description="consumer group to which progress is committed, so that tools show the lag; reading ignores it",
    )

    @model_validator(mode="after")
    def _one_choice(self) -> KafkaSource:
        if (self.topics is None) == (self.topic_pattern is None):
            raise ValueError("needs exactly one of topics and topicPattern")
        return self

    @property
    def keeps_history(self) -> bool:
        """True: records can be read again by topic, partition and offset."""
        return True

    @property
    def feed_problem(self) -> str | None:
        """Reason that a topic's name cannot be in the names of files, or that the topics are not known."""
        if self.topic_pattern is not None:
            return super().feed_problem
        found = max(map(len, listed(self.topics)))
        expected = f"feeds need topics of at most {_MAX_FEED_TOPIC} characters"
        return f"{expected}, found one of {found}" if found > _MAX_FEED_TOPIC else None

    def message(self, position: str) -> tuple[str, int]:
        """Return the partition, as ``topic:partition``, and the offset named by TOPIC:PARTITION:OFFSET.

        Raises:
            ValueError: it names no record of these topics.
        """
        found = _partition_and_offset(position)
        if found is None or not self.reads(found[0].rpartition(":")[0]):
            read = ", ".join(listed(self.topics)) if self.topic_pattern is None else self.topic_pattern
            raise ValueError(f"expected TOPIC:PARTITION:OFFSET with a topic of {read}; found {position!r}")
        return found

    def reads(self, topic: str) -> bool:
        """Return True if the topic is one of the source's."""
        if self.topic_pattern is None:
            return topic in listed(self.topics)
        return JavaRegex.of(self.topic_pattern).matches(topic)

    @property
    def named_topics(self) -> tuple[str, ...]:
        """Names of the topics; empty for a pattern."""
        return listed(self.topics)

    def shares_servers_with(self, sink: Sink) -> bool:
        """Return True for a sink in the same cluster."""
        return isinstance(sink, KafkaSink) and not set(listed(self.servers)).isdisjoint(listed(sink.servers))

    def returned_by(self, sink: Sink, patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
        """Return a test for topics of a sink in the same cluster; None for another sink."""
        if not isinstance(sink, KafkaSink):
            return super().returned_by(sink, patterns)
        if not self.shares_servers_with(sink):
            return None
        if self.topic_pattern is None:
            return frozenset(self.named_topics).__contains__
        try:
            return JavaRegex.of(self.topic_pattern).matches
        except JavaRegexError:
            # Spark says so when it reads.
            return None


class KafkaSink(_Kafka, TimedSink):
    """Kafka topics: at least once, or exactly once in transactions.

    Attributes:
        exactly_once: write each split in a transaction, with the note that it is done; false by default.
        transaction_every: milliseconds between two transactions of an open split.
    """

    keys_name_deliveries: ClassVar[bool] = True
    position_form: ClassVar[str | None] = "TOPIC:PARTITION:OFFSET, as in delivered:0:17"

    exactly_once: bool | None = Field(
        None,
        description="true: each split in one transaction, which a repeated micro-batch finds done; false by default",
    )
    control_topic: str = Field("turnout.control", description="compacted topic with the splits that are done")
    transaction_every: int = Field(
        50,
        ge=0,
        le=10_000,
        description="with exactlyOnce and latency: low, milliseconds between two transactions; 0: each small batch",
    )
    partition_by: str = Field(
        "key", description="key: as Java's client chooses; record: as the record has it; header:NAME: by this header"
    )

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if not _TOPIC.fullmatch(self.control_topic):
            raise ValueError(f"controlTopic: found {self.control_topic!r}, expected a topic")
        if "transaction_every" in self.model_fields_set and not self.exactly_once:
            raise ValueError("transactionEvery: has no effect without exactlyOnce: true")
        if self.partition_by not in ("key", "record") and not self.partition_by.removeprefix("header:").strip():
            raise ValueError("partitionBy: the name behind header: is missing")
        if self.partition_by not in ("key", "record") and not self.partition_by.startswith("header:"):
            raise ValueError(f"partitionBy: found {self.partition_by!r}, expected key, record or header:NAME")
        return self

    _deliveries: tuple[str, str] | None = PrivateAttr(None)

    @property
    def deliveries(self) -> tuple[str, str] | None:
        """First tokens of the subjects of deliveries to webhooks, and the topic that has them; None for none."""
        return self._deliveries

    def with_deliveries(self, subject: str, stream: str) -> Self:
        """Return the sink, which stores deliveries to webhooks in a topic."""
        sink = self.model_copy()
        sink._deliveries = subject, stream  # noqa: SLF001 - of the copy
        return sink

    def parse_position(self, position: str) -> tuple[str, int] | None:
        """Return the partition, as ``topic:partition``, and the offset that TOPIC:PARTITION:OFFSET names."""
        return _partition_and_offset(position)

    def shares_letters_with(self, other: Sink) -> bool:
        """Return True if both sinks name a server in common."""
        return isinstance(other, KafkaSink) and not set(listed(self.servers)).isdisjoint(listed(other.servers))

    @property
    def has_transactions(self) -> bool:
        """True if each split of a micro-batch is delivered in one transaction."""
        return bool(self.exactly_once)

    def topic_problem(self, topic: str) -> str | None:
        """Return the reason that no message can be published to this topic; None if one can."""
        if not _TOPIC.fullmatch(topic):
            return "cannot be published to: a Kafka topic has up to 249 letters, digits, '.', '_' and '-'"
        if self.has_transactions and topic == self.control_topic:
            return "is not allowed: it is the sink's control topic"
        return "is not allowed: it is the broker's own" if topic in _OWN_TOPICS else None


def _partition_and_offset(position: str) -> tuple[str, int] | None:
    """Return the partition, as ``topic:partition``, and the offset named by TOPIC:PARTITION:OFFSET."""
    topic, _, numbers = position.strip().partition(":")
    partition, _, offset = numbers.partition(":")
    number, at = decimal(partition, _LARGEST_PARTITION), decimal(offset, LARGEST_SEQUENCE)
    return None if not topic or number is None or at is None else (f"{topic}:{number}", at)
