"""Java's calendar on columns, in UTC: Julian before 1582-10-15, Gregorian from then on, in whole days since 1970."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = [
    "CUTOVER_DAY", "DAY", "FIRST_MODERN", "Bind", "Date", "date_of", "days_of", "div", "floor_days", "long",
    "on_or_before", "sunday",
]  # fmt: skip

Bind: TypeAlias = Callable[[Column], Column]
"""Gives a column a name, so that it can be used in several places and is computed once (`Step.bind`)."""

DAY = 86_400_000
_BIAS = 1 << 40
CUTOVER_DAY = -141_427
"""1582-10-15 in days since 1970: the first day of the Gregorian calendar."""

FIRST_MODERN = -12_212_553_600_000
"""1583-01-01 in milliseconds since 1970: from here on Java's calendar and Spark's are one."""


def long(number: int) -> Column:
    """A literal of 64 bits."""
    return F.lit(number).cast("bigint")


def div(value: Column, by: int) -> Column:
    """Division that rounds down, of numbers far from the ends of 64 bits; it uses the value once."""
    return F.call_function("div", value + long(by * _BIAS), long(by)) - long(_BIAS)


def floor_days(millis: Column) -> Column:
    """Days since 1970 of any number of milliseconds."""
    return F.call_function("div", millis, long(DAY)) - F.when(millis % DAY < 0, long(1)).otherwise(long(0))


def days_of(year: Column, month: Column, day: Column, bind: Bind) -> Column:
    """Days since 1970 of a date whose month and day may lie outside their ranges."""
    # Months are counted from March, so that the leap day is a year's last.
    shifted = bind(year * 12 + (month - 3))
    y = div(shifted, 12)
    m = F.pmod(shifted, long(12))
    of_year = div(m * 153 + 2, 5) + (day - 1)
    julian = y * 365 + div(y, 4) + of_year - 719_470
    gregorian = bind(y * 365 + div(y, 4) - div(y, 100) + div(y, 400) + of_year - 719_468)
    return F.when(gregorian >= CUTOVER_DAY, gregorian).otherwise(julian)


@dataclass(frozen=True)
class Date:
    """A year (astronomical: 0 is 1 BC), a month from 1 to 12, and a day from 1 on."""

    year: Column
    month: Column
    day: Column


def date_of(days: Column, bind: Bind) -> Date:
    """The date of days since 1970."""
    civil = F.date_from_unix_date(days.try_cast("int"))
    early = days < CUTOVER_DAY
    # Null for the others, for which the arithmetic then costs next to nothing.
    c = bind(F.when(early, days + 719_470))
    y = bind(div(c * 4 + 3, 1461))
    e = bind(c - div(y * 1461, 4))
    m = bind(div(e * 5 + 2, 153))
    old_month = m + 3 - div(m, 10) * 12
    old_year = y + div(m, 10)
    return Date(
        bind(F.when(early, old_year).otherwise(F.year(civil))),
        bind(F.when(early, old_month).otherwise(F.month(civil))),
        bind(F.when(early, e - div(m * 153 + 2, 5) + 1).otherwise(F.day(civil))),
    )


def sunday(days: Column) -> Column:
    """The Sunday on or before a day, as days since 1970."""
    return days - F.pmod(days + 4, long(7))


def on_or_before(days: Column, weekday: Column) -> Column:
    """The last day up to *days* that is that weekday; 1 is Sunday."""
    return days - F.pmod(days + 5 - weekday, long(7))
