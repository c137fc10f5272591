"""Differences of texts, line by line."""

from __future__ import annotations

from turnout.console.differences import difference


def test_equal_texts_have_no_difference() -> None:
    """A line break at the end makes no difference either."""
    assert difference("a\nb", "a\nb\n") == []


def test_lines_far_from_a_change_are_left_out() -> None:
    """Three lines stay around it."""
    before = [f"line {number}" for number in range(20)]
    after = [*before[:10], "new", *before[11:]]
    lines = difference("\n".join(before), "\n".join(after))

    assert [line.text for line in lines if line.kind in ("added", "removed")] == ["-line 10", "+new"]
    assert len([line for line in lines if line.kind == "same"]) == 6
