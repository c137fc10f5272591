"""Waits between attempts: the schedule with its jitter, and Retry-After."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime

from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.untrusted import decimal


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
    """Return the seconds of a Retry-After, as a number or as a date (RFC 9110, 10.2.3); None for neither.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> seconds_of("120", now), seconds_of("Thu, 01 Jan 2026 00:01:00 GMT", now), seconds_of("soon", now)
    (120.0, 60.0, None)
    """
    number = decimal(retry_after.strip())
    if number is not None:
        return float(min(number, 10**9))
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (moment - now).total_seconds()) if moment.tzinfo is not None else None
