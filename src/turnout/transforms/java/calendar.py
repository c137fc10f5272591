"""Java's calendar (``java.util.GregorianCalendar``) in UTC: Julian before 1582-10-15, Gregorian from then on.

Days count from 1970-01-01; years are astronomical (0 is 1 BC); weeks begin on Sunday and the first one of a year is the
one with its 1 January, as in the English locale.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

"""Milliseconds."""

CUTOVER_DAY = -141_427
"""1582-10-15: the first day of the Gregorian calendar."""

CUTOVER_YEAR = 1582

_UNIX = date(1970, 1, 1).toordinal()
_LAST = date.max.toordinal() - _UNIX


class Date(NamedTuple):
    """A day of a year; month and day count from 1."""

    year: int
    month: int
    day: int


def wrapped(number: int, bits: int) -> int:
    """Return the low bits of a number, as a signed number of that width: what Java's integers do when they overflow."""
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if low >> bits - 1 else low


def days_of(year: int, month: int, day: int, *, julian: bool) -> int:
    """Return the days since 1970 of a date; month and day may be outside their ranges."""
    # Months are counted from March, so that the leap day is a year's last.
    y, m = divmod(year * 12 + month - 3, 12)
    of_year = (m * 153 + 2) // 5 + day - 1
    if julian:
        return y * 365 + y // 4 + of_year - 719_470
    return y * 365 + y // 4 - y // 100 + y // 400 + of_year - 719_468


def date_of(days: int) -> Date:
    """Return the date of a day, in the calendar that was in force."""
    if CUTOVER_DAY <= days <= _LAST:
        modern = date.fromordinal(days + _UNIX)
        return Date(modern.year, modern.month, modern.day)
    if days < CUTOVER_DAY:
        since = days + 719_470
        y = (4 * since + 3) // 1461
        of_year = since - (y * 365 + y // 4)
    else:
        since = days + 719_468
        era, of_era = divmod(since, 146_097)
        y_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        y = era * 400 + y_of_era
        of_year = of_era - (y_of_era * 365 + y_of_era // 4 - y_of_era // 100)
    m = (5 * of_year + 2) // 153
    return Date(y + m // 10, m + 3 - m // 10 * 12, of_year - (m * 153 + 2) // 5 + 1)


def month_length(year: int, month: int, *, julian: bool) -> int:
    """Return the number of days of a month."""
    return days_of(year, month + 1, 1, julian=julian) - days_of(year, month, 1, julian=julian)


def on_or_before(day: int, weekday: int) -> int:
    """Return the last day up to *day* that is that weekday; 1 is Sunday, 7 Saturday."""
    return day - (day + 5 - weekday) % 7
