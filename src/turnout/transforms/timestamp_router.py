"""TimestampRouter: put the record's time into the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, Transform
from turnout.transforms.checks import non_null
from turnout.transforms.java.date_pattern import JavaTimeError, parse_java_time
from turnout.transforms.java.time_print import time_printer, time_unit
from turnout.transforms.options import Option, OptionError
from turnout.transforms.struct_fields import NULL_POINTER


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
            "STRING",
            "The new topic.",
            default="${topic}-${timestamp}",
            check=non_null,
            placeholders=("topic", "timestamp"),
        ),
        Option(
            "timestamp.format",
            "STRING",
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
