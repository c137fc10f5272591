"""Mapping functions."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from turnout.subjects import SubjectTransform
from turnout.subjects.functions import FUNCTIONS
from turnout.subjects.tokens import decode, encode


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
