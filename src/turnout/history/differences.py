"""Differences between two versions of a route, as a sum over records; parts add up to the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self

from turnout.engine.outcome import Outcome
from turnout.history.bounded_counts import Tally
from turnout.history.examples import Examples
from turnout.history.outcome_matrix import Matrix

KINDS: Final = ("outcome", "lost", "gained", "moved", "value", "key", "header", "failure")
"""Kinds of examples."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of a version, without reading and without publishing.

    Attributes:
        nanoseconds: nanoseconds of all records.
    """

    nanoseconds: int = 0

    def per_record(self, records: int) -> float:
        """Microseconds for a record."""
        return self.nanoseconds / 1000 / records if records else 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.nanoseconds + other.nanoseconds)


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between two versions of a route for the same records.

    Parts of a range are compared apart, and added up in any order.

    Attributes:
        records: how many were compared.
        changed: how many of them end otherwise, or have some delivery, content or failure that is not the same.
        matrix: how they ended.
        gained: deliveries that only the new version makes.
        lost: deliveries that only the old one makes.
        moved: deliveries of the same subscription, or of a record under its own topic, to another address.
        values: records that both deliver, with other values.
        keys: likewise.
        headers: likewise.
        failures: records that fail with both, for another reason or with a dead letter elsewhere; and those that end
            alike, of which one version has undeliverable messages.
        fields: fields of the values: path → in how many records it is not the same.
        header_names: likewise of the headers.
        losers: subscription → deliveries lost.
        gainers: subscription → deliveries gained.
        movers: subscription → deliveries moved.
        old_cost: cost of the old version.
        new_cost: cost of the new one.
        examples: the first ones of each kind by sequence.
    """

    records: int = 0
    changed: int = 0
    matrix: Matrix = field(default_factory=Matrix)
    gained: int = 0
    lost: int = 0
    moved: int = 0
    values: int = 0
    keys: int = 0
    headers: int = 0
    failures: int = 0
    fields: Tally = field(default_factory=Tally)
    header_names: Tally = field(default_factory=Tally)
    losers: Tally = field(default_factory=Tally)
    gainers: Tally = field(default_factory=Tally)
    movers: Tally = field(default_factory=Tally)
    old_cost: Cost = field(default_factory=Cost)
    new_cost: Cost = field(default_factory=Cost)
    examples: Examples = field(default_factory=Examples)

    def __add__(self, other: Self) -> Differences:
        return Differences(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Differences)))

    @property
    def empty(self) -> bool:
        """True if both versions do the same with every record."""
        return not self.changed

    @property
    def totals(self) -> Mapping[str, float]:
        """All numbers by name, with the names of `turnout.history.threshold`."""
        old, new = self.matrix.by_version()
        by_outcome = {
            f"{version}_{outcome.label}": sum(n for ended, n in counts.items() if ended.outcome == outcome.label)
            for version, counts in (("old", old), ("new", new))
            for outcome in Outcome
        }
        return {
            "records": self.records,
            "changed": self.changed,
            "outcomes": self.matrix.outcomes,
            "stages": self.matrix.stages,
            **{name: getattr(self, name) for name in _NUMBERS},
            **by_outcome,
            "old_us": self.old_cost.per_record(self.records),
            "new_us": self.new_cost.per_record(self.records),
        }


_NUMBERS: Final = ("gained", "lost", "moved", "values", "keys", "headers", "failures")

TOTALS: Final = tuple(Differences().totals)
"""The names of the totals."""
