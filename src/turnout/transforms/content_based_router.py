"""ContentBasedRouter: a topic by conditions on the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from turnout.errors import RecordError
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, NamedField, Side
from turnout.transforms.checks import non_empty
from turnout.transforms.debezium_envelope import PACKAGE
from turnout.transforms.debezium_expression import GROOVY, Comparison, Constant, Membership, Negation, Script
from turnout.transforms.debezium_scripting import (
    LANGUAGE,
    NULLS,
    TOPIC_REGEX,
    Scripted,
    named_fields_of,
    named_headers_of,
    read_option,
)
from turnout.transforms.options import Option, OptionError, Options
from turnout.transforms.script_rules import NULL

_OWN: Final = Script(Constant(NULL), GROOVY)


@dataclass(frozen=True, slots=True)
class ContentBasedRouter(Scripted):
    """See ``summary``. Debezium's transform.

    Attributes:
        topic: the expression; a result of null leaves the record's own.
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

    topic: Script = _OWN

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the expression."""
        language = options["language"]
        script = read_option("topic.expression", options["topic.expression"], lambda text: Script.read(text, language))
        for result in script.results():
            is_constant = isinstance(result, Constant) and result.item.type not in ("string", "")
            if is_constant or isinstance(result, Comparison | Membership | Negation):
                raise OptionError("topic.expression", "expected a topic (a text, a field or null) as each result")
        return cls(side, options["topic.regex"], language, options["null.handling.mode"], script)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return named_fields_of("topic.expression", self.topic)

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return named_headers_of("topic.expression", self.topic)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Give each record the topic that is the expression's result; null keeps its own."""
        errors: Errors = {}
        topics = list(batch.topics)
        for row, result in self.results(self.topic, batch, self.concerned(batch, rows, errors), errors).items():
            if result.is_text:
                topics[row] = result.value
            elif result.value is not None:
                kind = result.type or "object"
                errors[row] = RecordError(f"expected a topic of the expression, found a value of type {kind}")
        batch.topics = topics
        return errors
