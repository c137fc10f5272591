"""Parsing and printing of times, as Java's SimpleDateFormat does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import cached_property

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.transforms.java.calendar import (
    CUTOVER_DAY,
    CUTOVER_YEAR,
    MONTHS,
    WEEKDAYS,
    Date,
    Letters,
    Token,
    date_of,
    days_of,
    millis_of,
    offset_of,
    on_or_before,
    parse_java_time,
    read_iso_zone,
    read_zone,
    zone_name_at,
)
from turnout.transforms.java.values import read_integer

_UNIX = date(1970, 1, 1).toordinal()
_MODERN = 1583
"""From this year on Java's calendar is Python's."""

_BLANK = (" ", "\t")
_BLANKS = re.compile(r"[ \t]*")
_Fields = dict[str, int]
_Read = Callable[[str, int, int, _Fields], int]
"""Reads a part of the text: the text, where it begins, the same behind blanks, and the fields that it adds to; gives
where it ends, -1 where it does not fit."""

_PLACES = {"k": "H", "K": "h", "L": "M", "u": "E"}
"""Letters that are another way to say a field."""

_QUICK = {"yyyy": r"(\d{4})", "MM": r"(\d\d)", "dd": r"(\d\d)", "HH": r"(\d\d)", "mm": r"(\d\d)", "ss": r"(\d\d)",
          "SSS": r"(\d{3})"}  # fmt: skip
_ORDER = tuple(_QUICK)


def time_parser(pattern: str, now: datetime | None = None) -> Callable[[str], int | None]:
    """Return a function that parses a text by *pattern*: milliseconds since 1970, None if it does not match.

    Args:
        pattern: of ``java.text.SimpleDateFormat``.
        now: reference of two-digit years, which are within 80 years before it and 20 after.

    Raises:
        JavaTimeError: when Java would refuse the pattern.
    """
    tokens = parse_java_time(pattern)
    slow = _TimeParser(tokens, now or datetime.now(UTC)).parse
    return _quick_parser(tokens, slow) or slow


def time_template(pattern: str) -> bytes | None:
    r"""Return what `turnout.loops.times.read_times` reads a pattern by; None if that cannot read its times.

    >>> time_template("yyyy-MM-dd'T'HHX")
    b'\x01\x01\x01\x01-\x02\x02-\x03\x03T\x04\x04Z'
    """
    parts = _strict_parts(parse_java_time(pattern)) or []
    template = b"".join(bytes([_ORDER.index(name) + 1]) * len(name) if name else text.encode() for name, text in parts)
    texts = "".join(text for _, text in parts)
    return template if template and texts.isascii() and texts.isprintable() and not set(texts) & set('"\\') else None


def _strict_parts(tokens: tuple[Token, ...]) -> list[tuple[str, str]] | None:
    """Return the numbers, by their letters, and texts of a pattern of numbers of fixed lengths; None for others."""
    parts: list[tuple[str, str]] = []
    for token in tokens:
        if isinstance(token, str):
            # Behind a number a digit or an exponent would be read as a part of it.
            if token[0].isdigit() or token[0] == "E":
                return None
            parts.append(("", token))
        elif token.letter * token.count in _QUICK:
            parts.append((token.letter * token.count, ""))
        elif token.letter == "X" and token.count <= 3:
            parts.append(("", "Z"))
        else:
            return None
    names = [name for name, _ in parts if name]
    return None if len(set(names)) < len(names) or not {"yyyy", "MM", "dd"}.issubset(names) else parts


def _quick_parser(tokens: tuple[Token, ...], slow: Callable[[str], int | None]) -> Callable[[str], int | None] | None:
    """Return the same, with one regular expression for texts as strict as the pattern; None if it has other letters."""
    parts = _strict_parts(tokens)
    if parts is None:
        return None
    names = [name for name, _ in parts if name]
    fullmatch = re.compile("".join([_QUICK.get(name) or re.escape(text) for name, text in parts]), re.ASCII).fullmatch
    order = [names.index(name) if name in names else len(names) for name in _ORDER]

    def quick(text: str) -> int | None:
        match = fullmatch(text)
        if match is not None:
            numbers = [*map(int, match.groups()), 0]
            year, month, day, hour, minute, second, milli = [numbers[at] for at in order]
            if year >= _MODERN and 1 <= month <= 12:
                days = date(year, month, 1).toordinal() - _UNIX + day - 1
                return days * MILLISECONDS_PER_DAY + ((hour * 60 + minute) * 60 + second) * 1000 + milli
        return slow(text)

    return quick


class _TimeParser:
    """A pattern, ready to read texts."""

    def __init__(self, tokens: tuple[Token, ...], now: datetime) -> None:
        self.century = _Century(now)
        following = (*tokens[1:], "")[: len(tokens)]
        self.parts = [
            token if isinstance(token, str) else self._reader(token, _is_number(next_))
            for token, next_ in zip(tokens, following, strict=True)
        ]

    def parse(self, text: str) -> int | None:
        """Milliseconds since 1970, None where the text does not fit. What follows is ignored."""
        fields: _Fields = {}
        at = 0
        for part in self.parts:
            if isinstance(part, str):
                if not text.startswith(part, at):
                    return None
                at += len(part)
                continue
            begin = at if text[at : at + 1] not in _BLANK else _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            if begin >= len(text):
                return None
            at = part(text, at, begin, fields)
            if at < 0:
                return None
        if not self.parts:
            return None
        doubtful = fields.pop("?", 0)
        millis = _millis_in_zone(fields)
        if doubtful and millis < self.century.start:
            millis = _millis_in_zone(
                {**fields, **{letter: fields[letter] + 100 for letter in "yY" if letter in fields}}
            )
        return millis

    def _reader(self, token: Letters, abutting: bool) -> _Read:
        letter, count = token.letter, token.count
        if token.is_number:
            if letter in "yY":
                return _year_reader(letter, count, abutting, self.century)
            return _number_reader(letter, count if abutting else None)
        match letter:
            case "M" | "L":
                return _name("M", _MONTHS)
            case "E":
                return _name("E", _WEEKDAYS)
            case "a":
                return _name("a", {"AM": 0, "PM": 1})
            case "G":
                return _name("G", _ERAS)
            case "X":
                return _iso_zone(count)
        return _zone


def _millis_in_zone(fields: _Fields) -> int:
    """Return the time given by the fields; the offset of a named zone depends on the day."""
    name = fields.get("z")
    if name is None:
        return millis_of(fields)
    wall = millis_of({letter: value for letter, value in fields.items() if letter not in "zZ"})
    return wall - offset_of(name, wall)


def _is_number(token: Token) -> bool:
    return isinstance(token, Letters) and token.is_number


class _Century:
    """Years of two-digit numbers: the hundred years from 80 years before now on."""

    def __init__(self, now: datetime) -> None:
        year = now.year - 80
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        day = 28 if (now.month, now.day) == (2, 29) and not leap else now.day
        self.year = year
        self.start = int(now.replace(year=year, day=day).timestamp() * 1000)

    def full(self, short: int) -> int:
        """Return the year of two digits."""
        return short + self.year // 100 * 100 + (100 if short < self.year % 100 else 0)

    def is_doubtful(self, short: int) -> bool:
        """Return True for the year in which the hundred years begin and end."""
        return short == self.year % 100


def _set(fields: _Fields, letter: str, value: int) -> None:
    # A field that is set again moves to the end: the order decides which fields give the day.
    fields.pop(letter, None)
    fields[letter] = value


def _limited(text: str, at: int, begin: int, count: int | None) -> tuple[int, int] | None:
    """Parse a number and return it with its end; *count* limits its characters, blanks included."""
    if count is None:
        return read_integer(text, begin, len(text))
    return None if at + count > len(text) else read_integer(text, begin, at + count)


def _number_reader(letter: str, count: int | None) -> _Read:
    field = _PLACES.get(letter, letter)

    def read(text: str, at: int, begin: int, fields: _Fields) -> int:
        number = _limited(text, at, begin, count)
        if number is None:
            return -1
        value, end = number
        _set(fields, field, _adjusted(letter, value))
        return end

    return read


def _adjusted(letter: str, value: int) -> int:
    """Convert the number parsed for a letter to the calendar's value."""
    match letter:
        case "M" | "L":
            return value - 1
        case "k":
            return 0 if value == 24 else value
        case "h":
            return 0 if value == 12 else value
        case "u" if 1 <= value <= 7:
            return value % 7 + 1
    return value


