"""Counts of a route's lost records, with those read and sent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Losses:
    """Numbers of records that were read and lost; see `turnout.engine.counts` for each."""

    read: int = 0
    messages: int = 0
    dead_lettered: int = 0
    discarded: int = 0
    undeliverable: int = 0
    unmatched: int = 0

    def share(self, kind: str, least_records: int) -> float | None:
        """Return the share of a kind of loss among the records read, or the deliveries; None for a few of them."""
        whole = self.messages + self.undeliverable if kind == "undeliverable" else self.read
        return None if whole < least_records else float(getattr(self, kind) / whole)


LOSSES: Final = tuple(field.name for field in fields(Losses))
"""The names of the numbers, in order."""
