"""Work that depends on the topic alone, done once for each distinct topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from turnout.errors import RecordError
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors

T = TypeVar("T")

_TOPICS = 50_000
"""Maximum number of cached topics; the cache is cleared when it is full."""


class ByTopic(Generic[T]):
    """Caches the result of a function for each topic, or its failure.

    Args:
        function: function of a topic; it may raise `RecordError`.

    Attributes:
        has_failed: whether it has for any topic.
    """

    __slots__ = ("_answers", "function", "has_failed")

    def __init__(self, function: Callable[[str | None], T]) -> None:
        self.function = function
        self.has_failed = False
        self._answers: dict[str | None, T | RecordError] = {}

    def of(self, topics: Sequence[str | None]) -> list[T | RecordError]:
        """Results of the function by topic, or its failures."""
        answers = self._answers
        try:
            return [answers[topic] for topic in topics]
        except KeyError:
            pass
        if len(answers) >= _TOPICS:
            # A new one: another thread may be reading the old.
            answers = self._answers = {}
        for topic in set(topics).difference(answers):
            try:
                answers[topic] = self.function(topic)
            except RecordError as error:
                # First, as another thread may find the error at once.
                self.has_failed = True
                answers[topic] = error
        return [answers[topic] for topic in topics]


def route(batch: Batch, rows: Positions, routed: ByTopic[str | None]) -> Errors:
    """Set the new topics of these records of a batch; return the errors of the failed ones by row."""
    routed_topics = routed.of(batch.by_row(batch.topics, rows))
    errors: Errors = {}
    topics = list(batch.topics)
    for row, topic in zip(rows.tolist(), routed_topics, strict=True):
        if isinstance(topic, RecordError):
            errors[row] = topic
        else:
            topics[row] = topic
    batch.topics = topics
    return errors
