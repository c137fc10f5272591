"""DebeziumFilter: keep the records that an expression is true of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from turnout.conditions import exists
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, NamedField, Side
from turnout.transforms.checks import non_empty
from turnout.transforms.condition import Condition
from turnout.transforms.debezium_envelope import PACKAGE
from turnout.transforms.debezium_expression import read_condition
from turnout.transforms.debezium_scripting import LANGUAGE, NULLS, TOPIC_REGEX, Scripted, read_option
from turnout.transforms.options import Option, Options

_ANY: Final = Condition.of(exists("topic"))


@dataclass(frozen=True, slots=True)
class DebeziumFilter(Scripted):
    """See ``summary``. Debezium's `Filter`, under another short name than Kafka's.

    Attributes:
        kept: the records to keep.
    """

    summary: ClassVar[str] = "Keeps the records that an expression is true of, and drops the others."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "Filter",)
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "condition",
            "STRING",
            "The expression: `value.op == 'u' && value.after.id > 2`.",
            check=non_empty,
            own_language=True,
        ),
        LANGUAGE,
        TOPIC_REGEX,
        NULLS,
    )

    kept: Condition = _ANY

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the expression."""
        compiled = Condition.of(read_option("condition", options["condition"], read_condition))
        return cls(side, options["topic.regex"], options["language"], options["null.handling.mode"], compiled)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        yield from (named._replace(option="condition") for named in self.kept.named_fields())

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop the records that it is false of."""
        errors: Errors = {}
        concerned = self.concerned(batch, rows, errors)
        batch.filter(concerned[~self.kept.test(batch, errors)[concerned]])
        return errors
