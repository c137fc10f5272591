"""Values over time as a picture."""

from __future__ import annotations

import re

import pytest

from turnout.console.figures.plot import Point, plot
from turnout.console.formatting import number, span


@pytest.mark.parametrize(("most", "shown"), [(950, span), (2_000, span), (200_000, span), (3, number), (17e6, number)])
def test_labels_of_the_axis_are_inside(most, shown) -> None:
    """A long one moves the axis to the right: "16 min 40 s" began left of the picture, and read "6 min 40 s"."""
    drawn = str(plot([Point(0, most), Point(30, most / 2)], 0, 60, title="lag", shown=shown))

    labels = re.findall(r'<text class="tick end" x="(\d+)" y="[\d.]+">([^<]*)<', drawn)
    assert len(labels) >= 2
    assert all(float(x) - 6.5 * len(text) >= 0 for x, text in labels), labels
    grid = {float(x) for x in re.findall(r'class="grid" x1="(\d+)"', drawn)}
    assert grid == {float(labels[0][0]) + 6}