def _year_reader(letter: str, count: int, abutting: bool, century: _Century) -> _Read:
    def read(text: str, at: int, begin: int, fields: _Fields) -> int:
        number = _limited(text, at, begin, count if abutting else None)
        if number is None:
            return -1
        value, end = number
        if count <= 2 and end - begin == 2 and text[begin:end].isdecimal():
            fields["?"] = century.is_doubtful(value)
            value = century.full(value)
        _set(fields, letter, value)
        return end

    return read


def _by_length(names: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(names.items(), key=lambda item: -len(item[0]))


_MONTHS = {name[:size].upper(): number for number, name in enumerate(MONTHS) for size in (3, len(name))}
_WEEKDAYS = {name[:size].upper(): number for number, name in enumerate(WEEKDAYS, 1) for size in (3, len(name))}
_ERAS = {"BC": 0, "AD": 1, "BEFORE CHRIST": 0, "ANNO DOMINI": 1}


def _name(field: str, names: Mapping[str, int]) -> _Read:
    """Reads the longest name that the text has, in any case. Blanks before it are not skipped, as in Java."""
    candidates = _by_length(names)
    longest = len(candidates[0][0])

    def read(text: str, at: int, _begin: int, fields: _Fields) -> int:
        piece = text[at : at + longest]
        upper = piece.upper() if piece.isascii() else "".join(map(_upper, piece))
        for name, number in candidates:
            if upper.startswith(name):
                _set(fields, field, number)
                return at + len(name)
        return -1

    return read


def _upper(char: str) -> str:
    """Return the character in upper case as Java compares it: one character, also if only its lower case is one."""
    upper = char.upper()
    upper = upper if len(upper) == 1 else char
    return upper if upper.isascii() else (upper.lower()[:1].upper() or upper)


def _iso_zone(count: int) -> _Read:
    def read(text: str, _at: int, begin: int, fields: _Fields) -> int:
        zone = read_iso_zone(text, begin, count)
        if zone is None:
            return -1
        fields.pop("z", None)
        _set(fields, "Z", zone[0])
        return zone[1]

    return read


def _zone(text: str, at: int, begin: int, fields: _Fields) -> int:
    zone = read_zone(text, at, begin)
    if zone is not None:
        fields.pop("z", None)
        _set(fields, "Z", zone[0])
        return zone[1]
    name = zone_name_at(text, begin)
    if name is None:
        return -1
    fields["z"] = name[0]
    return name[1]


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

    return _quick_printer(tokens, slow) or slow


def _quick_printer(tokens: tuple[Token, ...], slow: Callable[[int], str]) -> Callable[[int], str] | None:
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


def _print_year(number: int, count: int) -> str:
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
            return _print_year(year, count)
        case "Y":
            return _print_year(at.week_year, count)
    return _padded(_print_number(letter, at), count)


def _print_number(letter: str, at: _Moment) -> int:
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
