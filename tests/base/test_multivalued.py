"""Several values of a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.base.multivalued import MAX_VALUES, metadata_of, texts_or_none, values_at


@given(st.lists(st.none() | st.sampled_from("abc")))
def test_values_are_the_different_texts(texts: list[str | None]) -> None:
    """In the order in which they are first seen."""
    found = texts_or_none(texts)

    there = list(dict.fromkeys(text for text in texts if text is not None))
    assert list(values_at({} if found is None else {"key": found}, "key")) == there


def test_values_are_bounded() -> None:
    """A record with a million elements costs what one with a thousand does."""
    found = texts_or_none(str(number) for number in range(1_000_000))

    assert found == tuple(map(str, range(MAX_VALUES)))


def test_metadata_tells_whether_a_key_has_several() -> None:
    """Other metadata then use the shorter path."""
    assert type(metadata_of({"a": "x"})) is dict
    assert type(metadata_of({"a": "x", "b": ("y", "z")})) is not dict
