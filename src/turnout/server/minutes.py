"""Counts and latencies of each minute of a route, and their rows in the state of a server."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from turnout.engine.counts import Counts
from turnout.server.loss_counts import LOSSES

N = TypeVar("N", int, float)

HOUR = 3600


@dataclass(frozen=True, slots=True)
class MinuteCounts:
    """Counts of a route's records within the minute that began at *at*."""

    at: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class MinutePace:
    """Latencies of a route within the minute that began at *at*.

    Attributes:
        batches: micro-batches that ended in it.
        seconds: their total duration.
        lag_records: maximum lag; None if not measured.
        lag_seconds: the age of the oldest record then; None where the server does not say.
    """

    at: int
    batches: int = 0
    seconds: float = 0.0
    lag_records: int | None = None
    lag_seconds: float | None = None

    def __add__(self, other: MinutePace) -> MinutePace:
        return MinutePace(
            self.at,
            self.batches + other.batches,
            self.seconds + other.seconds,
            _greatest(self.lag_records, other.lag_records),
            _greatest(self.lag_seconds, other.lag_seconds),
        )


def _merge(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the numbers of *more*, at any depth, to *total*: many minutes are summed before objects are made of them."""
    for name, value in more.items():
        if isinstance(value, dict):
            _merge(total.setdefault(name, {}), value)
        elif value or name not in total:  # most are 0
            total[name] = total.get(name, 0) + value


def sums_by_period(rows: Iterable[tuple[int, str]], step: int) -> list[MinuteCounts]:
    """Return the sums of the counts of minutes by period of *step* seconds.

    Args:
        rows: minutes, or hours, with their counts as `add_counts` has written them, the oldest first.
        step: length of a period; periods begin at multiples of it.
    """
    periods: dict[int, dict[str, Any]] = {}
    for minute, text in rows:
        _merge(periods.setdefault(minute // step * step, {}), msgspec.json.decode(text))
    return [MinuteCounts(at, Counts.of_json(total)) for at, total in periods.items()]


def add_hours(db: sqlite3.Connection, route: str, hours: Iterable[int]) -> None:
    """Write the sums of the minutes of some hours."""
    query = "SELECT counts FROM counts WHERE route = ? AND minute >= ? AND minute < ?"
    for hour in hours:
        total: dict[str, Any] = {}
        for (text,) in db.execute(query, (route, hour, hour + HOUR)):
            _merge(total, msgspec.json.decode(text))
        db.execute("INSERT OR REPLACE INTO hours VALUES (?, ?, ?)", (route, hour, msgspec.json.encode(total).decode()))


def add_counts(db: sqlite3.Connection, route: str, minute: int, more: Counts) -> None:
    """Add to the counts of a minute, and to its losses; the sum of its hour is then unknown."""
    db.execute("DELETE FROM hours WHERE route = ? AND hour = ?", (route, minute // HOUR * HOUR))
    before = db.execute("SELECT counts FROM counts WHERE route = ? AND minute = ?", (route, minute)).fetchone()
    total = more + Counts.of_json(json.loads(before[0])) if before else more
    row = (route, minute, json.dumps(total.to_json()))
    db.execute("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", row)
    loss_counts = [getattr(total, name) for name in LOSSES]
    db.execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (minute, route, *loss_counts))


def add_pace(db: sqlite3.Connection, route: str, more: MinutePace) -> None:
    """Add to the pace of a minute."""
    query = "SELECT minute, batches, seconds, lag_records, lag_seconds FROM pace WHERE route = ? AND minute = ?"
    before = db.execute(query, (route, more.at)).fetchone()
    total = MinutePace(*before) + more if before else more
    row = (route, total.at, total.batches, total.seconds, total.lag_records, total.lag_seconds)
    db.execute("INSERT OR REPLACE INTO pace VALUES (?, ?, ?, ?, ?, ?)", row)


def _greatest(one: N | None, other: N | None) -> N | None:
    values = [value for value in (one, other) if value is not None]
    return max(values, default=None)
