"""The counts of a run include written micro-batches, and report each once that Spark has committed it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.running.test_reports import Query, Report, idle

from turnout.engine.counts import Counts
from turnout.runtime.offsets import Progress
from turnout.spark.running.open_run import OpenRun
from turnout.spark.running.run_counts import RunCounts


def test_a_batch_is_reported_after_its_commit() -> None:
    """A written micro-batch counts at once; its progress is reported with Spark's report on it."""
    reported: list[Progress] = []
    counts = RunCounts("r", whole=False, on_progress=reported.append, matching=None, open_run=None)
    query = Query()
    counts.add_written(7, Counts(read=3, delivered=3), counts.begin(), revision=5)
    query.reports.append(idle(7))
    counts.take_reports(cast("StreamingQuery", query), 1.0)

    assert (counts.counts().read, counts.awaits_commit, reported) == (3, True, [])

    query.reports.append(Report(7))
    counts.take_reports(cast("StreamingQuery", query), 1.0)
    counts.take_reports(cast("StreamingQuery", query), 1.0)

    assert [(one.batch, one.counts.read, one.revision, one.subscriptions) for one in reported] == [(7, 3, 5, None)]
    assert (counts.counts().read, counts.awaits_commit, counts.batches) == (3, False, 1)


def test_the_result_has_written_batches() -> None:
    """A run that is stopped before the commit has the micro-batch in its result; one without reports is completed."""
    counts = RunCounts("r", whole=False, on_progress=None, matching=None, open_run=None)
    counts.add_written(0, Counts(read=2, delivered=2), counts.begin(), revision=None)
    stopped = counts.result(stopped=True)
    counts.complete(0)
    result = counts.result(stopped=False)

    assert (stopped.counts, stopped.batches, stopped.stopped) == (Counts(read=2, delivered=2), 1, True)
    assert (result.counts, result.batches, result.stopped) == (stopped.counts, 1, False)


def test_losses_are_said_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """What tasks and the source have stepped over is a warning of the run at once, and a count; each loss is one."""
    open_run = SimpleNamespace(losses=lambda: ["3 are gone"], has_news=lambda: False, counts=Counts)
    counts = RunCounts("r", whole=False, on_progress=None, matching=None, open_run=cast("OpenRun", open_run))
    query = Query()
    counts.report_open()
    latest = {"S": 5, "S.warning": "3 are gone", "a.warning": {"0": 5}, ":0.warning": "other data"}
    query.reports.append(Report(1, sources=[SimpleNamespace(latestOffset=json.dumps(latest))]))

    counts.take_reports(cast("StreamingQuery", query), 1.0)

    assert [record.message for record in caplog.records] == ["route r: 3 are gone", "route r: other data"]
    assert counts.counts() == Counts(losses=2)
