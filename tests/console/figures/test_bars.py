"""Bar charts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.console.figures.bars import bars, counted


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
