"""Spark's reports on micro-batches are taken once each, whatever the pace of the looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.spark.running.reports import Reports, ended_at, metrics_of, revision_of


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
