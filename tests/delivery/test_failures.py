"""Waits between attempts: every form of Retry-After, and texts that are none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.delivery.failures import seconds_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("9" * 20, 1e9),
        ("9" * 5_000, 1e9),
        ("0" * 5_000 + "5", 5.0),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thursday, 01-Jan-26 00:01:00 GMT", 60.0),
        ("Thu Jan  1 00:01:00 2026", 60.0),
        ("Sat Jan 10 00:00:00 2026", 9 * 86_400.0),
        ("Thu, 01 Jan 2026 00:00:60 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:60 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 1e9),
        ("Sat, 01 Jan 0000 00:00:00 GMT", None),
        ("Thu, 32 Jan 2026 00:00:00 GMT", None),
        ("Thu, 01 Jan 2026 24:00:00 GMT", None),
        ("Thu, 01 Foo 2026 00:00:00 GMT", None),
        (f"Thu, 01 Jan {'9' * 20} 00:00:00 GMT", None),
        (f"Thu, {'9' * 20} Jan 2026 00:00:00 GMT", None),
        (f"Thu, 01 Jan 2026 {'9' * 20}:00:00 GMT", None),
        (f"Thu, 01 Jan 2026 00:01:00 +{'9' * 20}", None),
        ("-1", None),
        ("1e9", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
        ("soon", None),
    ],
)
def test_forms(text: str, seconds: float | None) -> None:
    """RFC 9110's three forms of a date and its number are read; everything else is no wait, and no error."""
    assert seconds_of(text, NOW) == seconds


_PARTS = st.sampled_from(
    ["Thu", ", ", " ", "01", "Jan", "26", "2026", "0000", ":", "-", "GMT", "60", "9" * 25, "+", "\0"]
)


@given(st.one_of(st.text(max_size=60), st.lists(_PARTS, max_size=14).map("".join)))
def test_never_an_error(text: str) -> None:
    """An endpoint decides about this header: no text of it raises."""
    seconds = seconds_of(text, NOW)

    assert seconds is None or 0 <= seconds <= 1e9
