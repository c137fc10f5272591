"""Values over time as a picture."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.console.charts import Chart, Series
from turnout.console.figures import bars, counted, sparkline


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
