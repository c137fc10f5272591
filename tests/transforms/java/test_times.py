"""Times are parsed and printed as SimpleDateFormat does."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from tests.transforms.java.test_calendar import JAVA

from turnout.transforms.java.times import time_parser, time_printer, time_unit

NOW = datetime.fromisoformat(JAVA["now"])


def test_texts_are_read_as_in_java() -> None:
    """Leniently: fields roll over, what follows is ignored, and what does not fit is told."""
    parsed = [[pattern, text, time_parser(pattern, NOW)(text)] for pattern, text, _ in JAVA["parsed"]]

    assert JAVA["parsed"] == parsed


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "1" * 1_000_000),
        ("yyyyMMdd", "1" * 1_000_000),
        ("yyyy-MM-dd", " " * 1_000_000),
        ("yyyy-MM-dd HH:mm:ss", "2013-01-01" + " " * 1_000_000 + "x"),
        ("yyyy", "1" * 500_000 + "E" + "1" * 500_000),
        ("EEE z", "Mon" + "GMT+" * 250_000),
        ("d MMM yyyy", "1 " + "x" * 1_000_000),
    ],
)
def test_hostile_texts_take_no_time(pattern: str, text: str) -> None:
    """A megabyte is read, or refused, in one pass."""
    began = time.thread_time()

    time_parser(pattern)(text)

    assert time.thread_time() - began < 1


def test_times_print_as_in_java() -> None:
    """Every letter, before and after the calendars changed, and at the ends of 64 bits."""
    printed = [[pattern, millis, time_printer(pattern)(millis)] for pattern, millis, _ in JAVA["printed"]]

    assert JAVA["printed"] == printed


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ("yyyyMMdd", 86_400_000),
        ("HH", 3_600_000),
        ("a", 43_200_000),
        ("mm", 60_000),
        ("s", 1000),
        ("yS", 1),
        ("", 86_400_000),
    ],
)
def test_the_finest_letter_tells_what_prints_the_same(pattern: str, unit: int) -> None:
    """All times of a unit print alike."""
    assert unit == time_unit(pattern)
    assert time_printer(pattern)(unit) == time_printer(pattern)(2 * unit - 1)
