"""``java.text.SimpleDateFormat`` on columns: the lenient parsing and the printing that Connect does, in UTC.

Times are epoch milliseconds. The locale is en_US, as in Connect's own images: weeks begin on Sunday, the first of a
year holds its 1 January.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.java_calendar import (
    CUTOVER_DAY,
    DAY,
    FIRST_MODERN,
    Bind,
    Date,
    date_of,
    days_of,
    div,
    floor_days,
    long,
    on_or_before,
    sunday,
)
from turnout.transforms.java_time import Letters, Token, parse_java_time

__all__ = ["Parsed", "format_millis", "parse_millis"]

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ZONES = {"z": "UTC", "Z": "+0000", "X": "Z"}
_LIMITS = {"y": 290_000_000, "M": 3 * 10**9, "L": 3 * 10**9, "S": 10**15}
_NUMERIC = frozenset("yYdDFwWuHhKkmsS")
_PLAIN = frozenset(("yyyy", "MM", "dd", "HH", "mm", "ss", "SSS"))


def _unbound(column: Column) -> Column:
    return column


# --- printing -----------------------------------------------------------------------------------------------------


def format_millis(millis: Column, pattern: str, bind: Bind = _unbound) -> Column:
    """The text of the times in *millis*; null where they are null."""
    tokens = parse_java_time(pattern)
    millis = bind(millis)
    if not all(isinstance(token, str) or token.letter * token.count in _PLAIN for token in tokens):
        return _printed(tokens, _Moment(millis, bind))
    # Spark's own formatter agrees with Java's for these letters in the years from 1583 to 9999, and is quicker.
    modern = millis.between(long(FIRST_MODERN), long(253_402_300_799_999))
    quoted = "".join(_quoted(token) if isinstance(token, str) else token.letter * token.count for token in tokens)
    others = _Moment(bind(F.when(~modern, millis)), bind)
    return F.when(modern, F.date_format(F.timestamp_millis(millis), quoted)).otherwise(_printed(tokens, others))


class _Moment:
    """A time as what letters print of it; what several of them need is bound once."""

    def __init__(self, millis: Column, bind: Bind) -> None:
        self._millis = millis
        self._bind = bind

    @cached_property
    def days(self) -> Column:
        return self._bind(floor_days(self._millis))

    @cached_property
    def of_day(self) -> Column:
        return self._bind(F.pmod(self._millis, long(DAY)))

    @cached_property
    def hour(self) -> Column:
        return self._bind(div(self.of_day, 3_600_000))

    @cached_property
    def date(self) -> Date:
        return date_of(self.days, self._bind)

    @cached_property
    def saturday(self) -> Column:
        """The day that a week is counted by: it belongs to the year of its Saturday."""
        return self._bind(sunday(self.days) + 6)

    @cached_property
    def week_year(self) -> Column:
        return date_of(self.saturday, self._bind).year

    def first_of(self, year: Column) -> Column:
        """The 1 January of a year."""
        return _first_of(year, self._bind)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _padded(number: Column, width: int) -> Column:
    """The number with at least *width* digits."""
    text = F.abs(number).cast("string")
    wide = F.when(F.length(text) < width, F.lpad(text, width, "0")).otherwise(text)
    return F.when(number < 0, F.concat(F.lit("-"), wide)).otherwise(wide)


def _named(number: Column, names: tuple[str, ...], *, short: bool) -> Column:
    texts = [F.lit(name[:3] if short else name) for name in names]
    return F.element_at(F.array(*texts), number.cast("int"))


def _printed(tokens: tuple[Token, ...], at: _Moment) -> Column:
    if not tokens:
        return F.when(at.days.isNotNull(), F.lit(""))
    return F.concat(*(F.lit(token) if isinstance(token, str) else _field(token, at) for token in tokens))


def _field(token: Letters, at: _Moment) -> Column:
    letter, count = token.letter, token.count
    match letter:
        case "H":
            return _padded(at.hour, count)
        case "k":
            return _padded(F.when(at.hour == 0, long(24)).otherwise(at.hour), count)
        case "K":
            return _padded(at.hour % 12, count)
        case "h":
            return _padded(F.when(at.hour % 12 == 0, long(12)).otherwise(at.hour % 12), count)
        case "a":
            return F.when(at.hour < 12, "AM").otherwise("PM")
        case "m":
            return _padded(div(at.of_day, 60_000) % 60, count)
        case "s":
            return _padded(div(at.of_day, 1000) % 60, count)
        case "S":
            return _padded(at.of_day % 1000, count)
        case "z" | "Z" | "X":
            name = "Coordinated Universal Time" if letter == "z" and count >= 4 else _ZONES[letter]
            return F.when(at.days.isNotNull(), F.lit(name))
        case "u":
            return _padded(F.pmod(at.days + 3, long(7)) + 1, count)
        case "E":
            return _named(F.pmod(at.days + 3, long(7)) + 1, _WEEKDAYS, short=count < 4)
    return _field_of_date(token, at)


def _field_of_date(token: Letters, at: _Moment) -> Column:
    letter, count = token.letter, token.count
    match letter:
        case "G":
            return F.when(at.date.year > 0, "AD").otherwise("BC")
        case "y":
            of_era = F.when(at.date.year > 0, at.date.year).otherwise(long(1) - at.date.year)
            return _padded(of_era % 100, 2) if count == 2 else _padded(of_era, count)
        case "M" | "L":
            if count < 3:
                return _padded(at.date.month, count)
            return _named(at.date.month, _MONTHS, short=count == 3)
        case "d":
            return _padded(at.date.day, count)
        case "D":
            return _padded(at.days - at.first_of(at.date.year) + 1, count)
        case "F":
            return _padded(div(_of_month(at.days, at.date) - 1, 7) + 1, count)
        case "W":
            first = at.days - _of_month(at.days, at.date) + 1
            return _padded(div(sunday(at.days) - sunday(first), 7) + 1, count)
        case "Y":
            year = at.week_year
            return _padded(F.pmod(year, long(100)), 2) if count == 2 else _padded(year, count)
    first = sunday(at.first_of(at.week_year))
    return _padded(div(at.saturday - 6 - first, 7) + 1, count)


def _of_month(days: Column, date: Date) -> Column:
    """Which day of its month it is; October 1582 had no days from the 5th to the 14th, and they do not count."""
    return date.day - F.when(days.between(CUTOVER_DAY, CUTOVER_DAY + 16), long(10)).otherwise(long(0))


# --- parsing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parsed:
    """What a text was read as: `millis` is null, and `failed` true, where it does not fit the pattern."""

    millis: Column
    failed: Column


def parse_millis(text: Column, pattern: str, bind: Bind = _unbound) -> Parsed:
    """The times that *text* stands for: lenient, what follows is ignored, every field may be missing."""
    tokens = parse_java_time(pattern)
    text = bind(text)
    quick = _quickly(text, tokens, bind)
    if quick is None:
        return _parsed_leniently(text, tokens, bind)
    quick = bind(quick)
    # What was read already is null here, and costs nothing more.
    rest = _parsed_leniently(bind(F.when(quick.isNull(), text)), tokens, bind)
    return Parsed(F.coalesce(quick, rest.millis), quick.isNull() & rest.failed)


def _quickly(text: Column, tokens: tuple[Token, ...], bind: Bind) -> Column | None:
    """The times of texts that are exactly as long and as strict as the pattern; null for others, None if it has more.

    Spark's own parser agrees with Java's on these from the year 1583 on, and takes a twentieth of the time. A zone
    is read where it is ``Z``.
    """
    letters = [token for token in tokens if not isinstance(token, str)]
    zones = [token for token in letters if token.letter == "X" and token.count <= 3]
    plain = [token.letter * token.count for token in letters if token not in zones]
    if not letters or len(zones) > 1 or not _PLAIN.issuperset(plain) or len(set(plain)) < len(plain):
        return None
    if not {"yyyy", "MM", "dd"}.issubset(plain):
        return None
    length = sum(len(token) if isinstance(token, str) else 1 if token in zones else token.count for token in tokens)
    spelled = "".join(_quoted(token) if isinstance(token, str) else token.letter * token.count for token in tokens)
    # Without a zone of its own the session's would apply.
    full, pattern = (text, spelled) if zones else (F.concat(text, F.lit("Z")), spelled + "X")
    right_size = F.octet_length(text) == length
    if zones:
        right_size = right_size & text.contains("Z")
    millis = bind(F.unix_millis(F.try_to_timestamp(F.when(right_size, full), F.lit(pattern))))
    return F.when(millis >= long(FIRST_MODERN), millis)


def _parsed_leniently(text: Column, tokens: tuple[Token, ...], bind: Bind) -> Parsed:
    regex, letters = _regex(tokens)
    # One pass of the regular expression gives all fields, joined by a character that no digit or name has.
    marked = F.regexp_replace(
        text, rf"(?s)\A{regex}.*\z", "\x01" + "\x01".join(f"${n + 1}" for n in range(len(letters)))
    )
    pieces = bind(F.split(marked, "\x01"))
    failed = F.size(pieces) != len(letters) + 1 if letters else ~text.rlike(rf"(?s)\A{regex}")
    fields: dict[str, Column] = {}
    for at, token in enumerate(letters):
        piece = F.get(pieces, F.lit(at + 1))
        # The order tells which fields the day is made of, so a letter that comes again moves to the end.
        fields.pop(token.letter, None)
        fields[token.letter] = _read(token, piece)
        if token.letter in "yY" and token.count <= 2:
            fields[token.letter] = _century(piece, fields[token.letter])
    millis = bind(F.when(~failed, _resolved(fields, bind)))
    return Parsed(millis, F.coalesce(failed | millis.isNull(), F.lit(False)))


def _regex(tokens: tuple[Token, ...]) -> tuple[str, list[Letters]]:
    parts: list[str] = []
    letters: list[Letters] = []
    for at, token in enumerate(tokens):
        if isinstance(token, str):
            parts.append(r"\Q" + token.replace("\\E", r"\E\\E\Q") + r"\E")
            continue
        following = tokens[at + 1] if at + 1 < len(tokens) else ""
        abutting = isinstance(following, Letters) and _is_number(following)
        letters.append(token)
        parts.append(r"[ \t]*+" + _field_regex(token, abutting=abutting))
    return "".join(parts), letters


def _is_number(token: Letters) -> bool:
    return token.letter in _NUMERIC or (token.letter in "ML" and token.count < 3)


def _field_regex(token: Letters, *, abutting: bool) -> str:
    if _is_number(token):
        return rf"(?=.{{{token.count}}})(-?+\d{{1,{token.count}}}+)" if abutting else r"(-?+\d++)"
    if token.letter in "ML":
        return "(?i:(" + "|".join((*_MONTHS, *(name[:3] for name in _MONTHS))) + "))"
    if token.letter == "E":
        return "(?i:(" + "|".join((*_WEEKDAYS, *(name[:3] for name in _WEEKDAYS))) + "))"
    if token.letter == "a":
        return "(?i:(AM|PM))"
    if token.letter == "G":
        return "(?i:(AD|BC))"
    if token.letter == "Z":
        return r"((?i:GMT|UTC|UT)?[+-]\d{2}:?\d{2}|(?i:GMT|UTC|UT))"
    if token.letter == "z":
        return r"((?i:GMT|UTC|UT)[+-]\d{1,2}:?\d{2}|[+-]\d{4}|(?i:GMT|UTC|UT))"
    return {1: r"(Z|[+-]\d{2})", 2: r"(Z|[+-]\d{4})"}.get(token.count, r"(Z|[+-]\d{2}:\d{2})")


def _read(token: Letters, piece: Column) -> Column:
    """The number that a field stands for; months by name count from 1, zones are minutes east."""
    if _is_number(token):
        number = piece.try_cast("bigint")
        limit = _LIMITS.get(token.letter, 10**10)
        # Null fails the record: the sum of the fields must stay within 64 bits.
        return F.when(number.between(long(-limit), long(limit)), number)
    if token.letter in "ML":
        names = F.array(*[F.lit(name[:3].upper()) for name in _MONTHS])
        return F.array_position(names, F.upper(F.substring(piece, 1, 3))).cast("bigint")
    if token.letter == "E":
        names = F.array(*[F.lit(name[:3].upper()) for name in (_WEEKDAYS[-1], *_WEEKDAYS[:-1])])
        return F.array_position(names, F.upper(F.substring(piece, 1, 3))).cast("bigint")
    if token.letter == "G":
        return F.when(F.upper(piece) == "BC", long(0)).otherwise(long(1))
    if token.letter == "a":
        return F.when(F.upper(piece) == "PM", long(12)).otherwise(long(0))
    digits = F.regexp_extract(piece, r"([+-])(\d{1,2}?):?(\d{2})?$", 2).try_cast("bigint")
    minutes = F.coalesce(F.regexp_extract(piece, r"([+-])(\d{1,2}?):?(\d{2})?$", 3).try_cast("bigint"), long(0))
    total = F.coalesce(digits, long(0)) * 60 + minutes
    return F.when(piece.contains("-"), -total).otherwise(total)


def _century(piece: Column, year: Column) -> Column:
    """The year that exactly two digits stand for: within 80 years before and 20 after now."""
    first = F.year(F.current_date()).cast("bigint") - 80
    near = first - F.pmod(first, long(100)) + year
    adjusted = F.when(near < first, near + 100).otherwise(near)
    return F.when(piece.rlike(r"\A\d\d\z"), adjusted).otherwise(year)


def _resolved(fields: dict[str, Column], bind: Bind) -> Column:
    """The milliseconds of the fields, what is missing taken from 1970-01-01T00:00."""

    def get(letter: str, otherwise: int) -> Column:
        return fields.get(letter, long(otherwise))

    days = _day_of(fields, bind)
    if "H" in fields or "k" in fields:
        hours = fields["H"] if "H" in fields else F.when(fields["k"] == 24, long(0)).otherwise(fields["k"])
    else:
        half = F.when(fields["h"] == 12, long(0)).otherwise(fields["h"]) if "h" in fields else get("K", 0)
        hours = half + get("a", 0)
    zone = next((fields[letter] for letter in "zZX" if letter in fields), long(0))
    minutes = hours * 60 + get("m", 0) - zone
    return days * DAY + minutes * 60_000 + get("s", 0) * 1000 + get("S", 0)


def _day_of(fields: dict[str, Column], bind: Bind) -> Column:
    """The days since 1970 of the fields: of those that contradict each other the one that comes last counts.

    This is what ``java.util.Calendar`` does (Calendar Fields Resolution); *fields* are in the pattern's order.
    """
    at = {letter: place for place, letter in enumerate(fields)}
    weekdays = sorted((letter for letter in ("E", "u") if letter in at), key=lambda letter: at[letter])
    by_number = weekdays[-1:] == ["u"]
    weekday = fields[weekdays[-1]] if weekdays else long(1)
    if at.get("Y", -1) > at.get("y", -1):
        week = fields.get("w", long(1)) - 1
        if by_number:
            # The 8th day of a week is the first of the next one.
            week, weekday = week + div(weekday - 1, 7), F.pmod(weekday - 1, long(7)) + 1
            weekday = weekday % 7 + 1
        return sunday(_first_of(fields["Y"], bind)) + week * 7 + weekday - 1
    if by_number:
        # Monday is 1 to the pattern and 2 to the calendar, which takes other numbers as they are.
        weekday = F.when(weekday.between(1, 7), weekday % 7 + 1).otherwise(weekday)
    year = fields.get("y", long(1970))
    if "G" in fields:
        year = F.when(fields["G"] == 0, long(1) - year).otherwise(year)
    chosen = _chosen(at, at[weekdays[-1]] if weekdays else None)
    if chosen == "w":
        return on_or_before(sunday(_first_of(year, bind)) + 6, weekday) + (fields["w"] - 1) * 7
    if chosen == "D":
        return days_of(year, long(1), fields["D"], bind)
    month = fields.get("M", fields.get("L", long(1)))
    if chosen == "d":
        return days_of(year, month, fields.get("d", long(1)), bind)
    first = bind(days_of(year, month, long(1), bind))
    if chosen == "W":
        return on_or_before(sunday(first) + 6, weekday) + (fields["W"] - 1) * 7
    place = fields.get("F", long(1))
    last = bind(days_of(year, month + 1, long(1), bind)) - 1
    from_end = on_or_before(last + (place + 1) * 7, weekday)
    return F.when(place < 0, from_end).otherwise(on_or_before(first + place * 7 - 1, weekday))


def _first_of(year: Column, bind: Bind) -> Column:
    """The 1 January of a year."""
    return bind(days_of(year, long(1), long(1), bind))


def _chosen(at: dict[str, int], weekday: int | None) -> str:
    """Which letter gives the day: ``d``, ``D``, ``w``, ``W`` or ``F``; *at* is where each stands in the pattern."""
    by_week = [letter for letter in "WFw" if letter in at]
    found = {letter: at[letter] for letter in "dD" if letter in at}
    if weekday is not None:
        found |= {letter: max(at[letter], weekday) for letter in by_week}
    if not found:
        found = {letter: at[letter] for letter in by_week}
    if not found:
        # A weekday alone is looked for from the first day of the month on.
        return "d" if weekday is None else "F"
    best = max(found.values())
    for letter in "dDWFw":
        if found.get(letter) == best and (letter not in "WF" or at[letter] >= at.get("w", -1)):
            return "F" if letter == "W" and at.get("F", -1) > at["W"] else letter
    return "w"
