"""What Spark reports on the micro-batches of a query, each once."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Reports", "ended_at"]


class Reports:
    """The reports of a query that came since the last look.

    Spark keeps the newest hundred; to ask for all of them costs it 40 ms, and to ask for the last one of them less than
    one. Idle triggers are reported as well, under the number of the micro-batch to come and without metrics.
    """

    def __init__(self, metrics: str) -> None:
        self._metrics = metrics
        self._last: int | None = None

    def new(self, query: StreamingQuery) -> list[StreamingQueryProgress]:
        """The reports of finished micro-batches, in order.

        Args:
            query: whose they are; running or ended.
        """
        newest = query.lastProgress
        if newest is None or (self._last is not None and newest.batchId <= self._last):
            return []
        follows = self._last is not None and newest.batchId == self._last + 1
        found = [
            report
            for report in ([newest] if follows else query.recentProgress)
            if self._metrics in report.observedMetrics and (self._last is None or report.batchId > self._last)
        ]
        self._last = newest.batchId if self._metrics in newest.observedMetrics else newest.batchId - 1
        return found


def ended_at(report: StreamingQueryProgress) -> float:
    """When the micro-batch of a report ended, in seconds since the epoch."""
    return datetime.fromisoformat(report.timestamp).timestamp() + report.batchDuration / 1000
