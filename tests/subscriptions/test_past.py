"""Past states of a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from turnout.errors import HistoryForgottenError
from turnout.subscriptions.past import Span, retention_of, time_of


@pytest.mark.parametrize("text", ["", "12", "h", "-1h", "1w", "1h30m", "٣h"])
def test_texts_that_are_no_retention(text: str) -> None:
    """A number with one unit, 0 or forever."""
    assert retention_of(text) is None


def test_a_time_beyond_the_calendar_is_its_end() -> None:
    """Stores hold microseconds, which reach further."""
    assert time_of(1 << 62).year == 9999
    assert time_of(-(1 << 62)).year == 1


def test_a_time_is_that_of_the_last_revision_not_later() -> None:
    """A state older than the retention is an error that names the retention."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    span = Span(3, 5, int(start.timestamp() * 1e6))
    recorded = {3: start, 4: start + timedelta(hours=1), 5: start + timedelta(hours=2)}

    def last_until(microseconds: int) -> int | None:
        fitting = [number for number, time in recorded.items() if time.timestamp() * 1e6 <= microseconds]
        return max(fitting, default=None)

    assert span.revision(4, last_until) == 4
    assert span.revision(start + timedelta(minutes=90), last_until) == 4
    with pytest.raises(HistoryForgottenError, match="revisions 3"):
        span.revision(2, last_until)
    with pytest.raises(HistoryForgottenError, match="revisions 3"):
        span.revision(start - timedelta(seconds=1), last_until)
