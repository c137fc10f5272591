"""Dates and times as texts, by column and one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs.json_nodes import dates_as_text, timestamps_as_text
from turnout.records import Moment
from turnout.records.text import iso_of

FIRST = -62_135_596_800_000
"""Milliseconds: the year 1 begins."""
LAST = 253_402_300_799_999
"""Milliseconds: the year 9999 ends."""

edges = st.sampled_from([FIRST, FIRST - 1, LAST, LAST + 1, 0, -1, FIRST - 31_622_400_000])
common = st.integers(FIRST, LAST)
anything = st.integers(-(2**62), 2**62)


@pytest.mark.parametrize("moments", [common, common | edges, common | anything])
@given(data=st.data())
def test_a_column_is_written_as_its_moments_are(moments: st.SearchStrategy[int], data: st.DataObject) -> None:
    """Whether few or many are different, and in years of four digits or of others; nulls stay."""
    different = data.draw(st.lists(st.none() | moments.map(Moment), min_size=1, max_size=12))
    column = data.draw(st.lists(st.sampled_from(different), max_size=30))
    expected = [None if moment is None else iso_of(moment) for moment in column]

    assert timestamps_as_text(column) == expected
    assert dates_as_text(column) == [text and text.partition("T")[0] for text in expected]


def test_how_it_looks() -> None:
    """ISO 8601 with milliseconds, in UTC; a sign where the year has not four digits."""
    column = [Moment(1_356_998_400_123), None, Moment(LAST + 1), Moment(FIRST - 31_622_400_001)]

    assert timestamps_as_text(column[:2]) == ["2013-01-01T00:00:00.123Z", None]
    assert timestamps_as_text(column[2:]) == ["+10000-01-01T00:00:00.000Z", "-0001-12-31T23:59:59.999Z"]
    assert dates_as_text(column) == ["2013-01-01", None, "+10000-01-01", "-0001-12-31"]
