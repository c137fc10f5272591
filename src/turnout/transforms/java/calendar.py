"""Java's calendar: days, time zones, the fields of a date, and the letters of SimpleDateFormat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from turnout.base.clocks import MILLISECONDS_PER_DAY

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


_ZONES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("America/New_York", ("EST", "Eastern Standard Time"), ("EDT", "Eastern Daylight Time")),
    ("America/Chicago", ("CST", "Central Standard Time"), ("CDT", "Central Daylight Time")),
    ("America/Denver", ("MST", "Mountain Standard Time"), ("MDT", "Mountain Daylight Time")),
    ("America/Los_Angeles", ("PST", "Pacific Standard Time"), ("PDT", "Pacific Daylight Time")),
    ("America/Anchorage", ("AKST", "Alaska Standard Time"), ("AKDT", "Alaska Daylight Time")),
    ("Pacific/Honolulu", ("HST", "Hawaii-Aleutian Standard Time"), ()),
    ("America/Halifax", ("AST", "Atlantic Standard Time"), ("ADT", "Atlantic Daylight Time")),
    ("America/St_Johns", ("NST", "Newfoundland Standard Time"), ("NDT", "Newfoundland Daylight Time")),
    ("America/Sao_Paulo", ("BRT", "Brasilia Standard Time"), ()),
    ("America/Bogota", ("COT", "Colombia Standard Time"), ()),
    ("America/Santiago", ("CLT", "Chile Standard Time"), ("CLST", "Chile Summer Time")),
    ("America/Lima", ("PET", "Peru Standard Time"), ()),
    ("Europe/Lisbon", ("WET", "Western European Standard Time"), ("WEST", "Western European Summer Time")),
    ("Europe/London", (), ("BST", "British Summer Time")),
    ("Europe/Paris", ("CET", "Central European Standard Time"), ("CEST", "Central European Summer Time")),
    ("Europe/Bucharest", ("EET", "Eastern European Standard Time"), ("EEST", "Eastern European Summer Time")),
    ("Europe/Minsk", ("MSK", "Moscow Standard Time"), ()),
    ("MET", ("MET", "Middle Europe Time"), ("MEST", "Middle Europe Summer Time")),
    ("Africa/Harare", ("CAT", "Central Africa Time"), ()),
    ("Africa/Addis_Ababa", ("EAT", "East Africa Time"), ()),
    ("Africa/Lagos", ("WAT", "West Africa Standard Time"), ()),
    ("Africa/Johannesburg", ("SAST", "South Africa Standard Time"), ()),
    ("Asia/Jerusalem", ("IST", "Israel Standard Time"), ("IDT", "Israel Daylight Time")),
    ("Asia/Kolkata", ("India Standard Time",), ()),
    ("Asia/Oral", ("West Kazakhstan Time",), ()),
    ("Asia/Jakarta", ("Western Indonesia Time", "West Indonesia Summer Time"), ()),
    ("Asia/Dubai", ("GST", "Gulf Standard Time"), ()),
    ("Asia/Karachi", ("PKT", "Pakistan Standard Time"), ()),
    ("Asia/Shanghai", ("China Standard Time",), ()),
    ("Asia/Hong_Kong", ("HKT", "Hong Kong Standard Time"), ()),
    ("Asia/Singapore", ("SGT", "Singapore Standard Time"), ()),
    ("Asia/Tokyo", ("JST", "Japan Standard Time"), ()),
    ("Asia/Seoul", ("KST", "Korean Standard Time"), ()),
    ("Australia/Sydney", ("AEST", "Australian Eastern Standard Time"), ("AEDT", "Australian Eastern Daylight Time")),
    ("Australia/Darwin", ("ACST", "ACDT", "Australian Central Standard Time"), ()),
    ("Australia/Perth", ("AWST", "Australian Western Standard Time"), ()),
    ("Pacific/Auckland", ("NZST", "New Zealand Standard Time"), ("NZDT", "New Zealand Daylight Time")),
)  # fmt: skip

_HOUR = 3_600_000
_EPOCH = datetime(1970, 1, 1)
_FIRST = -2_208_988_800_000
"""1900: Java knows no earlier change of a zone's offset."""
_LAST_WALL = 253_402_300_799_999


