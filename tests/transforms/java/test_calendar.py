"""Time zones and the letters of SimpleDateFormat."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnout.transforms.java.calendar import NAMES, JavaTimeError
from turnout.transforms.java.times import time_parser, time_printer, time_unit


def test_every_name_is_compared() -> None:
    """No name of a zone is read that Java was not asked about."""
    assert {name.name for name in NAMES} <= {name for name, *_ in ZONES["read"]}


JAVA: dict[str, Any] = json.loads(Path(__file__).with_name("java_times.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "pattern", ["yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSX", "yyyyMMdd", "yyyy/MM/dd HH", "dd MM yyyy"]
)
def test_quick_ways_give_what_the_slow_ones_give(pattern: str) -> None:
    """A time formatted in a usual year is parsed as the same time, to the precision of the pattern."""
    unit = time_unit(pattern)
    for millis in range(-12_212_553_600_000, 253_402_300_799_999, 3_456_789_012_345):
        text = time_printer(pattern)(millis)

        assert millis - millis % unit == time_parser(pattern)(text)
        # A blank at the end leads to the slow way.
        assert millis - millis % unit == time_parser(pattern)(text + " ")


@pytest.mark.parametrize("pattern", ["yyyy-bb", "XXXX", "'open", "T"])
def test_what_java_refuses_is_refused(pattern: str) -> None:
    """A letter without meaning, four X, and a quote that is not closed."""
    with pytest.raises(JavaTimeError):
        time_printer(pattern)


@pytest.mark.parametrize(
    ("text", "year"), [("01.01.47", 1947), ("01.01.46", 2046), ("31.12.46", 1946), ("01.01.99", 1999), ("01.01.5", 5)]
)
def test_two_digits_are_a_year_near_now(text: str, year: int) -> None:
    """Within 80 years before and 20 after; where the hundred years begin and end, the day decides."""
    millis = time_parser("dd.MM.yy", datetime(2026, 11, 22, tzinfo=UTC))(text)

    assert millis is not None
    assert str(year) == time_printer("y")(millis)


ZONES: dict[str, Any] = json.loads(Path(__file__).with_name("java_zones.json").read_text(encoding="utf-8"))


def _east(wall: str, name: str, pattern: str) -> int | None:
    """Return the offset in minutes of a named zone at the given local time, as the parser reads it."""
    zoneless, millis = time_parser(pattern.rstrip(" zZ"))(wall), time_parser(pattern)(f"{wall} {name}")
    assert zoneless is not None
    return None if millis is None else (zoneless - millis) // 60_000


@pytest.mark.parametrize("letter", ["z", "Z", "zzzz"])
def test_names_of_zones_are_read_as_in_java(letter: str) -> None:
    """Short and long, in winter, in summer, long ago and later (JDK 17, en_US); what is no name is refused."""
    pattern = f"yyyy-MM-dd HH:mm:ss {letter}"
    offsets = [[name, *(_east(wall, name, pattern) for wall in ZONES["walls"])] for name, *_ in ZONES["read"]]

    assert offsets == ZONES["read"]
    assert offsets == [[name, *(_east(wall, name.lower(), pattern) for wall in ZONES["walls"])] for name, *_ in offsets]


@pytest.mark.parametrize("year", ["0001", "1582", "1899", "9999", "10000", "292278994"])
def test_names_of_zones_go_with_any_year(year: str) -> None:
    """Before the first change of an offset and after the last day of Python's calendar the name still counts."""
    wall = f"{year}-01-01 00:00:00"

    assert _east(wall, "PST", "yyyy-MM-dd HH:mm:ss z") == -480
