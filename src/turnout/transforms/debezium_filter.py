"""DebeziumFilter: keep the records that an expression is true of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from turnout.base.deferred import np
from turnout.errors import RecordError
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, NamedField, Side
from turnout.transforms.checks import non_empty
from turnout.transforms.debezium_envelope import PACKAGE
from turnout.transforms.debezium_expression import GROOVY, Constant, Interpolation, Script
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
from turnout.transforms.script_rules import TRUE

_ANY: Final = Script(Constant(TRUE), GROOVY)


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

    kept: Script = _ANY

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the expression."""
        language = options["language"]
        script = read_option("condition", options["condition"], lambda text: Script.read(text, language))
        for result in script.results():
            if isinstance(result, Interpolation) or (isinstance(result, Constant) and result.item.type != "boolean"):
                raise OptionError(
                    "condition", "expected an expression that is true or false, found a constant of another type"
                )
        return cls(side, options["topic.regex"], language, options["null.handling.mode"], script)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return named_fields_of("condition", self.kept)

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return named_headers_of("condition", self.kept)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop the records that it is false of."""
        errors: Errors = {}
        concerned = self.concerned(batch, rows, errors)
        dropped = []
        for row, result in self.results(self.kept, batch, concerned, errors).items():
            if result.type != "boolean":
                found = "null" if result.value is None else f"a value of type {result.type or 'object'}"
                errors[row] = RecordError(f"expected true or false of the expression, found {found}")
            elif not result.value:
                dropped.append(row)
        batch.filter(np.array(dropped, np.intp))
        return errors
