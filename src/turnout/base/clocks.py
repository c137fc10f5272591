"""Clocks that tests replace, durations as texts, and times since 1970 in their units."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NewType

JUMP_SECONDS: Final = 60.0
"""Largest lead of the wall clock over the monotonic clock between two readings."""

LASTING_SECONDS: Final = 3_600.0
"""Duration after which a jump forward is believed."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Simultaneous readings of both clocks, in seconds."""

    wall: float
    monotonic: float

    def at(self, monotonic: float) -> float:
        """Return the wall time at *monotonic*, provided that the wall clock is not set in between."""
        return self.wall + monotonic - self.monotonic


class TrustedClock:
    """Time used for the age of entries: never later than the wall clock, and not moved forward by one reading.

    A clock that is set back is followed at once, as less is old then. One that is set forward is followed after
    `LASTING_SECONDS`; until then the previous time continues by the monotonic clock. A process that begins cannot tell
    a jump from the time that it did not run: it begins with the latest time that was written down before.

    Not safe to use from several threads at once.

    >>> wall, monotonic = [1000.0], [0.0]
    >>> clock = TrustedClock(lambda: wall[0], lambda: monotonic[0])
    >>> clock.now()
    1000.0
    >>> wall[0] += 86_400
    >>> clock.now()
    1000.0
    >>> wall[0], monotonic[0] = wall[0] + 3600, monotonic[0] + 3600
    >>> clock.now()
    91000.0

    Args:
        wall: seconds since 1970; the machine's clock if not given.
        monotonic: seconds that only grow.
    """

    def __init__(
        self, wall: Callable[[], float] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall or (lambda: time.time())
        self._monotonic = monotonic
        self._believed: _Reading | None = None
        self._jumped: _Reading | None = None

    def now(self, recorded: float | None = None) -> float:
        """Read the clocks, and return the time that is believed, in seconds since 1970.

        Args:
            recorded: the latest time that was written down before, by whatever process; used by the first reading.
        """
        reading = _Reading(self._wall(), self._monotonic())
        if self._believed is None:
            began = reading.wall if recorded is None else min(reading.wall, recorded)
            self._believed = _Reading(began, reading.monotonic)
        expected = self._believed.at(reading.monotonic)
        if reading.wall <= expected + JUMP_SECONDS or self._lasts(reading):
            self._believed, self._jumped = reading, None
            return reading.wall
        return expected

    def _lasts(self, reading: _Reading) -> bool:
        """Return True if the wall clock has been ahead by the same amount for long enough."""
        jumped = self._jumped
        if jumped is None or abs(reading.wall - jumped.at(reading.monotonic)) > JUMP_SECONDS:
            self._jumped = jumped = reading
        return reading.monotonic - jumped.monotonic >= LASTING_SECONDS


SECONDS_BY_UNIT: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

_DURATION = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(SECONDS_BY_UNIT)})")


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as ``250ms``, ``1.5m`` or ``7d``; None for other texts.

    >>> [parse_duration(text) for text in ("250ms", "1.5m", "7d", "7", "-1s")]
    [0.25, 90.0, 604800.0, None, None]
    """
    written = _DURATION.fullmatch(text)
    return float(written[1]) * SECONDS_BY_UNIT[written[2]] if written else None


Milliseconds = NewType("Milliseconds", int)
"""Time of a record as the engine has it, since 1970."""

Microseconds = NewType("Microseconds", int)
"""Time of a stored message or letter, since 1970."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

MILLISECONDS_PER_DAY: Final = 86_400_000


def parse_time(text: str) -> datetime:
    """Return the time of a text in ISO 8601; without a zone it is UTC, as everywhere in turnout.

    Raises:
        ValueError: the text is no such time.

    >>> parse_time("2026-12-01T08:30").isoformat(), parse_time("2026-12-01T08:30+01:00").isoformat()
    ('2026-12-01T08:30:00+00:00', '2026-12-01T08:30:00+01:00')
    """
    return with_zone(datetime.fromisoformat(text))


def with_zone(moment: datetime) -> datetime:
    """Return the time; one without a zone gets UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def milliseconds_now() -> int:
    """Return the clock's time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def seconds_of_millis(at: Milliseconds) -> float:
    """Return the time in seconds since 1970, as the console and REST show it.

    >>> seconds_of_millis(Milliseconds(1_500))
    1.5
    """
    return at / 1_000


def seconds_of_micros(at: Microseconds) -> float:
    """Return the time in seconds since 1970, as the console and REST show it.

    >>> seconds_of_micros(Microseconds(1_500_000))
    1.5
    """
    return at / 1_000_000


def microseconds_since_epoch(moment: datetime) -> Microseconds:
    """Return the microseconds from 1970 to a time, exactly; without a zone it is UTC, as everywhere in turnout.

    >>> microseconds_since_epoch(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
    -1
    """
    since = with_zone(moment) - EPOCH
    return Microseconds((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
