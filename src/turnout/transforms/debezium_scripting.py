"""Options that Debezium's scripted transforms share, and the choice of the records that they concern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from turnout.errors import ConditionError
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, Transform
from turnout.transforms.checks import java_regex, one_of
from turnout.transforms.options import Option, OptionError
from turnout.transforms.predicates import RecordIsTombstone, TopicNameMatches

T = TypeVar("T")

_LANGUAGES: Final = ("jsr223.groovy", "jsr223.graal.js")
_MODES: Final = ("keep", "drop", "evaluate")


def _pattern(value: str | None) -> str | None:
    return java_regex(value) if value else None


TOPIC_REGEX: Final = Option(
    "topic.regex",
    "STRING",
    "Only records whose whole topic matches it are evaluated; without it all.",
    default="",
    check=_pattern,
    valid="java.util.regex",
)
LANGUAGE: Final = Option(
    "language",
    "STRING",
    "The language of the expression; the supported subset is the same in all.",
    check=one_of(*_LANGUAGES),
    valid=", ".join(_LANGUAGES),
)
NULLS: Final = Option(
    "null.handling.mode",
    "STRING",
    "Handling of a record without a value: kept unchanged, dropped, or evaluated like the others.",
    default="keep",
    check=one_of(*_MODES, any_case=True),
    valid=", ".join(_MODES),
)


@dataclass(frozen=True, slots=True)
class Scripted(Transform):
    """Transform with an expression over the whole record, compiled to conditions."""

    sided: ClassVar[bool] = False
    keeps_paths: ClassVar[bool] = True

    topic_regex: str = ""
    language: str = ""
    null_handling_mode: str = "keep"

    def concerned(self, batch: Batch, rows: Positions, errors: Errors) -> Positions:
        """Return the rows to evaluate the expression for; drop nulls if configured."""
        if self.topic_regex:
            rows = rows[TopicNameMatches(self.topic_regex).test(batch, errors)[rows]]
        mode = self.null_handling_mode.lower()
        if mode == "evaluate":
            return rows
        is_null = RecordIsTombstone().test(batch, {})[rows]
        if mode == "drop":
            batch.filter(rows[is_null])
        return rows[~is_null]


def read_option(option: str, expression: str, read: Callable[[str], T]) -> T:
    """Return an option's expression, read.

    Raises:
        OptionError: it has something else in it than conditions.
    """
    try:
        return read(expression)
    except ConditionError as error:
        raise OptionError(option, str(error)) from None
