"""InsertHeader: append a header with a fixed value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, Side, Transform
from turnout.transforms.checks import non_null
from turnout.transforms.java.literal import Literal, parse_literal
from turnout.transforms.options import Option, Options


@dataclass(frozen=True, slots=True)
class InsertHeader(Transform):
    """See ``summary``.

    Attributes:
        literal: the value with the schema that its text gave it.
    """

    summary: ClassVar[str] = "Appends one header with a fixed value, whose type follows from its text."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("header", "STRING", "The header's name; may be empty.", check=non_null),
        Option(
            "value.literal", "STRING", "The value's text: a number, a date, JSON, or words.", check=non_null, block=True
        ),
    )

    header: str = ""
    literal: Literal | None = None

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the literal, once for all records."""
        return cls(side, options["header"], parse_literal(options["value.literal"]))

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Append one header to each record, with the same value for all."""
        assert self.literal is not None
        batch.headers.append(rows, self.header, self.literal.schema, [self.literal.value] * len(rows))
        return {}
