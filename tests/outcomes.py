"""What a run counts, as outcomes of records."""

from __future__ import annotations

from collections import Counter

from turnout.engine.counts import Counts

__all__ = ["outcomes_of"]


def outcomes_of(counts: Counts) -> Counter[str]:
    """How many records ended how, by the names that `turnout explain` has for it; those that were not discarded."""
    return +Counter(
        delivered=counts.delivered,
        filtered=counts.filtered,
        unmatched=counts.unmatched,
        dead_lettered=counts.dead_lettered,
        lost_by_weight=counts.lost_by_weight,
    )
