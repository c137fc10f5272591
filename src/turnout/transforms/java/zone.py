"""Time zones in texts, as ``java.text.SimpleDateFormat`` reads them: offsets, and names in English.

Java knows some six hundred names; here are those in common use, and those with such a prefix. Where a name is
that of several zones (IST), this is the zone that Java 17 takes. A name of standard time means standard time in summer,
too: ``PST`` is eight hours behind, always.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

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
_LAST = 253_402_300_799_999


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
    shown = _EPOCH + timedelta(milliseconds=min(max(wall, _FIRST), _LAST))
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
