"""Durations as text."""

from __future__ import annotations

import pytest

from turnout.server.durations import seconds_of


@pytest.mark.parametrize(("written", "seconds"), [(30, 30.0), ("250ms", 0.25), ("1.5 m", 90.0), ("7d", 604800.0)])
def test_spans_are_written_as_people_do(written: object, seconds: float) -> None:
    """A number without a unit is seconds."""
    assert seconds_of(written) == seconds


@pytest.mark.parametrize("written", ["", "m", "-1s", "1 fortnight", True, None])
def test_what_is_no_span_is_refused(written: object) -> None:
    """With examples of what is one."""
    with pytest.raises(ValueError, match="expected a span"):
        seconds_of(written)
