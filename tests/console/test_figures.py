"""Values over time as a picture."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.console.figures import Point, Series, bars, counted, plot, sparkline
from turnout.console.formatting import number, span


@pytest.mark.parametrize(("most", "shown"), [(950, span), (2_000, span), (200_000, span), (3, number), (17e6, number)])
def test_labels_of_the_axis_are_inside(most, shown) -> None:
    """A long one moves the axis to the right: "16 min 40 s" began left of the picture, and read "6 min 40 s"."""
    drawn = str(plot([Series("", [Point(0, most), Point(30, most / 2)])], 0, 60, title="lag", shown=shown))

    labels = re.findall(r'<text class="tick end" x="(\d+)" y="[\d.]+">([^<]*)<', drawn)
    assert len(labels) >= 2
    assert all(float(x) - 6.5 * len(text) >= 0 for x, text in labels), labels
    grid = {float(x) for x in re.findall(r'class="grid" x1="(\d+)"', drawn)}
    assert grid == {float(labels[0][0]) + 6}


def test_values_of_all_lines_are_told_by_time() -> None:
    """Values are texts with their position on the axis, hostile names escaped; lines without a value are left out."""
    lines = [Series('<b a="1">', [Point(0, 1), Point(60, 2)]), Series("out", [Point(60, 5)])]
    drawn = str(plot(lines, 0, 120, title="t", shown=number))

    rows = json.loads(unescape(re.findall(r'data-rows="([^"]*)"', drawn)[0]))
    assert [(at, text) for at, _, text in rows] == [
        (0, '01-01 00:00 <b a="1"> 1'),
        (60, '01-01 00:01 <b a="1"> 2, out 5'),
    ]
    assert rows[0][1] < rows[1][1]
    assert "<b" not in drawn


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
