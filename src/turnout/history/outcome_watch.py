"""Outcomes of records with their stage: the one that filtered a record or failed on it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.engine.outcome import Outcome
from turnout.engine.reading import Consumed
from turnout.engine.trace import Trace, Watch
from turnout.records import ALIVE, Batch
from turnout.transforms.apply import StageRunner

_FAILED = (Outcome.DEAD_LETTERED, Outcome.DISCARDED, Outcome.STOPPED)


class EndedRecord(NamedTuple):
    """Outcome of a record, and its stage.

    Attributes:
        outcome: the label of an `Outcome`.
        stage: the name of a transform, or what Connect calls the stage outside the chain: ``VALUE_CONVERTER``. "" for
            a record that passed all of them.
    """

    outcome: str
    stage: str = ""

    def __str__(self) -> str:
        return f"{self.outcome} ({self.stage})" if self.stage else self.outcome


class OutcomeWatch(Watch):
    """Notes the transform that ended each record of a batch.

    Attributes:
        names: names of the transforms, in order.
        stages: by row, the index of a name; -1 where no transform ended the record.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stages: NDArray[np.int16] = np.zeros(0, np.int16)
        self._ended: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def decoded(self, records: Batch, consumed: Consumed) -> None:  # noqa: ARG002 - see `Watch`
        """Begin with the records that could be decoded."""
        self.names = []
        self.stages = np.full(len(records), -1, np.int16)
        self._ended = records.outcomes != ALIVE

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Note the records that are no longer alive."""
        ended = records.outcomes != ALIVE
        self.stages[ended & ~self._ended] = len(self.names)
        self.names.append(stage.stage.name)
        self._ended = ended


class EndNumbers:
    """Outcomes of a trace as integer codes; each code represents an `EndedRecord`.

    Args:
        trace: trace of a batch.
        watch: has watched it.

    Attributes:
        codes: by row.
        width: codes are below it.
    """

    def __init__(self, trace: Trace, watch: OutcomeWatch) -> None:
        self._names = ["", *watch.names]
        stages = watch.stages.astype(np.int64) + 1
        stages[~np.isin(trace.outcomes, (Outcome.FILTERED, *_FAILED))] = 0
        outside: dict[str, int] = {}
        for row, failure in trace.failures.items():
            if not stages[row] and trace.outcomes[row] in _FAILED:
                stages[row] = outside.setdefault(failure.stage, len(self._names) + len(outside))
        self._names += outside
        self.codes = trace.outcomes.astype(np.int64) * len(self._names) + stages
        self.width = len(Outcome) * len(self._names)

    def ended(self, code: int) -> EndedRecord:
        """Return the outcome of a number."""
        outcome, stage = divmod(code, len(self._names))
        return EndedRecord(Outcome(outcome).label, self._names[stage])
