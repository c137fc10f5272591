"""Counts of record outcomes in a batch, a micro-batch or a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import add, sub
from typing import Any, Final

from turnout.engine.flow import Flow


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records, but for the last ones. All but `not_read` are of records that were read.

    Attributes:
        read: came from the source.
        filtered: dropped by a Filter.
        lost_by_weight: dropped by mappings whose weights mean loss.
        unmatched: wanted by no subscription, and dropped for that.
        delivered: sent to the sink at least once.
        dead_lettered: sent to the dead letter topic, and nowhere else.
        discarded: failed where the route has no dead letter topic and tolerates failures.
        not_read: left at the server, since no subscription can want their subjects: beside those that were read.
        messages: messages that the sinks took for delivered records: one per destination.
        undeliverable: deliveries that nobody could take, whatever became of the record's others: each is a dead letter
            of its own, or discarded.
        dropped_headers: headers that a sink could not carry, left out of their messages.
        reserved_headers: headers with names that only turnout writes, dropped as their records entered the route.
        flow: how the records went through the stages. It is no part of what makes two counts equal: that is how their
            records ended.

    >>> counts = Counts(read=10, filtered=2, delivered=7, dead_lettered=1) + Counts(read=5, delivered=5)
    >>> counts.read, counts.delivered, counts.conserved
    (15, 12, True)
    """

    read: int = 0
    filtered: int = 0
    lost_by_weight: int = 0
    unmatched: int = 0
    delivered: int = 0
    dead_lettered: int = 0
    discarded: int = 0
    not_read: int = 0
    messages: int = 0
    undeliverable: int = 0
    dropped_headers: int = 0
    reserved_headers: int = 0
    flow: Flow = field(default_factory=Flow, compare=False, kw_only=True)

    @property
    def accounted(self) -> int:
        """Number of records with a known outcome."""
        ends = (self.filtered, self.lost_by_weight, self.unmatched, self.delivered, self.dead_lettered)
        return sum(ends) + self.discarded

    @property
    def conserved(self) -> bool:
        """True if every record read is accounted for."""
        return self.read == self.accounted

    def __add__(self, other: Counts) -> Counts:
        numbers = map(add, self.as_dict().values(), other.as_dict().values())
        return Counts(*numbers, flow=self.flow + other.flow)

    def __sub__(self, other: Counts) -> Counts:
        numbers = map(sub, self.as_dict().values(), other.as_dict().values())
        return Counts(*numbers, flow=self.flow - other.flow)

    def as_dict(self) -> dict[str, int]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def of(cls, numbers: Mapping[str, Any], flow: Flow | None = None) -> Counts:
        """Return counts from numbers by name; a missing or null number is 0."""
        return cls(*(int(numbers.get(name) or 0) for name in NUMBERS), flow=flow or Flow())


NUMBERS: Final = tuple(field.name for field in fields(Counts) if field.name != "flow")
"""The names of the numbers."""
