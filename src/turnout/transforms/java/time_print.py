"""Printing times as ``java.text.SimpleDateFormat`` does: in UTC, in English."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import cached_property

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.transforms.java.calendar import CUTOVER_DAY, CUTOVER_YEAR, Date, date_of, days_of, on_or_before
from turnout.transforms.java.date_pattern import MONTHS, WEEKDAYS, Letters, Token, parse_java_time

_UNIX = date(1970, 1, 1).toordinal()
_QUICK_FROM = -12_212_553_600_000
"""1583-01-01: from here on to the end of the year 9999 Java's calendar is Python's."""

_QUICK_TO = 253_402_300_800_000
_NUMBERS = {"y": 0, "M": 1, "L": 1, "d": 2, "H": 3, "m": 4, "s": 5, "S": 6}
"""Letters that print a plain number, and its index among those of the fast path."""

_NAMES = {"MMM": 7, "LLL": 7, "MMMM": 8, "LLLL": 8, "EEE": 9, "EE": 9, "E": 9, "EEEE": 10}
_ZONES = {"X": "Z", "XX": "Z", "XXX": "Z", "z": "UTC", "Z": "+0000"}

_UNITS = {
    "S": 1,
    "s": 1000,
    "m": 60_000,
    "H": 3_600_000,
    "k": 3_600_000,
    "K": 3_600_000,
    "h": 3_600_000,
    "a": MILLISECONDS_PER_DAY // 2,
}


def time_unit(pattern: str) -> int:
    """Return the milliseconds within which all times print the same: a day for ``yyyyMMdd``.

    Raises:
        JavaTimeError: when Java would refuse the pattern.
    """
    letters = [token.letter for token in parse_java_time(pattern) if isinstance(token, Letters)]
    return min((_UNITS.get(letter, MILLISECONDS_PER_DAY) for letter in letters), default=MILLISECONDS_PER_DAY)


def time_printer(pattern: str) -> Callable[[int], str]:
    """Return a function that prints milliseconds since 1970 by *pattern*.

    Raises:
        JavaTimeError: when Java would refuse the pattern.
    """
    tokens = parse_java_time(pattern)

    def slow(millis: int) -> str:
        moment = _Moment(millis)
        return "".join(token if isinstance(token, str) else _field(token, moment) for token in tokens)

    return _quickened(tokens, slow) or slow


def _quickened(tokens: tuple[Token, ...], slow: Callable[[int], str]) -> Callable[[int], str] | None:
    """Return the same, with one formatting operation for the times of usual years; None if it has other letters."""
    parts: list[str] = []
    indexes: list[int] = []
    for token in tokens:
        letters = token if isinstance(token, str) else token.letter * token.count
        if isinstance(token, str):
            parts.append(token.replace("%", "%%"))
        elif letters in _ZONES:
            parts.append(_ZONES[letters])
        elif letters in _NAMES:
            parts.append("%s")
            indexes.append(_NAMES[letters])
        elif not token.is_number or token.letter not in _NUMBERS or letters == "yy":
            return None
        else:
            parts.append(f"%0{token.count}d")
            indexes.append(_NUMBERS[token.letter])
    template = "".join(parts)
    named = any(index >= 7 for index in indexes)

    def quick(millis: int) -> str:
        if not _QUICK_FROM <= millis < _QUICK_TO:
            return slow(millis)
        days, rest = divmod(millis, MILLISECONDS_PER_DAY)
        day = date.fromordinal(days + _UNIX)
        seconds, milli = divmod(rest, 1000)
        minutes, second = divmod(seconds, 60)
        items: tuple[object, ...] = (day.year, day.month, day.day, minutes // 60, minutes % 60, second, milli)
        if named:
            month, weekday = MONTHS[day.month - 1], WEEKDAYS[(days + 4) % 7]
            items = (*items, month[:3], month, weekday[:3], weekday)
        return template % tuple([items[index] for index in indexes])

    return quick


class _Moment:
    """A time as what letters print of it."""

    def __init__(self, millis: int) -> None:
        self.days, self.of_day = divmod(millis, MILLISECONDS_PER_DAY)
        self.hour = self.of_day // 3_600_000

    @cached_property
    def date(self) -> Date:
        return date_of(self.days)

    @cached_property
    def first_of_year(self) -> int:
        return _first_of(self.date.year)

    @cached_property
    def of_month(self) -> int:
        """Day of the month; the days 5 to 14 of October 1582 did not exist and are not counted."""
        return self.date.day - (10 if CUTOVER_DAY <= self.days <= CUTOVER_DAY + 16 else 0)

    @property
    def weekday(self) -> int:
        """Day of the week: Monday is 1, Sunday is 7."""
        return (self.days + 3) % 7 + 1

    @cached_property
    def saturday(self) -> int:
        """Saturday of the week; its year is the week year."""
        return on_or_before(self.days, 1) + 6

    @cached_property
    def week_year(self) -> int:
        return date_of(self.saturday).year if self.date.year > 0 else _week_year_before_christ(self)


def _first_of(year: int) -> int:
    """Return the day of 1 January of a year, counted from 1970."""
    return days_of(year, 1, 1, julian=year <= CUTOVER_YEAR)


def _week_year_before_christ(at: _Moment) -> int:
    """Return the week year for years before Christ, where Java uses the first Sunday of a wrong year."""
    year = at.date.year
    days_left = _first_of(year + 1) - at.days
    other = _first_of(-year)
    before_sunday = (on_or_before(other + 6, 1) - other) or 7
    own_sunday = on_or_before(at.first_of_year + 6, 1)
    return year + 1 if at.days >= own_sunday and days_left <= 7 - before_sunday else year


def _padded(number: int, width: int) -> str:
    return f"-{-number:0{width}d}" if number < 0 else f"{number:0{width}d}"


def _year(number: int, count: int) -> str:
    if count != 2:
        return _padded(number, count)
    return f"{'-' if number < 0 else ''}{abs(number) % 100:02d}"


def _field(token: Letters, at: _Moment) -> str:
    letter, count = token.letter, token.count
    match letter:
        case "a":
            return "AM" if at.hour < 12 else "PM"
        case "E":
            name = WEEKDAYS[at.weekday % 7]
            return name if count >= 4 else name[:3]
        case "G":
            return "AD" if at.date.year > 0 else "BC"
        case "M" | "L" if count >= 3:
            name = MONTHS[at.date.month - 1]
            return name if count >= 4 else name[:3]
        case "X":
            return "Z"
        case "z":
            return "Coordinated Universal Time" if count >= 4 else "UTC"
        case "Z":
            return "+0000"
        case "y":
            year = at.date.year if at.date.year > 0 else 1 - at.date.year
            return _year(year, count)
        case "Y":
            return _year(at.week_year, count)
    return _padded(_number(letter, at), count)


def _number(letter: str, at: _Moment) -> int:
    """Return the number printed for a letter that is always numeric."""
    match letter:
        case "H":
            return at.hour
        case "k":
            return at.hour or 24
        case "K":
            return at.hour % 12
        case "h":
            return at.hour % 12 or 12
        case "m":
            return at.of_day // 60_000 % 60
        case "s":
            return at.of_day // 1000 % 60
        case "S":
            return at.of_day % 1000
        case "u":
            return at.weekday
    return _number_of_date(letter, at)


def _number_of_date(letter: str, at: _Moment) -> int:
    match letter:
        case "M" | "L":
            return at.date.month
        case "d":
            return at.date.day
        case "D":
            return at.days - at.first_of_year + 1
        case "F":
            return (at.of_month - 1) // 7 + 1
        case "W":
            first = at.days - at.of_month + 1
            return (on_or_before(at.days, 1) - on_or_before(first, 1)) // 7 + 1
    first = _first_of(date_of(at.saturday).year)
    return (at.saturday - 6 - on_or_before(first, 1)) // 7 + 1
