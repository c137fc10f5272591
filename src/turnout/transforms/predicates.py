"""Predicates: of topics, headers and nulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records import ALIVE, Batch
from turnout.subjects import is_valid, matches
from turnout.subjects.pattern import collide
from turnout.transforms.base import ByTopic, Errors, Mask, Predicate
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.options import STRING, Option, java_regex, non_empty


def _pattern(value: str | None) -> str | None:
    return non_empty(value) or java_regex(value)


def _subject_filter(value: str | None) -> str | None:
    return None if value is not None and is_valid(value) else "expected a NATS subject filter"


@dataclass(frozen=True, slots=True)
class TopicNameMatches(Predicate):
    """See ``summary``."""

    summary: ClassVar[str] = "True where the whole topic matches a Java regular expression."
    takes_mixed: ClassVar[bool] = True
    kafka: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("pattern", STRING, "The expression.", check=_pattern, valid="java.util.regex, not empty"),
    )

    pattern: str = ""

    def fits_topics(self, topics: Sequence[str]) -> bool:
        """See `Predicate.fits_topics`."""
        return JavaRegex.of(self.pattern).matches_some(topics)

    def test(self, batch: Batch, errors: Errors) -> Mask:
        """Test each distinct topic once."""
        return _of_topics(batch, _by_pattern(self.pattern), errors)


@dataclass(frozen=True, slots=True)
class HasHeaderKey(Predicate):
    """See ``summary``."""

    summary: ClassVar[str] = "True where at least one header has this name."
    takes_mixed: ClassVar[bool] = True
    kafka: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("name", STRING, "The header's name.", check=non_empty, valid="not empty"),
    )

    name: str = ""

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Predicate.named_headers`."""
        yield "name", self.name

    def test(self, batch: Batch, errors: Errors) -> Mask:  # noqa: ARG002 - cannot fail
        """Test the names of the headers as they are at this stage."""
        return batch.headers.has(self.name)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone(Predicate):
    """See ``summary``."""

    summary: ClassVar[str] = "True where the value is null."
    takes_mixed: ClassVar[bool] = True
    kafka: ClassVar[bool] = True

    def test(self, batch: Batch, errors: Errors) -> Mask:  # noqa: ARG002 - cannot fail
        """Nulls are in blocks of their own."""
        tombstones = np.zeros(len(batch), np.bool_)
        for block in batch.value:
            if block.kind == "null":
                tombstones[block.rows] = True
        return tombstones


@dataclass(frozen=True, slots=True)
class SubjectMatches(Predicate):
    """See ``summary``. Not part of Connect."""

    summary: ClassVar[str] = "True where the topic matches a NATS subject filter with * and >."
    takes_mixed: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("subject", STRING, "The filter.", check=_subject_filter, valid="a NATS subject filter"),
    )

    subject: str = ""

    def fits_topics(self, topics: Sequence[str]) -> bool:
        """See `Predicate.fits_topics`."""
        return any(collide(topic, self.subject) for topic in topics)

    def test(self, batch: Batch, errors: Errors) -> Mask:
        """Test each distinct topic once."""
        return _of_topics(batch, _by_filter(self.subject), errors)


@lru_cache(maxsize=64)
def _by_pattern(pattern: str) -> ByTopic[bool]:
    """Return which topics match a pattern; predicates of several stages often have the same."""
    regex = JavaRegex.of(pattern)
    return ByTopic(lambda topic: topic is not None and regex.matches(topic))


@lru_cache(maxsize=64)
def _by_filter(subject: str) -> ByTopic[bool]:
    """Return which topics match a filter of subjects."""
    return ByTopic(lambda topic: topic is not None and matches(subject, topic))


def _of_topics(batch: Batch, by_topic: ByTopic[bool], errors: Errors) -> Mask:
    """Return the result for each row's topic; records that are not alive cannot fail."""
    answers = by_topic.of(batch.topics)
    if not by_topic.has_failed:
        latest, mask = by_topic.mask
        if latest is not answers or mask is None:
            mask = np.fromiter(answers, np.bool_, len(answers))
            by_topic.mask = answers, mask
        return mask
    holds = np.zeros(len(batch), np.bool_)
    for row, answer in enumerate(answers):
        if isinstance(answer, RecordError):
            if batch.outcomes[row] == ALIVE:
                errors[row] = answer
        else:
            holds[row] = answer
    return holds
