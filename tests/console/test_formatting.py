"""Numbers, durations and times for people."""

from __future__ import annotations

import time

import pytest

from turnout.console.formatting import ago, number, pretty, rate, segment, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (86_400 * 3, "3 d 0 h"), (9.96, "10.0 s")]
)
def test_spans_have_two_units(seconds: float, text: str) -> None:
    """The two largest."""
    assert span(seconds) == text


def test_nothing_is_a_dash() -> None:
    """Everywhere."""
    assert [number(None), rate(None), span(None), ago(None)] == ["–"] * 4


def test_a_time_in_the_future_is_now() -> None:
    """Clocks of two machines differ."""
    assert ago(time.time() + 100) == "0 s ago"


def test_texts_of_others_stay_in_their_segment() -> None:
    """A slash ends none; a text is shown as it is, a value as JSON."""
    assert "/" not in segment("../a/b?c#d")
    assert (pretty("a"), pretty({"a": "é"})) == ("a", '{\n  "a": "é"\n}')
