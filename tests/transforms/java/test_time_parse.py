"""Reading of dates and times as Java's SimpleDateFormat does."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from tests.transforms.java.test_date_pattern import JAVA

from turnout.transforms.java.time_parse import time_parser

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
    began = time.monotonic()

    time_parser(pattern)(text)

    assert time.monotonic() - began < 1
