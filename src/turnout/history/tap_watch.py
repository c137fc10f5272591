"""Watch of records at one stage of a route's program, which notes them before and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from turnout.engine.outcome import Outcome, StageResult
from turnout.engine.reading import Consumed
from turnout.engine.trace import Watch
from turnout.history.masking import Hidden
from turnout.records import FAILED, Batch
from turnout.records.types import RowIds
from turnout.transforms.apply import StageRunner
from turnout.untrusted import JsonObject

SOURCE: Final = "source"
MAPPED: Final = "mapped"
DELIVERED: Final = "delivered"


_WHOLE: Final = Hidden()
"""Hides nothing: a stage may change hidden parts."""


class ObservedRecord(NamedTuple):
    """Record at the stage: its outcome there, its content before and after, and the reason of a failure."""

    outcome: str
    before: JsonObject
    after: JsonObject | None
    reason: str | None = None


class TapWatch(Watch):
    """Notes some records of a batch.

    Args:
        stage: the stage, as `turnout.history.tap` names it.
        choose: chooses the rows of a batch to record.
        before: hidden paths before the stage.
        after: hidden paths behind it.

    Attributes:
        rows: rows of the records that were chosen.
    """

    def __init__(self, stage: str, choose: Callable[[Batch, RowIds], RowIds], before: Hidden, after: Hidden) -> None:
        self._stage = stage
        self._choose = choose
        self._hidden = before
        self._hidden_after = after
        self._before: dict[int, JsonObject] = {}
        self._whole: dict[int, JsonObject] = {}
        self._topics: list[str | None] = []
        self._observed: dict[int, ObservedRecord] = {}
        self.rows: RowIds = np.zeros(0, np.int64)

    def seen_of(self, row: int) -> ObservedRecord:
        """Return the observations of a record."""
        return self._observed[row]

    def decoded(self, records: Batch, consumed: Consumed) -> None:
        """Note records as they were read."""
        if self._stage != SOURCE:
            return
        self.rows = self._choose(records, np.arange(len(records)))
        for row in self.rows.tolist():
            record = self._hidden.masked(records.record(row))
            if records.outcomes[row] == FAILED:
                raw = {"key": consumed.keys[row], "value": consumed.values[row]}
                record |= {side: self._hidden.text(side, content) for side, content in raw.items()}
                self._observed[row] = ObservedRecord(StageResult.FAILED, record, None, self._reason(records, row))
            else:
                self._observed[row] = ObservedRecord("read", record, record)

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Note the records that reach the stage."""
        if stage.stage.name != self._stage:
            return
        self.rows = self._choose(records, records.alive.astype(np.int64))
        self._before = {row: self._hidden.masked(records.record(row)) for row in self.rows.tolist()}
        self._whole = {row: _WHOLE.masked(records.record(row)) for row in self.rows.tolist()}

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Note the results of the stage."""
        if stage.stage.name == self._stage:
            self._observed = {row: self._after_stage(records, row, before) for row, before in self._before.items()}

    def _after_stage(self, records: Batch, row: int, before: JsonObject) -> ObservedRecord:
        ended = StageResult.of_ended(records, row)
        if ended is not None:
            reason = self._reason(records, row) if ended is StageResult.FAILED else None
            return ObservedRecord(ended, before, None, reason)
        record = records.record(row)
        return ObservedRecord(
            _change(_WHOLE.masked(record) != self._whole[row]), before, self._hidden_after.masked(record)
        )

    def transformed(self, records: Batch) -> None:
        """Note topics before they are mapped."""
        self._topics = list(records.topics)

    def mapped(self, records: Batch) -> None:
        """Note records with their mapped topics."""
        if self._stage not in (MAPPED, DELIVERED):
            return
        self.rows = self._choose(records, records.alive.astype(np.int64))
        if self._stage == MAPPED:
            self._observed = {row: self._of_mapping(records, row) for row in self.rows.tolist()}

    def _of_mapping(self, records: Batch, row: int) -> ObservedRecord:
        after = self._hidden.masked(records.record(row))
        before = {**after, "topic": self._topics[row]}
        if after["topic"] is None:
            return ObservedRecord(Outcome.LOST_BY_WEIGHT.label, before, None)
        return ObservedRecord(_change(after != before), before, after)

    def _reason(self, records: Batch, row: int) -> str:
        failure = records.failures[row]
        return f"{failure.stage}: {self._hidden.failure(failure.message)}"


def _change(changed: bool) -> StageResult:
    return StageResult.CHANGED if changed else StageResult.UNCHANGED
