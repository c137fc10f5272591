"""Division of ranges into splits."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnout.runtime.splits import even_spans


@given(start=st.integers(0, 2**62), length=st.integers(0, 10**9), most=st.integers(0, 64))
def test_spans_cover_the_range_without_gap_or_overlap(start: int, length: int, most: int) -> None:
    """They differ in length by one at most, and none is shorter than 10,000 unless it is the only one."""
    spans = even_spans(start, start + length, most)

    assert spans[:1] == ([(start, spans[0][1])] if length else [])
    assert [high for _, high in spans[-1:]] == ([start + length] if length else [])
    assert all(high == low for (_, high), (low, _) in pairwise(spans))
    lengths = [high - low for low, high in spans]
    assert len(spans) <= max(1, most)
    assert max(lengths, default=0) - min(lengths, default=0) <= 1
    assert len(spans) <= 1 or min(lengths) >= 10_000
