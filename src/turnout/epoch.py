"""Times since 1970, in the units of records."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final, NewType

Milliseconds = NewType("Milliseconds", int)
"""Time of a record as the engine has it, since 1970."""

Microseconds = NewType("Microseconds", int)
"""Time of a stored message or letter, since 1970."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

MILLISECONDS_PER_DAY: Final = 86_400_000


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
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return Microseconds((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
