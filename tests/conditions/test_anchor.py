"""Anchors: the texts that a message can be looked up by."""

from __future__ import annotations

import pytest

from turnout.conditions import exists, kiwi
from turnout.conditions.anchor import anchors_of, implies


@pytest.mark.parametrize(
    ("pattern", "anchors"),
    [
        ("abc", {("=", "abc")}),
        ("abc*", {("^", "abc")}),
        ("*abc", {("$", "abc")}),
        ("*", {("has", "")}),
    ],
)
def test_a_short_pattern_has_one_anchor_that_decides_it(pattern: str, anchors: set[tuple[str, str]]) -> None:
    """Nothing is left to verify of a message that has it."""
    leaf = kiwi("k", pattern)
    found = list(anchors_of(leaf))

    assert anchors <= {(anchor.kind.op, anchor.text) for anchor in found}
    assert any(implies(anchor, leaf) for anchor in found)


def test_a_text_in_the_middle_is_verified() -> None:
    """The anchor is a run of three characters, and the value has to be looked at."""
    leaf = kiwi("k", "*abcd*")
    found = list(anchors_of(leaf))

    assert found
    assert not any(implies(anchor, leaf) for anchor in found)


def test_existence_needs_nothing_but_the_key() -> None:
    """Its anchor decides it."""
    (anchor,) = anchors_of(exists("k"))

    assert (anchor.key, anchor.kind.op) == ("k", "has")
    assert implies(anchor, exists("k"))
