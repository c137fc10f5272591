"""Fields that a chain moves, followed in both directions."""

from __future__ import annotations

from turnout.transforms.content_paths import Move, moved_back, moved_on


def test_moves_are_followed_both_ways() -> None:
    """A part of what moves goes with it, and what holds a part that moves is at both paths."""
    moves = [Move(("value", "a"), ("headers", "A")), Move(("value", "b"), ("value", "c"), copy=True)]

    assert moved_on(moves, ("value", "a", "x")) == {("headers", "A", "x")}
    assert moved_on(moves, ("value",)) == {("value",), ("headers", "A"), ("value", "c")}
    assert moved_on(moves, ("value", "b")) == {("value", "b"), ("value", "c")}
    assert moved_back(moves, ("value", "c")) == {("value", "c"), ("value", "b")}
    assert moved_back(moves, ("headers",)) == {("headers",), ("value", "a")}