class ZoneName(NamedTuple):
    """A name of a zone's standard time, or of its time in summer."""

    name: str
    zone: str
    summer: bool


NAMES = sorted(
    (
        ZoneName(name.upper(), zone, several is summer)
        for zone, standard, summer in _ZONES
        for several in (standard, summer)
        for name in several
    ),
    key=lambda zone: -len(zone.name),
)
_MAX_NAME_CHARACTERS = len(NAMES[0].name)


def zone_name_at(text: str, at: int) -> tuple[int, int] | None:
    """Return the number of the zone name at *at*, in any case, and its end offset; None if none matches."""
    upper = text[at : at + _MAX_NAME_CHARACTERS].upper()
    for number, zone in enumerate(NAMES):
        if upper.startswith(zone.name):
            return number, at + len(zone.name)
    return None


def offset_of(number: int, wall: int) -> int:
    """Return a zone's offset from UTC, in milliseconds, at the local time *wall* (milliseconds since 1970).

    Args:
        number: number of the name.
        wall: the time that the clocks show.
    """
    name = NAMES[number]
    shown = _EPOCH + timedelta(milliseconds=min(max(wall, _FIRST), _LAST_WALL))
    local = shown.replace(tzinfo=_zone(name.zone))
    offset, daylight = local.utcoffset(), local.dst()
    assert offset is not None
    assert daylight is not None
    return int((offset - daylight) / timedelta(milliseconds=1)) + _HOUR * name.summer


@lru_cache(maxsize=len(_ZONES))
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


_DIGITS = "0123456789"
_UTC_NAMES = ("COORDINATED UNIVERSAL TIME", "UTC", "GREENWICH MEAN TIME", "GMT")


def read_iso_zone(text: str, at: int, count: int) -> tuple[int, int] | None:
    """Return the milliseconds east of a zone of *count* letters ``X`` at *at*, and its end; None if invalid."""
    if text[at] == "Z":
        return 0, at + 1
    return _offset(text, at, count, colon=count == 3)


def read_zone(text: str, start: int, at: int) -> tuple[int, int] | None:
    """Return the zone of the letters ``z`` or ``Z``: an offset, ``GMT`` with an offset, or a name of UTC.

    Args:
        text: the text.
        start: end of the last part of the pattern.
        at: the same behind blanks.
    """
    if text[at] in "+-":
        return _offset(text, at, 0, colon=False)
    if text[start : start + 3].upper() == "GMT":
        if text[start + 3 : start + 4] in ("+", "-"):
            return _offset(text, start + 3, 0, colon=True)
        return 0, start + 3
    upper = text[at : at + 26].upper()
    name = next((name for name in _UTC_NAMES if upper.startswith(name)), None)
    return None if name is None else (0, at + len(name))


def _offset(text: str, at: int, count: int, *, colon: bool) -> tuple[int, int] | None:
    """Hours and minutes behind a sign.

    Args:
        text: the text.
        at: offset of the sign.
        count: count of the letters ``X``; one means hours alone. 0 for ``z`` and ``Z``.
        colon: there is one between hours and minutes; the hours of ``GMT+1:00`` may then be one digit.
    """
    sign = {"+": 1, "-": -1}.get(text[at : at + 1])
    if sign is None:
        return None
    at += 1
    size = 2 if text[at + 1 : at + 2] in _DIGITS and text[at + 1 : at + 2] else 1
    if size == 1 and (count > 0 or not colon):
        return None
    hours = _digits(text[at : at + size], size)
    at += size
    if hours is None or hours > 23:
        return None
    if count == 1:
        return sign * hours * 3_600_000, at
    if colon:
        if text[at : at + 1] != ":":
            return None
        at += 1
    minutes = _digits(text[at : at + 2], 2)
    if minutes is None or minutes > 59:
        return None
    return sign * (hours * 60 + minutes) * 60_000, at + 2


