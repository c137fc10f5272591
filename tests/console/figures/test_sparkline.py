"""Lines without axes."""

from __future__ import annotations

from turnout.console.figures.sparkline import sparkline


def test_lines_share_a_scale() -> None:
    """Half of the largest is in the middle; a line of zeros and one of a single value are drawn too."""
    drawn = str(sparkline([[0, 10], [5, 5]], "a & b"))

    assert drawn.count("<polyline") == 2
    assert "0.0,27.0 120.0,1.0" in drawn
    assert "0.0,14.0 120.0,14.0" in drawn
    assert "a &amp; b" in drawn
    assert "nan" not in str(sparkline([[0], []], ""))
