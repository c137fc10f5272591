"""Dates and times as JSON has them: ISO 8601 texts, read as Spark reads them, and written by column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from turnout.base.clocks import EPOCH, MILLISECONDS_PER_DAY
from turnout.base.deferred import np
from turnout.loops import times
from turnout.records import Moment
from turnout.records.text import iso_of

_FIRST_DAY = date(1970, 1, 1).toordinal()
_LAST_MILLISECOND = 9_223_372_036_854_775
"""Milliseconds: the last moment, whose microseconds fit into 64 bits."""

_DATE = r"(?P<year>[+-]?\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?"
_ZONE = r"(?P<zone>Z|(?:UTC|GMT|UT)?[+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?|[A-Za-z][\w/+-]*)"
_timestamp = re.compile(rf"{_DATE}(?:[T ]{_CLOCK}\s*{_ZONE}?)?)?)?", re.ASCII).fullmatch
_date = re.compile(rf"{_DATE}(?:[T ].*)?)?)?", re.ASCII | re.DOTALL).fullmatch
_offset = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII).fullmatch


def moment_of(time: datetime) -> Moment:
    """Return the moment of a time; one without a zone is in UTC."""
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - EPOCH
    return Moment(since.days * MILLISECONDS_PER_DAY + since.seconds * 1000 + since.microseconds // 1000)


def day_of(day: date) -> Moment:
    """Return the moment at which a day begins."""
    return Moment((day.toordinal() - _FIRST_DAY) * MILLISECONDS_PER_DAY)


def read_timestamp(text: str) -> Moment:
    """Parse a moment; missing fields are the least, and the zone UTC.

    Raises:
        ValueError: when it names none.
    """
    match = _timestamp(text.strip())
    if match is None:
        raise ValueError(text)
    parts = match.groupdict()
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)
    millis = ((hour * 60 + minute) * 60 + second) * 1000 + int(((parts["fraction"] or "") + "000")[:3])
    local = _days(parts) * MILLISECONDS_PER_DAY + millis
    moment = local - _zone_offset(parts["zone"], local)
    if abs(moment) > _LAST_MILLISECOND:
        raise ValueError(text)
    return Moment(moment)


def read_date(text: str) -> Moment:
    """Return the day that a text begins with, as the moment of its midnight.

    Raises:
        ValueError: when there is none.
    """
    match = _date(text.strip())
    if match is None:
        raise ValueError(text)
    return Moment(_days(match.groupdict()) * MILLISECONDS_PER_DAY)


def _days(parts: dict[str, str | None]) -> int:
    """Return the days from 1970 to a date of the Gregorian calendar, which is taken to have no beginning."""
    year, month, day = int(parts["year"] or 0), int(parts["month"] or 1), int(parts["day"] or 1)
    # A date's days repeat every 400 years, of which Python's calendar has 25.
    cycle, within = divmod(year - 2000, 400)
    return date(2000 + within, month, day).toordinal() - _FIRST_DAY + cycle * 146_097


def _zone_offset(zone: str | None, local: int) -> int:
    """Return the milliseconds that a zone is ahead of UTC at its local time."""
    if zone in (None, "Z", "UTC", "GMT", "UT"):
        return 0
    match = _offset(str(zone))
    if match is not None:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset_seconds = (hours * 60 + minutes) * 60 + seconds
        if offset_seconds > 18 * 3600 or minutes > 59 or seconds > 59:
            raise ValueError(zone)
        return (offset_seconds if match[1] == "+" else -offset_seconds) * 1000
    try:
        offset = ZoneInfo(str(zone)).utcoffset((EPOCH + timedelta(milliseconds=local)).replace(tzinfo=None))
    except (OSError, LookupError, OverflowError) as failure:
        raise ValueError(zone) from failure
    return round(offset.total_seconds() * 1000) if offset is not None else 0


def timestamps_as_text(column: Sequence[int | None]) -> list[str | None]:
    """Moments as ISO 8601 in UTC: ``2013-01-01T10:00:00.000Z``; nulls stay null."""
    present = [moment for moment in column if moment is not None]
    texts: Iterator[str] = map(iso_of, present)
    with suppress(OverflowError):
        out, spans = np.empty(len(present) * times.MAX_NUMBER, np.uint8), np.empty(2 * len(present), np.int64)
        size = times.write_numbers(np.array(present, np.int64), True, out, spans)
        if size >= 0:
            written = out.tobytes().decode()
            texts = (written[at + 1 : at + times.MAX_NUMBER - 1] for at in range(0, size, times.MAX_NUMBER))
    return [None if moment is None else next(texts) for moment in column]


def dates_as_text(column: Sequence[int | None]) -> list[str | None]:
    """Return the days of moments: ``2013-01-01``; nulls stay null."""
    return [text and text[:-14] for text in timestamps_as_text(column)]
