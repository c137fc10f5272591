"""Times of messages that are delivered later than their records arrive: durations, moments, and paths to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal, Self, cast

from turnout.records.field_paths import PathError, has_elements, is_prefix, parse_elements

MICROSECONDS: Final = 1_000_000
MOST_SECONDS: Final = 30 * 86_400
"""The longest that a message waits, from the time of its record: 30 days."""

_UNITS: Final = {"ms": 1_000, "s": MICROSECONDS, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_PARTS = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:ms|[smhd]))+")
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|[smhd])")
_ISO = re.compile(r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?")
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?")
"""A number as JSON has it, or as texts of floating-point numbers do."""

_PATH = re.compile(r"(?:value|key|header)\..+")
_SUFFIX = re.compile(r"(.+)\?(delay|deliverAt)=(.+)", re.DOTALL)

_SCALES: Final = (
    (Decimal("1e11"), Decimal(1_000_000)),
    (Decimal("1e14"), Decimal(1_000)),
    (Decimal("1e17"), Decimal(1)),
    (Decimal("Infinity"), Decimal("0.001")),
)
"""Limits of numbers, and the microseconds that one is: of seconds, of milli-, of micro- and of nanoseconds."""

DURATION: Final = "a number of seconds, or a duration like 90s, 1h30m or PT15M"
MOMENT: Final = "an ISO 8601 time with its zone, or a number of seconds or milliseconds since 1970"


def duration_of(text: str) -> int | None:
    """Return the microseconds of a duration; None if the text is none.

    >>> [duration_of(text) for text in ("1.5", "1h30m", "PT15M", "250ms", "soon", "PT")]
    [1500000, 5400000000, 900000000, 250000, None, None]
    """
    if _NUMBER.fullmatch(text):
        return round(Decimal(text) * MICROSECONDS)
    if _PARTS.fullmatch(text):
        return round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    found = _ISO.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    sizes = (86_400, 3_600, 60, 1)
    return round(sum(float(part or 0) * size for part, size in zip(found.groups(), sizes, strict=True)) * MICROSECONDS)


def moment_of(text: str) -> int | None:
    """Return the microseconds since 1970 of a time; None if the text is none, or has no zone.

    A number below 10^11 is in seconds, else in milli-, micro- or nanoseconds: others would be years away from a record.

    >>> [moment_of(text) for text in ("1970-01-01T00:00:01+00:00", "1800000000", "1800000000000", "2027-01-01")]
    [1000000, 1800000000000000, 1800000000000000, None]
    """
    if _NUMBER.fullmatch(text):
        number = Decimal(text)
        scale = next(scale for limit, scale in _SCALES if number < limit)
        return round(number * scale)
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return None
        since = time - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of a message: after a delay from its record's time, or at a moment.

    Attributes:
        kind: ``delay`` or ``deliverAt``.
        text: as it is written: a constant, or a path.
        constant: the microseconds of a constant; None for a path.

    >>> Timing.parse("delay", "15m").constant, Timing.parse("deliverAt", "value.due").constant
    (900000000, None)
    """

    kind: Literal["delay", "deliverAt"]
    text: str
    constant: int | None = None

    @property
    def expected(self) -> str:
        """Description of a value."""
        return DURATION if self.kind == "delay" else MOMENT

    def read(self, text: str) -> int | None:
        """Return the microseconds of a value; None if it is none."""
        return duration_of(text) if self.kind == "delay" else moment_of(text)

    @classmethod
    def parse(cls, kind: Literal["delay", "deliverAt"], text: str) -> Self:
        """Return the timing that a text means.

        Raises:
            ValueError: it means none.
        """
        if _PATH.fullmatch(text):
            check_path(text)
            return cls(kind, text)
        timing = cls(kind, text)
        constant = timing.read(text)
        if constant is None:
            raise ValueError(
                f"found {text!r:.80}, expected {timing.expected}, or a path: value.FIELD, key.FIELD or header.NAME"
            )
        if kind == "delay" and constant > MOST_SECONDS * MICROSECONDS:
            raise ValueError(f"found {text!r:.80}, expected 30 days at most")
        return cls(kind, text, constant)


@lru_cache(maxsize=10_000)
def split_timing(destination: str) -> tuple[str, Timing | None, str | None]:
    """Return a destination without the time at its end, the time, and why that is none.

    >>> split_timing("late.orders?delay=1h")[0], split_timing("orders?limit=5")[1], split_timing("a?delay=soon")[2][:12]
    ('late.orders', None, '?delay=: fou')
    """
    found = _SUFFIX.fullmatch(destination)
    if found is None:
        return destination, None, None
    try:
        return found[1], Timing.parse(cast("Literal['delay', 'deliverAt']", found[2]), found[3]), None
    except ValueError as problem:
        return found[1], None, f"?{found[2]}=: {problem}"


def check_path(text: str) -> None:
    """Refuse a path that is not that of one header or one field.

    Raises:
        ValueError: it is none.
    """
    if not _PATH.fullmatch(text):
        raise ValueError(f"found {text!r:.80}, expected value.FIELD, key.FIELD or header.NAME")
    if text.startswith("header."):
        return
    try:
        steps = parse_elements(text)
    except PathError as problem:
        raise ValueError(f"found {text!r:.80}: {problem}") from None
    if is_prefix(text) or has_elements(steps):
        raise ValueError(f"found {text!r:.80}, expected the path of one field")
