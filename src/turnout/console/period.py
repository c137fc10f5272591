"""Period of the charts of a page, chosen in its address."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Final, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query

Length = Literal["15m", "1h", "6h", "24h", "7d", "30d"]

LENGTHS: Final[dict[Length, tuple[str, int, int]]] = {
    "15m": ("15 minutes", 900, 60),
    "1h": ("hour", 3600, 60),
    "6h": ("6 hours", 6 * 3600, 300),
    "24h": ("24 hours", 86_400, 900),
    "7d": ("7 days", 7 * 86_400, 7200),
    "30d": ("30 days", 30 * 86_400, 21_600),
}
"""Name, duration, and distance of the points in a chart, in seconds."""
_LATEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Period:
    """Period of time, in seconds since the epoch.

    Attributes:
        length: one of `LENGTHS`.
        until: its end; None for the present.
        now: time of the request.
    """

    length: Length
    until: int | None
    now: float

    @property
    def name(self) -> str:
        """Name of its length."""
        return LENGTHS[self.length][0]

    @property
    def seconds(self) -> int:
        """Its duration."""
        return LENGTHS[self.length][1]

    @property
    def step(self) -> int:
        """Distance of the points in a chart."""
        return LENGTHS[self.length][2]

    @property
    def end(self) -> float:
        """Its end."""
        return self.now if self.until is None else self.until

    @property
    def begin(self) -> int:
        """Its begin, at a multiple of the step: the first point covers a whole step."""
        return int(self.end) // self.step * self.step - self.seconds + self.step

    @property
    def query(self) -> str:
        """The query of an address that keeps it."""
        return self.linked(self.length, self.until)

    @property
    def fixed(self) -> str:
        """The query of an address that shows this same period later on."""
        return self.linked(self.length, int(self.end))

    @property
    def earlier(self) -> str:
        """The query of the period before."""
        return self.linked(self.length, max(0, int(self.end) - self.seconds))

    @property
    def later(self) -> str:
        """The query of the period after a fixed one."""
        end = int(self.end) + self.seconds
        return self.linked(self.length, end if end < self.now else None)

    @staticmethod
    def linked(length: Length, until: int | None) -> str:
        """Return the query of an address with a period."""
        return urlencode({"range": length} | ({} if until is None else {"until": until}))


def _period(
    length: Annotated[Length, Query(alias="range")] = "1h", until: Annotated[int | None, Query(ge=0, le=_LATEST)] = None
) -> Period:
    return Period(length, until, time.time())


PeriodDep = Annotated[Period, Depends(_period)]
"""The requested period: ``range`` (one hour if not given) and ``until``."""
