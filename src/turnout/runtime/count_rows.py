"""Counts of a task as rows of Spark.

All counts are one text: Spark would plan, compile and run a sum for each number, in each micro-batch and task anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from turnout.engine.counts import Counts
from turnout.engine.failures import IN_FULL
from turnout.engine.flow import Flow

if TYPE_CHECKING:
    from turnout.base.histogram import Histogram
    from turnout.engine.result import Result

TALLY: Final = "counts string, failures bigint, failure string"
"""The columns of a task's counts: a JSON object; the number of failures to log; and one of them, a JSON object too."""

TALLY_SCHEMA: Final = pa.schema([("counts", pa.string()), ("failures", pa.int64()), ("failure", pa.string())])

_NO_COUNTS: Final = "{}"


def sum_of(texts: Iterable[str]) -> Counts:
    """Return the sum of the column ``counts``."""
    return sum((Counts.of_json(json.loads(text)) for text in texts), Counts())


class TaskTally:
    """Counts of one task, and the first of the failures to log."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._failures = 0
        self._shown: list[Mapping[str, object]] = []

    def add(self, *results: Result) -> None:
        """Count batches, and changes of counted batches."""
        for result in results:
            self.counts += result.counts
            self._failures += len(result.failures)
            # Beyond the first of a batch failures are empty: they only count.
            shown = [failure for failure in result.failures[:IN_FULL] if failure]
            self._shown += shown[: IN_FULL - len(self._shown)]

    def include(self, other: TaskTally) -> None:
        """Add the counts and failures of a part of the task."""
        self.counts += other.counts
        self._failures += other._failures
        self._shown += other._shown[: IN_FULL - len(self._shown)]

    def resume(self, counts: Counts) -> None:
        """Add what earlier attempts have counted."""
        self.counts += counts

    def acknowledged(self, delivery: Histogram, duplicates: int) -> None:
        """Add how long messages took until they were acknowledged, and how many the sinks had before."""
        self.counts += Counts(duplicates=duplicates, flow=Flow(delivery=delivery))

    def rows(self) -> pa.RecordBatch:
        """Return the counts in one row of `TALLY`, with the first failure; the others in rows of their own."""
        shown: list[str | None] = [json.dumps(failure) for failure in self._shown] or [None]
        more = len(shown) - 1
        counts = [json.dumps(self.counts.to_json()), *[_NO_COUNTS] * more]
        return pa.RecordBatch.from_arrays(
            [pa.array(counts), pa.array([self._failures, *[0] * more]), pa.array(shown, pa.string())],
            schema=TALLY_SCHEMA,
        )
