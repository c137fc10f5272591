"""Values over time as a picture."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.console.charts import (
    Chart,
    Series,
    ago,
    bars,
    counted,
    difference,
    number,
    pretty,
    rate,
    segment,
    span,
    sparkline,
)


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


@given(st.lists(st.floats(-5, 15)), st.integers(1, 50))
def test_each_moment_is_in_one_part(moments: list[float], pieces: int) -> None:
    """This includes moments before and after the span."""
    assert sum(counted(moments, 0.0, 10.0, pieces)) == len(moments)


def test_a_single_count_beside_many_is_visible() -> None:
    """Nothing is drawn for zero; the label is escaped."""
    drawn = str(bars([0, 1, 1_000_000], 1_000_000, "<b>"))

    assert drawn.count("<rect") == 2
    assert 'height="2.0"' in drawn
    assert "<b>" not in drawn


def test_lines_share_a_scale() -> None:
    """Half of the largest is in the middle; a line of zeros and one of a single value are drawn too."""
    drawn = str(sparkline([[0, 10], [5, 5]], "a & b"))

    assert drawn.count("<polyline") == 2
    assert "0.0,27.0 120.0,1.0" in drawn
    assert "0.0,14.0 120.0,14.0" in drawn
    assert "a &amp; b" in drawn
    assert "nan" not in str(sparkline([[0], []], ""))


def test_a_chart_is_a_table_of_its_lines() -> None:
    """Each time has a value of each line, or none; a chart of zeros is empty, and says its values aloud otherwise."""
    chart = Chart("In, out", "rate", [Series("in", {0: 1.0, 60: 3.0}), Series("out", {60: 2.0})])

    assert chart.rows() == [(0, [1.0, None]), (60, [3.0, 2.0])]
    assert chart.label() == "In, out: in 3.0/s last, 3.0/s at most; out 2.0/s last, 2.0/s at most"
    assert (chart.id, chart.is_empty) == ("in-out", False)
    assert Chart("t", "number", [Series("", {0: 0.0})]).is_empty
