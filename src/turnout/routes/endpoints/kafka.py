"""Kafka topics as a source and as a sink."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from turnout.routes.endpoints.base import Endpoint, Sink, Source
from turnout.routes.values import Brokers, JavaPattern, KafkaStart, KafkaTopics, listed
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.java.regex_characters import JavaRegexError

_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_OWN_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class _Kafka(Endpoint):
    """Connection to a Kafka cluster; client properties go under ``options`` as ``kafka.…``.

    Attributes:
        options_: more options of Spark's connector; those of Kafka's client begin with kafka.
    """

    format: Literal["kafka"]
    servers: Brokers = Field(description="host:port, or a list of them")
    options_: dict[str, str | int | bool] = Field(default_factory=dict, alias="options")

    renamed: ClassVar[dict[str, str]] = {"servers": "kafka.bootstrap.servers"}


class KafkaSource(_Kafka, Source):
    """Kafka topics, through Spark's own connector.

    Attributes:
        end: where to stop, for a route that does all there is: latest, or offsets by topic and partition.
        max_records_per_trigger: the most offsets in a micro-batch.
        fail_on_data_loss: fail when records that were to be read are gone (the default), or warn and go on.
    """

    topics: KafkaTopics = Field(None, description="topics to read")
    topic_pattern: JavaPattern = Field(None, description="or a Java regular expression of topics")
    start: KafkaStart = Field("earliest", description="earliest, latest or offsets by topic and partition")
    end: str | dict[str, Any] | None = None
    max_records_per_trigger: int | None = Field(None, gt=0)
    fail_on_data_loss: bool | None = None

    renamed: ClassVar[dict[str, str]] = {
        **_Kafka.renamed,
        "topics": "subscribe",
        "topicPattern": "subscribePattern",
        "start": "startingOffsets",
        "end": "endingOffsets",
        "maxRecordsPerTrigger": "maxOffsetsPerTrigger",
    }

    @model_validator(mode="after")
    def _one_choice(self) -> KafkaSource:
        if (self.topics is None) == (self.topic_pattern is None):
            raise ValueError("needs exactly one of topics and topicPattern")
        return self

    def returned_by(self, sink: Sink, patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
        """Return a test for topics of a sink in the same cluster; None for another sink."""
        if not isinstance(sink, KafkaSink):
            return super().returned_by(sink, patterns)
        if set(listed(self.servers)).isdisjoint(listed(sink.servers)):
            return None
        if self.topic_pattern is None:
            return frozenset(listed(self.topics)).__contains__
        try:
            return JavaRegex.of(self.topic_pattern).matches
        except JavaRegexError:
            # Spark says so when it reads.
            return None


class KafkaSink(_Kafka, Sink):
    """Kafka topics: at least once, as Spark's connector is."""

    def topic_problem(self, topic: str) -> str | None:
        """Return the reason that no message can be published to this topic; None if one can."""
        if not _TOPIC.fullmatch(topic):
            return "cannot be published to: a Kafka topic has up to 249 letters, digits, '.', '_' and '-'"
        return "is not allowed: it is the broker's own" if topic in _OWN_TOPICS else None
