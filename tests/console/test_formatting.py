"""Numbers, durations and times for people."""

from __future__ import annotations

import time

import pytest

from turnout.console.formatting import ago, difference, number, pretty, rate, segment, span


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


def test_equal_texts_have_no_difference() -> None:
    """A line break at the end makes no difference either."""
    assert difference("a\nb", "a\nb\n") == []


def test_lines_far_from_a_change_are_left_out() -> None:
    """Three lines stay around it."""
    before = [f"line {number}" for number in range(20)]
    after = [*before[:10], "new", *before[11:]]
    lines = difference("\n".join(before), "\n".join(after))

    assert [line.text for line in lines if line.kind in ("added", "removed")] == ["-line 10", "+new"]
    assert len([line for line in lines if line.kind == "same"]) == 6
