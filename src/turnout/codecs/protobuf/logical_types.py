"""Messages that are Connect's logical types: Timestamp, Date, TimeOfDay and Decimal, read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import repeat
from typing import Any, Final

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.codecs.json_leaf_readers import EXACT, LARGEST
from turnout.codecs.moments import day_of
from turnout.codecs.protobuf.descriptors import DATE, DECIMAL, TIME_OF_DAY
from turnout.codecs.protobuf.scalars import delimited, signed_varint
from turnout.errors import RecordError
from turnout.loops.protobuf import FIRST_SECOND, LAST_SECOND, NANOS_PER_MILLI
from turnout.records import Moment

_INTEGERS: Final = frozenset({int, Moment})

TIMESTAMP: Final = "google.protobuf.Timestamp"

_MAX_BYTES: Final = LARGEST * 5 // 12
"""Bytes of a decimal's number; more have more digits than `LARGEST`."""


def _read_timestamp(message: Any) -> Moment:
    seconds, nanos = message.seconds, message.nanos
    if not (FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanos < 1000 * NANOS_PER_MILLI):
        raise RecordError(
            f"expected a Timestamp of the years 1 to 9999, found {seconds} seconds and {nanos} nanoseconds"
        )
    return Moment(seconds * 1000 + nanos // NANOS_PER_MILLI)


def _read_date(message: Any) -> Moment:
    try:
        return day_of(date(message.year, message.month, message.day))
    except (ValueError, OverflowError):
        found = f"{message.year}-{message.month}-{message.day}"
        raise RecordError(f"expected a Date of the years 1 to 9999, found {found}") from None


def _read_time(message: Any) -> Moment:
    hours, minutes, seconds, nanos = message.hours, message.minutes, message.seconds, message.nanos
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < 1000 * NANOS_PER_MILLI):
        raise RecordError(f"expected a TimeOfDay, found {hours}:{minutes}:{seconds} and {nanos} nanoseconds")
    return Moment(((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // NANOS_PER_MILLI)


def _read_decimal(message: Any) -> Decimal:
    value, scale, precision = message.value, message.scale, message.precision
    if len(value) > _MAX_BYTES or abs(scale) > LARGEST:
        raise RecordError(
            f"expected a Decimal of at most {LARGEST:,} digits, found {len(value):,} bytes of the scale {scale}"
        )
    number = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, EXACT)
    if 0 < precision <= LARGEST:
        return Context(prec=precision, rounding=ROUND_HALF_UP, Emax=EXACT.Emax, Emin=EXACT.Emin).plus(number)
    return number


READERS: Final[Mapping[str, Callable[[object], Moment | Decimal]]] = {
    TIMESTAMP: _read_timestamp,
    DATE: _read_date,
    TIME_OF_DAY: _read_time,
    DECIMAL: _read_decimal,
}
"""Full name of the message → its value."""


def timestamp_writer(prefix: bytes) -> Callable[[Sequence[object]], list[bytes]]:
    """Return the writer of a column of Timestamps, each with *prefix* before its length."""
    heads = [prefix + bytes((size,)) for size in range(32)]

    def column(moments: Sequence[Any]) -> list[bytes]:
        if not _INTEGERS.issuperset(map(type, moments)):
            moments = list(map(_millis, moments))
        pairs = list(map(divmod, moments, repeat(1000)))
        seconds = {second: _second(second) for second in {second for second, _ in pairs}}
        nanos = {milli: _numbers(0, milli * NANOS_PER_MILLI) for milli in {milli for _, milli in pairs}}
        return [
            heads[len(seconds[second]) + len(nanos[milli])] + seconds[second] + nanos[milli] for second, milli in pairs
        ]

    return column


def _second(second: int) -> bytes:
    if not FIRST_SECOND <= second <= LAST_SECOND:
        raise ValueError(f"expected a time of the years 1 to 9999, found {second * 1000} milliseconds since 1970")
    return _numbers(second)


def _write_date(moment: object) -> bytes:
    days, rest = divmod(_millis(moment), MILLISECONDS_PER_DAY)
    if rest:
        raise ValueError(f"a Date has no time of day, found {moment} milliseconds since 1970")
    try:
        day = date(1970, 1, 1) + timedelta(days=days)
    except OverflowError:
        raise ValueError(f"expected a date of the years 1 to 9999, found {moment} milliseconds since 1970") from None
    return _numbers(day.year, day.month, day.day)


def _write_time(moment: object) -> bytes:
    millis = _millis(moment)
    if not 0 <= millis < MILLISECONDS_PER_DAY:
        raise ValueError(f"a Time is within a day, found {moment} milliseconds since 1970")
    seconds, millis = divmod(millis, 1000)
    return _numbers(seconds // 3600, seconds // 60 % 60, seconds % 60, millis * NANOS_PER_MILLI)


def _write_decimal(value: object) -> bytes:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise ValueError(f"expected a decimal, found {value!r}")
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > LARGEST or abs(exponent) > LARGEST:
        raise ValueError(f"expected a decimal of at most {LARGEST:,} digits")
    number = int(value.scaleb(-exponent, EXACT))
    unscaled = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    return delimited(b"\x0a", unscaled) + _numbers(0, len(digits), -exponent)


def _millis(moment: object) -> int:
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise ValueError(f"expected a time, found {moment!r}")  # noqa: TRY004 - reported like every other error here
    return int(moment)


def _numbers(*numbers: int) -> bytes:
    """Encode a message whose fields 1, 2, … are these numbers, without those that are 0."""
    return b"".join(bytes((number << 3,)) + signed_varint(value) for number, value in enumerate(numbers, 1) if value)


WRITERS: Final[Mapping[str, Callable[[object], bytes]]] = {
    DATE: _write_date,
    TIME_OF_DAY: _write_time,
    DECIMAL: _write_decimal,
}
"""Full name of the message → its bytes; raises `ValueError` with the expected form."""
