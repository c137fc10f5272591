"""Resolution of parsed fields to a time as in ``java.util.Calendar``: leniently, in UTC.

Fields are named by the letters of ``java.text.SimpleDateFormat``: ``G y Y M d D E F w W H h a m s S Z``. A month counts
from 0, a weekday from Sunday (1), ``a`` is 1 after noon, ``H`` counts from 0 to 23 and ``h`` from 0 to 11, ``Z`` is
milliseconds east. Their order in a dict is the order of reading: of fields that contradict
each other the later ones count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.transforms.java.calendar import (
    CUTOVER_DAY,
    CUTOVER_YEAR,
    date_of,
    days_of,
    month_length,
    on_or_before,
    wrapped,
)

_SUNDAY = 1


def millis_of(fields: Mapping[str, int]) -> int:
    """Milliseconds since 1970; missing fields are those of 1970-01-01T00:00."""
    plan = _plan(tuple(fields))
    day = _Day(fields, plan.day)
    if plan.of_day:
        hours = fields["H"] if plan.hours == "H" else fields.get("h", 0) + 12 * fields.get("a", 0)
        millis = ((hours * 60 + fields.get("m", 0)) * 60 + fields.get("s", 0)) * 1000 + fields.get("S", 0)
    else:
        millis = 0
    over, of_day = divmod(millis, MILLISECONDS_PER_DAY)
    if plan.by_week_year:
        day = _by_week_year(fields, before_christ=date_of(day.days(over)).year <= 0)
    # A day more is a day more in the calendar of the date, not across the change of calendars.
    return wrapped(day.days(over) * MILLISECONDS_PER_DAY + of_day - fields.get("Z", 0), 64)


class _Plan(NamedTuple):
    """Precedence of date fields, by the order in which they were read.

    Attributes:
        day: the letter that gives the day: ``d``, ``D``, ``w``, ``W`` or ``F`` (also for a weekday alone).
        hours: ``H``, or ``h`` with ``a``.
        of_day: there is a time of day.
        by_week_year: the year is a week year (``Y``).
    """

    day: str
    hours: str
    of_day: bool
    by_week_year: bool


@lru_cache(maxsize=1000)
def _plan(letters: tuple[str, ...]) -> _Plan:
    stamps = _Stamps(letters)
    return _Plan(_day_letter(stamps), _hours(stamps), not set(letters).isdisjoint("HhamsS"), stamps["Y"] > stamps["y"])


class _Stamps(dict[str, int]):
    """Order in which the fields were set, counted from 1; 0 for a field that was not set."""

    def __init__(self, letters: Iterable[str]) -> None:
        super().__init__((letter, at) for at, letter in enumerate(letters, 1))

    def __missing__(self, _letter: str) -> int:
        return 0

    def both(self, one: str, other: str) -> int:
        """Return the later stamp of two fields, 0 unless both were set."""
        return max(self[one], self[other]) if self[one] and self[other] else 0


def _hours(stamps: _Stamps) -> str:
    half_day = stamps.both("h", "a")
    best = max(half_day, stamps["H"]) or max(stamps["h"], stamps["a"])
    return "H" if best and best == stamps["H"] else "h"


def _day_letter(stamps: _Stamps) -> str:
    """Return the letter that determines the day."""
    groups = {
        "d": stamps["d"],
        "W": stamps.both("W", "E"),
        "F": stamps.both("F", "E"),
        "D": stamps["D"],
        "w": stamps.both("w", "E"),
    }
    best = max(groups.values())
    if not best:
        groups = {"d": 0, "W": stamps["W"], "F": max(stamps["F"], stamps["E"]), "D": 0, "w": stamps["w"]}
        best = max(groups.values())
        if not best:
            return "d"
    if best == groups["d"]:
        return "d"
    for letter in "WF":
        if best == groups[letter] and stamps[letter] >= stamps["w"]:
            if groups["W"] == groups["F"]:
                return "W" if stamps["W"] >= stamps["F"] else "F"
            return "W" if best == groups["W"] else "F"
    return "D" if best == groups["D"] else "w"


class _Day:
    """Day that is determined by fields."""

    def __init__(self, fields: Mapping[str, int], kind: str) -> None:
        self.fields = fields
        self.kind = kind
        year = fields.get("y", 1970)
        self.year = 1 - year if fields.get("G", 1) == 0 else year

    def days(self, over: int = 0) -> int:
        """Return the days since 1970, with as many more as the time of day makes it."""
        if self.year > CUTOVER_YEAR:
            modern = self._in(julian=False) + over
            if modern >= CUTOVER_DAY:
                return modern
            return self._settled(modern, self._in(julian=True) + over)
        old = self._in(julian=True) + over
        if self.year < CUTOVER_YEAR:
            if old < CUTOVER_DAY:
                return old
            return self._settled(old, old)
        return self._settled(self._in(julian=False) + over, old)

    def _settled(self, modern: int, old: int) -> int:
        """Choose between the calendars near the change from one to the other."""
        if self.kind in "Dw":
            return old
        return modern if modern >= CUTOVER_DAY else old

    def _in(self, *, julian: bool) -> int:
        """Return the day in one of the calendars."""
        fields = self.fields
        if self.kind in "Dw":
            first = days_of(self.year, 1, 1, julian=julian)
            if self.kind == "D":
                return first + fields["D"] - 1
            day = on_or_before(_first_week(first) + 6, fields.get("E", _SUNDAY))
            return day + 7 * (fields["w"] - 1)
        years, month = divmod(fields.get("M", 0), 12)
        year = wrapped(self.year + years, 32)
        first = days_of(year, month + 1, 1, julian=julian)
        if self.kind == "d":
            return first + fields.get("d", 1) - 1
        if self.kind == "W":
            day = on_or_before(_first_week(first) + 6, fields.get("E", _SUNDAY))
            return day + wrapped(7 * (fields["W"] - 1), 32)
        week = fields.get("F", 1)
        weekday = fields.get("E", _SUNDAY)
        if week >= 0:
            return on_or_before(first + wrapped(7 * week, 32) - 1, weekday)
        length = month_length(year, month + 1, julian=julian and year <= CUTOVER_YEAR)
        return on_or_before(first + wrapped(length + 7 * (week + 1), 32) - 1, weekday)


def _first_week(first: int) -> int:
    """Return the Sunday that begins the week with the first day of a year or month."""
    return on_or_before(first, _SUNDAY)


def _by_week_year(fields: Mapping[str, int], *, before_christ: bool) -> _Day:
    """Return the day in a week of a week year (``Y``), of the era given by the other fields."""
    week, weekday = fields.get("w", 1), fields.get("E", _SUNDAY)
    if not 1 <= weekday <= 7:
        # Only the letter u gives such numbers, and its 1 is Monday.
        week, weekday = week + (weekday - 1) // 7, (weekday - 1) % 7 + 1
        weekday = weekday % 7 + 1
    first = _Day({"G": 0 if before_christ else 1, "y": fields["Y"], "w": 1, "E": _SUNDAY}, "w").days()
    # The calendar holds it as milliseconds meanwhile.
    first = wrapped(first * MILLISECONDS_PER_DAY, 64) // MILLISECONDS_PER_DAY
    # Named fields and not a number of days: the time of day is added to that date.
    date = date_of(first + wrapped(weekday - _SUNDAY + 7 * (week - 1), 32))
    return _Day({"y": date.year, "M": date.month - 1, "d": date.day}, "d")
