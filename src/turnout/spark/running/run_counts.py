"""Counts and times of a run, from its own micro-batches or from Spark's reports on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from turnout.engine.counts import Counts
from turnout.runtime.offsets import Progress, RunResult
from turnout.runtime.open_task import RECORD_SECONDS
from turnout.runtime.publishing import log_failures
from turnout.spark.running.matching import RunMatching
from turnout.spark.running.open_run import OpenRun
from turnout.spark.running.plan import OBSERVED
from turnout.spark.running.reports import (
    Reports,
    counts_of,
    ended_at,
    metrics_of,
    offset_of,
    revision_of,
    warnings_of,
    within,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _AcknowledgedBatch:
    """Micro-batch whose messages are all acknowledged; Spark's report on it may still be missing."""

    counts: Counts
    at: float
    seconds: float
    revision: int | None


class RunCounts:
    """Counts and times of a run in progress, and their reports to the caller.

    Args:
        route_name: name of the route, for its log.
        whole: True if Spark runs the whole route, so that only its reports have the counts.
        on_progress: called after each micro-batch, and every second of an open split.
        matching: matching of the run, for the number of its subscriptions.
        open_run: the run's open splits.
    """

    def __init__(
        self,
        route_name: str,
        *,
        whole: bool,
        on_progress: Callable[[Progress], None] | None,
        matching: RunMatching | None,
        open_run: OpenRun | None,
    ) -> None:
        self._route_name = route_name
        self._whole = whole
        self._on_progress = on_progress
        self._matching = matching
        self._open_run = open_run
        self._reports = Reports()
        self._written: dict[int, _AcknowledgedBatch] = {}
        self._warned: set[str] = set()
        self._total = Counts()
        self._began: float | None = None
        self._last = time.monotonic()
        self.batches = 0

    def begin(self) -> float:
        """Return the time at which a micro-batch begins, perhaps the first of the run."""
        begun = time.monotonic()
        self._began = begun if self._began is None else self._began
        return begun

    def add_written(self, batch: int, counts: Counts, begun: float, revision: int | None) -> None:
        """Note a micro-batch that every sink has acknowledged; Spark has not committed it yet."""
        self._last = time.monotonic()
        self._written[batch] = _AcknowledgedBatch(counts, self._last, self._last - begun, revision)

    @property
    def awaits_commit(self) -> bool:
        """True if Spark has not yet committed a written micro-batch."""
        return bool(self._written)

    def complete(self, batch: int) -> None:
        """Complete a written micro-batch of which there will be no report."""
        self._complete(batch, self._written.pop(batch))

    def take_reports(self, query: StreamingQuery, pause: float) -> None:
        """Read the committed micro-batches and their counts from Spark's reports.

        Args:
            query: query of the run.
            pause: seconds between two calls: a micro-batch has ended within them.
        """
        self._take_losses()
        for report in self._reports.new(query):
            for warning in warnings_of(report):
                self._warn(warning)
            done = self._reported(report, pause) if self._whole else self._written.pop(report.batchId, None)
            if done is not None:
                self._complete(report.batchId, done)

    def _take_losses(self) -> None:
        """Say and count what tasks and source have stepped over; the source's reports have some of it later."""
        for warning in () if self._open_run is None else self._open_run.losses():
            self._warn(warning)

    def _warn(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._total += Counts(losses=1)
            _log.warning("route %s: %s", self._route_name, warning)

    def _reported(self, report: StreamingQueryProgress, pause: float) -> _AcknowledgedBatch:
        """Return the counts and times of a micro-batch that Spark ran alone; log its failures."""
        metrics = metrics_of(report, OBSERVED)
        log_failures(metrics, route=self._route_name)
        # Spark dates and measures with a clock that may be set meanwhile; ours bounds both.
        ended = time.monotonic() - within(0.0, time.time() - ended_at(report), pause)
        seconds = within(0.0, report.batchDuration / 1000, ended - self._last)
        self._last = ended
        counts = counts_of(metrics)
        if self._open_run is not None:
            counts = self._open_run.committed(offset_of(report), counts)
            # What an open split has done was reported every second.
            seconds = min(seconds, RECORD_SECONDS) if self._open_run.is_last else seconds
        self._began = ended - seconds if self._began is None else self._began
        return _AcknowledgedBatch(counts, self._last, seconds, revision_of(report))

    def _complete(self, batch: int, done: _AcknowledgedBatch) -> None:
        """Add a completed micro-batch to the total, and report the progress."""
        self._total += done.counts
        self.batches += 1
        self._report(batch, done.at, done.seconds, done.revision)

    def report_open(self) -> None:
        """Report what open splits have counted since the last report, and what was lost."""
        self._take_losses()
        if self._open_run is None or not self._open_run.has_news():
            return
        now = time.monotonic()
        seconds = within(0.0, now - self._last, RECORD_SECONDS)
        self._began, self._last = now - seconds if self._began is None else self._began, now
        self._report(self._open_run.batch, now, seconds, self._open_run.revision)

    def _report(self, batch: int, at: float, seconds: float, revision: int | None) -> None:
        if self._on_progress is not None and self._began is not None:
            subscriptions = None if self._matching is None else len(self._matching.revisions)
            self._on_progress(Progress(batch, self.counts(), at - self._began, seconds, revision, subscriptions))

    def counts(self) -> Counts:
        """Return all counts so far, including micro-batches that Spark has not yet committed."""
        more = Counts() if self._open_run is None else self._open_run.counts()
        return sum((done.counts for done in tuple(self._written.values())), self._total + more)

    def result(self, *, stopped: bool) -> RunResult:
        """Return the result of the run."""
        seconds = self._last - self._began if self._began is not None else 0.0
        return RunResult(self.counts(), self.batches + len(self._written), seconds, stopped=stopped)
