"""TimestampConverter: change between text, epoch numbers and the logical date types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform, mistake
from turnout.transforms.checks import one_of
from turnout.transforms.java_time import JavaTimeError, parse_java_time
from turnout.transforms.options import Option, Options

__all__ = ["PRECISIONS", "TARGET_TYPES", "TimestampConverter"]

TARGET_TYPES = ("string", "unix", "Date", "Time", "Timestamp")
PRECISIONS = ("seconds", "milliseconds", "microseconds", "nanoseconds")


@dataclass(frozen=True, slots=True)
class TimestampConverter(Transform):
    """See ``summary``.

    Attributes:
        field: the field, empty for the whole key or value.
        format: the pattern of ``java.text.SimpleDateFormat``, empty if none was given.
    """

    summary: ClassVar[str] = "Converts a time between text, unix time, Date, Time and Timestamp."
    options: ClassVar[tuple[Option, ...]] = (
        Option("target.type", "STRING", "What to make.", check=one_of(*TARGET_TYPES), valid=", ".join(TARGET_TYPES)),
        Option("field", "STRING", "The field, a flat name; empty for the whole.", default=""),
        Option("format", "STRING", "The pattern of the text.", default="", valid="java.text.SimpleDateFormat"),
        Option(
            "unix.precision",
            "STRING",
            "The unit of unix time, in and out.",
            default="milliseconds",
            check=one_of(*PRECISIONS),
            valid=", ".join(PRECISIONS),
        ),
        REPLACE_NULL,
    )

    target_type: str = "Timestamp"
    field: str = ""
    format: str = ""
    unix_precision: str = "milliseconds"
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check the pattern, and that there is one where text is to be made."""
        pattern = options["format"] or ""
        if options["target.type"] == "string" and not pattern.strip():
            raise mistake("format", "is missing, and the target type string needs it")
        try:
            parse_java_time(pattern)
        except JavaTimeError as error:
            raise mistake("format", f"expected a pattern of java.text.SimpleDateFormat: {error}") from None
        return super(TimestampConverter, cls).from_options({**options, "format": pattern}, side)
