"""End of a subscription at a time, by the time of records or by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, Literal, Self, get_args

from turnout.base.clocks import microseconds_since_epoch
from turnout.errors import SubscriptionInvalidError

ExpiryClock = Literal["record", "wall"]
"""Clock that an expiry is by: the record's own time, or that of the machine that matches."""

_CLOCKS: Final = get_args(ExpiryClock)
_NAMES: Final = ("at", "by")


@dataclass(frozen=True, slots=True)
class Expiry:
    """Time from which on a subscription matches nothing.

    Attributes:
        at: the time; one without a zone is UTC.
        by: ``record`` compares it with a record's time, so that matching the record again gives the same; ``wall``
            with the clock of the machine at the moment of matching.

    >>> Expiry.from_mapping({"at": "2026-12-01T00:00:00Z"}).to_mapping()
    {'at': '2026-12-01T00:00:00+00:00', 'by': 'record'}
    >>> Expiry.from_mapping({"at": "soon"})
    Traceback (most recent call last):
        ...
    turnout.errors.SubscriptionInvalidError: expires.at: expected an ISO 8601 time, found 'soon'
    """

    at: datetime
    by: ExpiryClock = "record"

    def __post_init__(self) -> None:
        if self.by not in _CLOCKS:
            raise SubscriptionInvalidError(f"expires.by: expected {' or '.join(_CLOCKS)}, found {self.by!r:.60}")
        zoned = self.at.astimezone(UTC) if self.at.tzinfo else self.at.replace(tzinfo=UTC)
        object.__setattr__(self, "at", zoned)

    @classmethod
    def from_mapping(cls, mapping: object) -> Self:
        """Return the expiry of plain values, as JSON has them.

        Raises:
            SubscriptionInvalidError: they mean nothing; the message names the field, the value and the expectation.
        """
        if not isinstance(mapping, Mapping):
            raise SubscriptionInvalidError(f"expires: expected an object, found {mapping!r:.60}")
        for name in mapping:
            if name not in _NAMES:
                raise SubscriptionInvalidError(f"expires.{name}: unknown field; there are {', '.join(_NAMES)}")
        if "at" not in mapping:
            raise SubscriptionInvalidError("expires.at: is required and missing")
        return cls(expiry_time(mapping["at"]), mapping.get("by", "record"))

    def to_mapping(self) -> dict[str, object]:
        """Return plain values, from which `from_mapping` restores the expiry."""
        return {"at": self.at.isoformat(), "by": self.by}

    @property
    def milliseconds(self) -> int:
        """First millisecond since 1970 at which it is over."""
        return -(-microseconds_since_epoch(self.at) // 1_000)

    def is_over(self, record: int, now: int) -> bool:
        """Return True if a record of a time is no longer matched at another; both in milliseconds since 1970.

        >>> expiry = Expiry(datetime(1970, 1, 1, 0, 0, 1))
        >>> expiry.is_over(1_000, 0), expiry.is_over(999, 0)
        (True, False)
        """
        return (record if self.by == "record" else now) >= self.milliseconds


def expiry_time(written: object) -> datetime:
    """Return the time of an expiry, in UTC.

    Args:
        written: a text in ISO 8601, or a date or time as YAML has it. A number is none, whatever its digits.

    Raises:
        SubscriptionInvalidError: it is no time, or has none in UTC, as some at the calendar's edge.
    """
    if isinstance(written, str | date):
        with suppress(ValueError, OverflowError):
            time = datetime.fromisoformat(str(written))
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    raise SubscriptionInvalidError(f"expires.at: expected an ISO 8601 time, found {written!r:.60}")
