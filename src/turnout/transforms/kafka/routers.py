"""Transforms of topics: RegexRouter, TopicRegexRouter, TimestampRouter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Positions
from turnout.transforms.base import ByTopic, Errors, Transform, route
from turnout.transforms.fields import NULL_POINTER
from turnout.transforms.java.calendar import JavaTimeError, parse_java_time
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.java.times import time_printer, time_unit
from turnout.transforms.options import STRING, Option, OptionError, java_regex, non_null


@dataclass(frozen=True, slots=True)
class RegexRouter(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Where the expression matches the whole topic, replaces its first find in it."
    kafka: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("regex", STRING, "The expression.", check=java_regex, valid="java.util.regex"),
        Option(
            "replacement",
            STRING,
            "The replacement, with $1 and ${name} for groups; may be empty.",
            check=non_null,
            groups_of="regex",
        ),
    )

    regex: str = ""
    replacement: str = ""
    _routed: ByTopic[str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_routed", ByTopic(self._route))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.side, self.regex, self.replacement)

    def doubts(self) -> Iterator[OptionError]:
        """Connect finds a group that is not there with the first topic that matches."""
        try:
            JavaRegex.of(self.regex).check_replacement(self.replacement)
        except RecordError as error:
            problem = f"expected a replacement for {self.regex!r}, found {self.replacement!r}: {error}"
            yield OptionError("replacement", problem)

    def fits_topics(self, topics: Sequence[str]) -> bool:
        """See `Transform.fits_topics`."""
        return JavaRegex.of(self.regex).matches_some(topics)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Give these records their new topics."""
        return route(batch, rows, self._routed)

    def _route(self, topic: str | None) -> str | None:
        if topic is None:
            raise RecordError("the topic is null", "java.lang.NullPointerException")
        pattern = JavaRegex.of(self.regex)
        return pattern.replaced(topic, self.replacement) if pattern.matches(topic) else topic


@dataclass(frozen=True, slots=True)
class TopicRegexRouter(RegexRouter):
    """See ``summary``. Confluent's takes expressions of RE2, which mean the same here."""

    summary: ClassVar[str] = "RegexRouter, under its name in Confluent's cloud."
    kafka: ClassVar[bool] = False
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.cloud.transforms.TopicRegexRouter",)


@dataclass(frozen=True, slots=True)
class TimestampRouter(Transform):
    """See ``summary``. A bad pattern makes every record fail; it is not found earlier, as in Connect."""

    summary: ClassVar[str] = "Builds the topic from the old one and the record's timestamp, in UTC."
    kafka: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "topic.format",
            STRING,
            "The new topic.",
            default="${topic}-${timestamp}",
            check=non_null,
            placeholders=("topic", "timestamp"),
        ),
        Option(
            "timestamp.format",
            STRING,
            "The pattern of the timestamp.",
            default="yyyyMMdd",
            check=non_null,
            valid="java.text.SimpleDateFormat",
        ),
    )

    topic_format: str = "${topic}-${timestamp}"
    timestamp_format: str = "yyyyMMdd"

    def doubts(self) -> Iterator[OptionError]:
        """Connect finds a bad pattern with the first record."""
        try:
            parse_java_time(self.timestamp_format)
        except JavaTimeError as error:
            yield OptionError("timestamp.format", f"expected a pattern of java.text.SimpleDateFormat: {error}")

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Topics change by distinct topic and distinct text of the time."""
        errors: Errors = {}
        topics: dict[tuple[str, str], str] = {}
        for row in rows.tolist():
            try:
                names = self._names(batch.topics[row], batch.timestamps[row])
            except RecordError as error:
                errors[row] = error
                continue
            topic = topics.get(names)
            if topic is None:
                topic = topics[names] = self._topic(*names)
            batch.topics[row] = topic
        return errors

    def _names(self, topic: str | None, timestamp: int | None) -> tuple[str, str]:
        """Return the topic and the text of the time."""
        if timestamp is None:
            raise RecordError("Timestamp missing on record")
        try:
            text = _printer(self.timestamp_format)(int(timestamp))
        except JavaTimeError as error:
            raise RecordError(str(error), "java.lang.IllegalArgumentException") from None
        if topic is None:
            raise RecordError("the topic is null", NULL_POINTER)
        return topic, text

    def _topic(self, topic: str, text: str) -> str:
        # One ${timestamp} in the topic's own name is replaced, too, as in Connect.
        return self.topic_format.replace("${topic}", topic).replace("${timestamp}", text)


@lru_cache(maxsize=64)
def _printer(pattern: str) -> Callable[[int], str]:
    """Prints milliseconds; times that print the same are computed once."""
    unit = time_unit(pattern)
    printed = lru_cache(maxsize=10_000)(time_printer(pattern))
    return lambda millis: printed(millis - millis % unit)
