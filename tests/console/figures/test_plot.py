"""Values over time as a picture."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from turnout.console.figures.plot import Point, Series, plot
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
