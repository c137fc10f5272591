"""Counts of a run as outcomes of records."""

from __future__ import annotations

from collections import Counter

from turnout.engine.counts import Counts

__all__ = ["outcomes_of"]


def outcomes_of(counts: Counts) -> Counter[str]:
    """Return the number of records by outcome, by the names of `turnout explain`, without discarded ones."""
    return +Counter(
        delivered=counts.delivered,
        filtered=counts.filtered,
        unmatched=counts.unmatched,
        dead_lettered=counts.dead_lettered,
        lost_by_weight=counts.lost_by_weight,
    )
