"""Writing of dates and times as Java's SimpleDateFormat does."""

from __future__ import annotations

import pytest
from tests.transforms.java.test_date_pattern import JAVA

from turnout.transforms.java.time_print import time_printer, time_unit


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
