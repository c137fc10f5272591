"""ContentBasedRouter: a topic by conditions on the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, NamedField, Side
from turnout.transforms.checks import non_empty
from turnout.transforms.condition import Condition
from turnout.transforms.debezium_envelope import PACKAGE
from turnout.transforms.debezium_expression import read_choices
from turnout.transforms.debezium_scripting import LANGUAGE, NULLS, TOPIC_REGEX, Scripted, read_option
from turnout.transforms.options import Option, Options


@dataclass(frozen=True, slots=True)
class ContentBasedRouter(Scripted):
    """See ``summary``. Debezium's transform.

    Attributes:
        choices: condition and topic, in order; a topic of None is the record's own.
        otherwise: the topic where no condition is true.
    """

    summary: ClassVar[str] = "Routes a record to the topic that an expression chooses by its content."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "ContentBasedRouter",)
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "topic.expression",
            "STRING",
            "The expression: `value.op == 'd' ? 'deleted' : null`; null keeps the topic.",
            check=non_empty,
            own_language=True,
        ),
        LANGUAGE,
        TOPIC_REGEX,
        NULLS,
    )

    choices: tuple[tuple[Condition, str | None], ...] = ()
    otherwise: str | None = None

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the expression."""
        *choices, last = read_option("topic.expression", options["topic.expression"], read_choices)
        tested = tuple((Condition.of(one.condition), one.topic) for one in choices if one.condition is not None)
        common = options["topic.regex"], options["language"], options["null.handling.mode"]
        return cls(side, *common, tested, last.topic)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        for condition, _ in self.choices:
            yield from (named._replace(option="topic.expression") for named in condition.named_fields())

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Give each record the first topic whose condition is true of it."""
        errors: Errors = {}
        topics = list(batch.topics)
        undecided = self.concerned(batch, rows, errors)
        for condition, topic in self.choices:
            chosen = condition.test(batch, errors)[undecided]
            _set(topics, undecided[chosen], topic)
            undecided = undecided[~chosen]
        _set(topics, undecided, self.otherwise)
        batch.topics = topics
        return errors


def _set(topics: list[str | None], rows: Positions, topic: str | None) -> None:
    if topic is not None:
        for row in rows.tolist():
            topics[row] = topic
