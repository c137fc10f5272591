"""Spark's reports on the micro-batches of a query, each once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from turnout.base.untrusted import is_whole
from turnout.engine.counts import Counts
from turnout.runtime.offsets import REVISION, WARNING
from turnout.runtime.publishing import sum_of

_RAN = "addBatch"
"""Duration that Spark reports for a micro-batch but not for an idle trigger."""


class Reports:
    """Reports of a query since the last call.

    Spark keeps the newest hundred; reading all of them takes 40 ms, reading the last one less than one. Idle triggers
    are reported as well, under the number of the next micro-batch.
    """

    def __init__(self) -> None:
        self._last: int | None = None

    def new(self, query: StreamingQuery) -> list[StreamingQueryProgress]:
        """Return the new reports of finished micro-batches, in order.

        Args:
            query: query of the reports; running or ended.
        """
        newest = query.lastProgress
        if newest is None or (self._last is not None and newest.batchId <= self._last):
            return []
        follows = self._last is not None and newest.batchId == self._last + 1
        reports = [
            report
            for report in ([newest] if follows else query.recentProgress)
            if _RAN in report.durationMs and (self._last is None or report.batchId > self._last)
        ]
        self._last = newest.batchId if _RAN in newest.durationMs else newest.batchId - 1
        return reports


def ended_at(report: StreamingQueryProgress) -> float:
    """Return the end of a report's micro-batch, in seconds since the epoch."""
    return datetime.fromisoformat(report.timestamp).timestamp() + report.batchDuration / 1000


def metrics_of(report: StreamingQueryProgress, name: str) -> Mapping[str, Any]:
    """Return the observed metrics of a name; empty if no row was observed."""
    observed = report.observedMetrics.get(name)
    metrics: Mapping[str, Any] = {} if observed is None else _by_name(observed.asDict())
    return metrics


def _by_name(value: Any) -> Any:
    """Return a value with its rows as dicts: Spark Connect gives a row as its values and its schema apart."""
    if isinstance(value, list):
        return [_by_name(item) for item in value]
    if not isinstance(value, Mapping) or set(value) != {"schema", "values"}:
        return value
    schema = value["schema"]
    fields = schema["fields"] if isinstance(schema, Mapping) else schema
    return {field["name"]: _by_name(item) for field, item in zip(fields, value["values"], strict=True)}


def counts_of(metrics: Mapping[str, Any]) -> Counts:
    """Return the counts of a micro-batch, from its observations."""
    return sum_of(metrics.get("counts") or ())


def offset_of(report: StreamingQueryProgress) -> dict[str, int]:
    """Return the numbers in the offset that the micro-batch ends at; empty where its source has others."""
    try:
        offset = json.loads(report.sources[0].endOffset)
    except (IndexError, TypeError, ValueError):
        return {}
    return {name: value for name, value in offset.items() if is_whole(value)} if isinstance(offset, dict) else {}


def warnings_of(report: StreamingQueryProgress) -> list[str]:
    """Return the losses that the source has stepped over, one of each of its streams; it has no log of the run's."""
    try:
        latest = json.loads(report.sources[0].latestOffset)
    except (IndexError, TypeError, ValueError):
        return []
    items = latest.items() if isinstance(latest, dict) else ()
    # A topic of Kafka may be named so; its value is an object.
    return [value for name, value in items if name.endswith(WARNING) and isinstance(value, str)]


def revision_of(report: StreamingQueryProgress) -> int | None:
    """Return the revision in the offset that the micro-batch ends at; None where its source has none."""
    return offset_of(report).get(REVISION)


def within(least: float, value: float, most: float) -> float:
    """Return *value*, or the bound that it exceeds."""
    return max(least, min(value, most))
