"""Starting point of a subscription: the first record of a route's source that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

from turnout.base.untrusted import decimal, is_whole
from turnout.errors import SubscriptionInvalidError

_EXPECTED = "expected latest, earliest, an ISO 8601 time or a sequence from 1 on"


@dataclass(frozen=True, slots=True)
class Start:
    """Position in a route's source from which a subscription gets earlier records.

    Attributes:
        position: ``earliest``, the sequence of a NATS stream, or a time in UTC.

    >>> Start.from_plain("2026-12-01T00:00:00Z").to_plain(), Start.from_plain("17").to_plain()
    ('2026-12-01T00:00:00+00:00', 17)
    >>> Start.from_plain("latest") is None
    True
    """

    position: Literal["earliest"] | int | datetime

    @classmethod
    def from_plain(cls, written: object) -> Self | None:
        """Return the start of a plain value, as JSON has it; None for ``latest``, which is the default.

        Raises:
            SubscriptionInvalidError: it means nothing.
        """
        if written in (None, "latest"):
            return None
        if written == "earliest":
            return cls("earliest")
        number = decimal(written) if isinstance(written, str) else written
        if is_whole(number, 1):
            return cls(number)
        try:
            time = datetime.fromisoformat(str(written))
            return cls(time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            raise SubscriptionInvalidError(f"from: {_EXPECTED}, found {written!r:.60}") from None

    def to_plain(self) -> str | int:
        """Return the plain value from which `from_plain` restores the start."""
        return self.position.isoformat() if isinstance(self.position, datetime) else self.position
