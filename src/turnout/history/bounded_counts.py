"""Counts by name, for an unknown number of names: beyond a limit the rest are counted together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 1000
"""Maximum number of distinct names that are counted. A value may use ids as names of fields."""

OTHERS: Final = "(others)"
"""Name that collects the counts of all further names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of occurrences of each name."""

    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str]) -> Tally:
        """Count the occurrences of each name."""
        return cls() + _counted(names)

    def __add__(self, others: Tally) -> Tally:
        counts = dict(self.counts)
        # In the order of names, so that the same tallies give the same sum.
        for name, number in sorted(others.counts.items()):
            key = name if name in counts or len(counts) < MOST else OTHERS
            counts[key] = counts.get(key, 0) + number
        return Tally(counts)

    @property
    def largest(self) -> list[tuple[str, int]]:
        """Names and counts, most first."""
        return sorted(self.counts.items(), key=lambda counted: (-counted[1], counted[0]))


def _counted(names: Iterable[str]) -> Tally:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return Tally(counts)
