"""What became of the records of a batch, a micro-batch or a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

__all__ = ["Counts"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records, but for the last three. All but `not_read` are of records that were read.

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

    @property
    def accounted(self) -> int:
        """How many records are known to have ended somewhere."""
        ends = (self.filtered, self.lost_by_weight, self.unmatched, self.delivered, self.dead_lettered)
        return sum(ends) + self.discarded

    @property
    def conserved(self) -> bool:
        """Whether every record that was read is accounted for."""
        return self.read == self.accounted

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def as_dict(self) -> dict[str, int]:
        """The numbers by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of(cls, metrics: Mapping[str, int | None]) -> Counts:
        """Counts from numbers by name; what is not there, or null, is 0."""
        return cls(**{f.name: int(metrics.get(f.name) or 0) for f in fields(cls)})
