"""Histogram of durations: counts between bounds, measured in many processes and added up in one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import add, sub
from typing import Any, Final, Self

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The largest duration of each bucket but the last, in seconds; the last has no bound."""

_BUCKETS: Final = tuple(str(bound) for bound in (*BOUNDS, float("inf")))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations.

    Attributes:
        counts: how many there are in each bucket, one more than `BOUNDS` has.
        seconds: the sum of all of them.

    >>> took = Histogram.of(0.004, 3) + Histogram.of(0.25)
    >>> took.count, round(took.seconds, 3)
    (4, 0.262)
    """

    counts: tuple[int, ...] = (0,) * len(_BUCKETS)
    seconds: float = 0.0

    @classmethod
    def of(cls, seconds: float, count: int = 1) -> Self:
        """Return a histogram of *count* durations of that length."""
        return cls.of_each([(seconds, count)])

    @classmethod
    def of_each(cls, durations: Iterable[tuple[float, int]]) -> Self:
        """Return a histogram of durations, each with its number.

        >>> Histogram.of_each([(0.004, 3), (0.25, 1)]) == Histogram.of(0.004, 3) + Histogram.of(0.25)
        True
        """
        counts, total = [0] * len(_BUCKETS), 0.0
        for seconds, count in durations:
            counts[bisect_left(BOUNDS, seconds)] += count
            total += seconds * count
        return cls(tuple(counts), total)

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Return the duration that this share of all does not exceed, interpolated within its bucket.

        Durations in the last bucket, which has no bound, count as its lower bound. None without durations.

        >>> (Histogram.of(0.004, 90) + Histogram.of(0.2, 10)).quantile(0.95)
        0.175
        """
        rank = share * self.count
        below = 0
        for bucket, count in enumerate(self.counts):
            if count and below + count >= rank:
                low = BOUNDS[bucket - 1] if bucket else 0.0
                high = BOUNDS[bucket] if bucket < len(BOUNDS) else low
                return round(low + (high - low) * max(0.0, rank - below) / count, 9)
            below += count
        return None

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(tuple(map(add, self.counts, other.counts)), self.seconds + other.seconds)

    def __sub__(self, other: Histogram) -> Histogram:
        return Histogram(tuple(map(sub, self.counts, other.counts)), self.seconds - other.seconds)

    def cumulative(self) -> list[tuple[str, int]]:
        """Return cumulative counts by bound, as Prometheus has them: with ``+Inf`` at the end."""
        total, buckets = 0, []
        for bound, count in zip(_BUCKETS, self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == "inf" else bound, total))
        return buckets

    def as_dict(self) -> dict[str, object]:
        """Return JSON values: the count of each non-empty bucket by its bound (``inf`` for the last)."""
        buckets = {bound: count for bound, count in zip(_BUCKETS, self.counts, strict=True) if count}
        return {"count": self.count, "seconds": round(self.seconds, 6), "buckets": buckets}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Histogram:
        """Inverse of `as_dict`; buckets with foreign bounds are re-binned."""
        counts = sum((cls.of(float(bound), count) for bound, count in written["buckets"].items()), Histogram()).counts
        return Histogram(counts, float(written["seconds"]))
