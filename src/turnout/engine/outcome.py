"""Outcome of each record of a batch; counts, traces and dead letters derive from it."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.records import FAILED, FILTERED, Batch
from turnout.records.types import RowIds

if TYPE_CHECKING:
    from turnout.routes import Route


class Outcome(IntEnum):
    """Outcome of a record. `label` is its name in files and on the command line."""

    DELIVERED = 0
    FILTERED = 1
    LOST_BY_WEIGHT = 2
    UNMATCHED = 3
    DEAD_LETTERED = 4
    DISCARDED = 5
    STOPPED = 6
    """It failed, and the route tolerates no failure: a run ends here."""

    @property
    def label(self) -> str:
        """The name in lower case, as `Counts` spells it."""
        return self.name.lower()


class StageResult(StrEnum):
    """Result of one stage for one record. The values are the words of ``turnout tap``.

    ``turnout explain`` knows whether the stage applied to the record, and ``turnout tap`` whether it changed it.
    """

    APPLIED = "applied"
    NOT_MATCHED = "not matched"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FILTERED = "filtered"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It failed or was filtered in an earlier stage."""

    @property
    def explained(self) -> str:
        """The word of ``turnout explain``."""
        return "dropped" if self is StageResult.FILTERED else self.value

    @classmethod
    def of_ended(cls, records: Batch, row: int) -> StageResult | None:
        """Return `FAILED` or `FILTERED` for a record that is no longer alive; None for others."""
        return {FAILED: cls.FAILED, FILTERED: cls.FILTERED}.get(int(records.outcomes[row]))


_DELIVERED: Final = int(Outcome.DELIVERED)

Outcomes: TypeAlias = NDArray[np.int8]
"""An `Outcome` for each row."""


def outcome_of_rejected(route: Route) -> Outcome:
    """Return the outcome of a route's rejected records, where it tolerates failures."""
    return Outcome.DISCARDED if route.dead_letter is None else Outcome.DEAD_LETTERED


def outcomes_of(
    route: Route, records: Batch, lost_rows: RowIds, unmatched: RowIds, rejected: RowIds, delivered: RowIds
) -> Outcomes:
    """Return the outcomes of a batch. A record in none of the groups has none, -1, and its run's counts do not add up.

    Args:
        route: the route.
        records: records of the batch, after all stages.
        lost_rows: rows that the weights of mappings drop.
        unmatched: rows that no subscription matches.
        rejected: rows without messages because of failures; takes precedence over *unmatched*.
        delivered: rows with at least one message.
    """
    if len(delivered) == len(records):
        return np.full(len(records), _DELIVERED, np.int8)
    outcomes = np.full(len(records), -1, np.int8)
    outcomes[records.outcomes == FILTERED] = Outcome.FILTERED
    outcomes[lost_rows] = Outcome.LOST_BY_WEIGHT
    outcomes[unmatched] = Outcome.UNMATCHED
    outcomes[rejected] = outcome_of_rejected(route)
    outcomes[delivered] = Outcome.DELIVERED
    return outcomes
