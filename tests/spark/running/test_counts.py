"""Counts of a run from Spark's reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from turnout.engine.counts import Counts
from turnout.runtime.offsets import Progress
from turnout.spark.running.counts import OpenCounts, Reports, RunCounts, ended_at, metrics_of, revision_of


@dataclass
class Report:
    batchId: int
    durationMs: dict[str, int] = field(default_factory=lambda: {"addBatch": 100, "latestOffset": 1})
    observedMetrics: dict[str, Any] = field(default_factory=dict)
    sources: list[Any] = field(default_factory=list)
    timestamp: str = "2026-11-21T20:17:17.919Z"
    batchDuration: int = 144


class Query:
    """The two properties of a query that are asked; it keeps its newest three reports."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.asked_for_all = 0

    @property
    def lastProgress(self) -> Report | None:
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[Report]:
        self.asked_for_all += 1
        return self.reports[-3:]


def idle(batch: int) -> Report:
    """Return Spark's report while it is idle: the number of the next micro-batch, which has not run."""
    return Report(batch, {"latestOffset": 1})


@pytest.mark.parametrize("first", [0, 17])
def test_each_report_comes_once(first: int) -> None:
    """From the beginning or from a checkpoint, one by one or several at a time, with idle triggers between."""
    query, reports = Query(), Reports()
    taken: list[list[int]] = []

    def look() -> None:
        taken.append([report.batchId - first for report in reports.new(query)])  # type: ignore[arg-type]

    look()
    for added in (
        [idle(first)],
        [Report(first), idle(first + 1)],
        [idle(first + 1)],
        [Report(first + 1)],
        [Report(first + 2), Report(first + 3)],
        [],
    ):
        query.reports += added
        look()

    assert taken == [[], [], [0], [], [1], [2, 3], []]


def test_the_next_report_is_taken_alone() -> None:
    """All that Spark keeps is asked for only where one was missed."""
    query, reports = Query(), Reports()
    for report in (idle(7), idle(7), *map(Report, range(7, 12)), idle(12), idle(12)):
        query.reports.append(report)
        reports.new(query)  # type: ignore[arg-type]

    assert query.asked_for_all == 1


def test_when_a_micro_batch_ended() -> None:
    """Its trigger's time and its duration."""
    assert ended_at(Report(0)) == pytest.approx(1795292238.063)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "revision"),
    [
        ('{"FLIGHTS": 100, "subscriptions.revision": 17}', 17),
        ('{"FLIGHTS": 100}', None),
        ("17", None),
        (None, None),
    ],
)
def test_the_revision_of_a_micro_batch(offset: str | None, revision: int | None) -> None:
    """It is in the offset that the micro-batch ends at, where the source puts one there."""
    report: Any = Report(0, sources=[SimpleNamespace(endOffset=offset)])

    assert revision_of(report) == revision
    assert revision_of(Report(0)) is None  # type: ignore[arg-type]


def test_what_was_observed() -> None:
    """By name; nothing where no row came by."""
    report: Any = Report(0, observedMetrics={"turnout": SimpleNamespace(asDict=lambda: {"read": 3})})

    assert metrics_of(report, "turnout") == {"read": 3}
    assert metrics_of(report, "other") == {}


def test_rows_as_spark_connect_gives_them() -> None:
    """Values and schema apart, rows within rows too."""

    def row(schema: Any, *values: Any) -> dict[str, Any]:
        return {"values": list(values), "schema": schema}

    failure = row([{"name": "stage", "type": "string"}], "TRANSFORMATION")
    fields = [{"name": name, "type": "long"} for name in ("read", "failures")]
    observed = SimpleNamespace(asDict=lambda: row({"type": "struct", "fields": fields}, 1000, [failure]))

    metrics = metrics_of(Report(0, observedMetrics={"turnout": observed}), "turnout")  # type: ignore[arg-type]

    assert metrics == {"read": 1000, "failures": [{"stage": "TRANSFORMATION"}]}


def counts_of_a_run(
    on_progress: Callable[[Progress], None] | None = None, open_counts: OpenCounts | None = None
) -> RunCounts:
    """Counts of a run without subscriptions whose micro-batches Python writes."""
    open_counts = open_counts or OpenCounts()
    return RunCounts("r", whole=False, on_progress=on_progress, subscriptions=lambda: None, open_counts=open_counts)


def test_a_batch_is_reported_after_its_commit() -> None:
    """A written micro-batch counts at once; its progress is reported with Spark's report on it."""
    reported: list[Progress] = []
    counts = RunCounts(
        "r", whole=False, on_progress=reported.append, subscriptions=lambda: None, open_counts=OpenCounts()
    )
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
    counts = counts_of_a_run()
    counts.add_written(0, Counts(read=2, delivered=2), counts.begin(), revision=None)
    stopped = counts.result(stopped=True)
    counts.complete(0)
    result = counts.result(stopped=False)

    assert (stopped.counts, stopped.batches, stopped.stopped) == (Counts(read=2, delivered=2), 1, True)
    assert (result.counts, result.batches, result.stopped) == (stopped.counts, 1, False)


def test_losses_are_said_and_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks and the source have stepped over is a warning of the run at once, and a count; each loss is one."""
    open_counts = OpenCounts()
    monkeypatch.setattr(open_counts, "losses", lambda: ["3 are gone"])
    counts = counts_of_a_run(open_counts=open_counts)
    query = Query()
    counts.report_open()
    latest = {"S": 5, "S.warning": "3 are gone", "a.warning": {"0": 5}, ":0.warning": "other data"}
    query.reports.append(Report(1, sources=[SimpleNamespace(latestOffset=json.dumps(latest))]))

    counts.take_reports(cast("StreamingQuery", query), 1.0)

    assert [record.message for record in caplog.records] == ["route r: 3 are gone", "route r: other data"]
    assert counts.counts() == Counts(losses=2)
