"""Times since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from turnout.base.clocks import EPOCH, microseconds_since_epoch


@given(st.datetimes())
def test_microseconds_are_exact(time: datetime) -> None:
    """Over the whole calendar, to the microsecond; a time without a zone is UTC."""
    aware = time.replace(tzinfo=UTC)

    assert EPOCH + timedelta(microseconds=microseconds_since_epoch(time)) == aware
    assert microseconds_since_epoch(aware) == microseconds_since_epoch(time)


def test_zones_are_respected() -> None:
    """An hour east of UTC is an hour earlier."""
    east = datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))

    assert microseconds_since_epoch(east) == 0
