"""Repeatable random choices."""

from __future__ import annotations

import pytest

from turnout.subjects import SubjectTransform


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan")])
def test_a_draw_outside_its_range_is_refused(draw: float) -> None:
    """It would choose a bucket that does not exist."""
    with pytest.raises(ValueError, match="a draw is a number from 0"):
        SubjectTransform.parse("a", "b.{{random(3)}}").apply("a", draw)


def test_random_spreads_over_its_buckets() -> None:
    """Without a draw each call makes a new one."""
    transform = SubjectTransform.parse("a", "b.{{random(3)}}")

    assert {transform.apply("a") for _ in range(200)} == {"b.0", "b.1", "b.2"}
