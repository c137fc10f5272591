"""Waits between attempts: the schedule with its jitter, and Retry-After."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from turnout.subscriptions.delivery_settings import DeliverySettings

_MAX_SECONDS: Final = 10**9
"""Seconds of the longest wait that is read; a longer one is this one."""

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FIXED_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{2}}) (?P<month>[A-Z][a-z]{{2}}) (?P<year>[0-9]{{4}}) {_TIME} (?:GMT|UTC|\+0000)"
)
_RFC850_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-(?P<month>[A-Z][a-z]{{2}})-(?P<year>[0-9]{{2}}) {_TIME} GMT"
)
_ASCTIME_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"
)
_DATES: Final = (_FIXED_DATE, _RFC850_DATE, _ASCTIME_DATE)
"""The forms of a date in HTTP (RFC 9110, 5.6.7): IMF-fixdate, and the obsolete ones of RFC 850 and of asctime."""


def delay_of(settings: DeliverySettings, failures: int, retry_after: float | None, draw: float) -> float | None:
    """Return the seconds until the next attempt; None if there is none.

    Args:
        settings: have the schedule.
        failures: number of attempts so far, from 1.
        retry_after: seconds requested by the endpoint; None for none.
        draw: random number from 0 to 1.

    >>> settings = DeliverySettings(retry=(5.0, 60.0), jitter=0.2)
    >>> delay_of(settings, 1, None, 0.5), delay_of(settings, 2, None, 1.0), delay_of(settings, 3, None, 0.5)
    (5.0, 72.0, None)
    >>> delay_of(settings, 1, 30.0, 0.5)
    30.0
    """
    if failures > len(settings.retry):
        return None
    delay = settings.retry[failures - 1] * (1 + settings.jitter * (2 * draw - 1))
    return delay if retry_after is None else max(delay, min(retry_after, settings.retry_after))


def seconds_of(retry_after: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After, as a number or as a date (RFC 9110, 10.2.3); None for any other text.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> seconds_of("120", now), seconds_of("Thu, 01 Jan 2026 00:01:00 GMT", now), seconds_of("soon", now)
    (120.0, 60.0, None)
    """
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        # Digits beyond the longest wait are not converted: int() refuses thousands of them.
        return float(
            _MAX_SECONDS
            if len(text.lstrip("0")) > len(str(_MAX_SECONDS))
            else min(int(text.lstrip("0") or "0"), _MAX_SECONDS)
        )
    moment = _date(text, now)
    return None if moment is None else min(max(0.0, (moment - now).total_seconds()), float(_MAX_SECONDS))


def _date(text: str, now: datetime) -> datetime | None:
    """Return the time of an HTTP date; None for a text that is none, and for a date that no calendar has."""
    match = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if match is None or match["month"] not in _MONTHS:
        return None
    year, second = int(match["year"]), int(match["second"])
    # The 61st second of a minute is a leap second.
    leap = second == 60
    fields = (int(match["day"]), int(match["hour"]), int(match["minute"]), 59 if leap else second)
    try:
        if len(match["year"]) == 2:
            # Two digits mean the last such year that is not more than 50 years ahead.
            year += (now.year + 50 - year) // 100 * 100
        moment = datetime(year, _MONTHS.index(match["month"]) + 1, *fields, tzinfo=UTC)
        return moment + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        return None
