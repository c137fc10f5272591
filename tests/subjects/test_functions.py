"""Mapping functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.subjects import SubjectTransform
from turnout.subjects.functions import FUNCTIONS
from turnout.subjects.pattern import decode, encode


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan")])
def test_a_draw_outside_its_range_is_refused(draw: float) -> None:
    """It would choose a bucket that does not exist."""
    with pytest.raises(ValueError, match="a draw is a number from 0"):
        SubjectTransform.parse("a", "b.{{random(3)}}").apply("a", draw)


def test_random_spreads_over_its_buckets() -> None:
    """Without a draw each call makes a new one."""
    transform = SubjectTransform.parse("a", "b.{{random(3)}}")

    assert {transform.apply("a") for _ in range(200)} == {"b.0", "b.1", "b.2"}


@given(
    st.binary(max_size=12).filter(lambda data: b"." not in data and data not in (b"", b"*", b">")), st.integers(1, 5)
)
def test_cuts_lose_no_byte(data: bytes, number: int) -> None:
    """The server cuts between any two bytes; what it cuts is still all there."""
    subject = decode(b"a." + data)
    for name in ("splitfromleft", "splitfromright", "slicefromleft", "slicefromright"):
        outcome = SubjectTransform.parse("a.*", f"{{{{{name}(1,{number})}}}}").apply(subject)

        assert encode(outcome).replace(b".", b"") == data


def test_the_parity_table_of_the_documentation_names_every_function() -> None:
    """docs/subjects.md cannot fall behind the table of functions."""
    page = (Path(__file__).parents[2] / "docs" / "subjects.md").read_text(encoding="utf-8")

    assert [f.name for f in FUNCTIONS if f"`{f.name}(" not in page.lower()] == []