def _digits(text: str, size: int) -> int | None:
    return int(text) if len(text) == size and all(char in _DIGITS for char in text) else None


MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

NUMERIC = frozenset("yYdDFwWuHkKhmsS")
"""Letters that are numbers however often they are repeated; ``M`` and ``L`` are up to twice."""

_LETTERS = frozenset("GyYMLdDFwWEuaHkKhmsSzZX")


class JavaTimeError(ValueError):
    """Raised when Java would refuse the pattern."""


@dataclass(frozen=True, slots=True)
class Letters:
    """A run of one pattern letter, as ``yyyy``."""

    letter: str
    count: int

    @property
    def is_number(self) -> bool:
        """True if the field is printed and parsed as a number."""
        return self.letter in NUMERIC or (self.letter in "ML" and self.count < 3)


Token = Letters | str
"""A run of letters, or text that stands for itself."""


def parse_java_time(pattern: str) -> tuple[Token, ...]:
    """Return the tokens of *pattern*; neighbouring literal texts are one token.

    Raises:
        JavaTimeError: for a letter without meaning, a quote that is not closed, or ``XXXX``.
    """
    tokens: list[Token] = []
    literal: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            text, at = _quoted(pattern, at)
            literal.append(text)
        elif char.isascii() and char.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == char:
                end += 1
            _flush(tokens, literal)
            tokens.append(_letters(char, end - at))
            at = end
        else:
            literal.append(char)
            at += 1
    _flush(tokens, literal)
    return tuple(tokens)


def java_time_warning(pattern: str) -> str | None:
    """Return why a valid pattern probably means something else than was intended; None if nothing shows it.

    >>> java_time_warning("YYYY-MM-dd"), java_time_warning("yyyy-MM-dd'T'HH:mm")
    ("'YYYY' is the year of the week, another one around new year: 'yyyy' is the year", None)
    """
    try:
        found = {
            token.letter: token.letter * token.count for token in parse_java_time(pattern) if isinstance(token, Letters)
        }
    except JavaTimeError:
        return None
    if "Y" in found and "w" not in found:
        return f"{found['Y']!r} is the year of the week, another one around new year: 'yyyy' is the year"
    if "D" in found and not found.keys().isdisjoint("ML"):
        return f"{found['D']!r} is the day of the year: 'dd' is the day of the month"
    if "m" in found and found.keys().isdisjoint("HhKkML"):
        return f"{found['m']!r} is the minute: 'MM' is the month"
    if "h" in found and "a" not in found:
        return f"{found['h']!r} is from 1 to 12, and has no half of the day ('a') beside it: 'HH' is the hour"
    return None


def _flush(tokens: list[Token], literal: list[str]) -> None:
    text = "".join(literal)
    if text:
        tokens.append(text)
    literal.clear()


def _letters(char: str, count: int) -> Letters:
    if char not in _LETTERS:
        raise JavaTimeError(f"illegal pattern character {char!r}")
    if char == "X" and count > 3:
        raise JavaTimeError(f"invalid ISO 8601 zone: {'X' * count}")
    return Letters(char, count)


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """Return the text of the quotes that open at *at*, and where they end; two quotes in a row are one quote."""
    if pattern.startswith("''", at):
        return "'", at + 2
    text: list[str] = []
    at += 1
    while at < len(pattern):
        if pattern.startswith("''", at):
            text.append("'")
            at += 2
        elif pattern[at] == "'":
            return "".join(text), at + 1
        else:
            text.append(pattern[at])
            at += 1
    raise JavaTimeError("unterminated quote")


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
