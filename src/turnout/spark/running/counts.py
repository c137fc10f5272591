"""Plan of a run whose rows Spark counts, and the counts and times of its micro-batches."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from turnout.base.untrusted import JsonMapping, is_whole
from turnout.codecs import codec_of
from turnout.engine.counts import Counts
from turnout.engine.dead_letters import IN_FULL
from turnout.records import Schema
from turnout.records.types import DynamicValue
from turnout.routes import Route
from turnout.routes.endpoints import TableSink
from turnout.routes.endpoints.tables import MATCH_SIGN, ColumnSpec
from turnout.routes.rows import RECORD_ROWS, RowPlan, value_after
from turnout.runtime.offsets import REVISION, WARNING, Progress, RunResult
from turnout.runtime.open_task import RECORD_SECONDS
from turnout.runtime.publishing import FAILURES, FAILURES_COUNT, TALLY, log_failures, sum_of
from turnout.spark.columns import as_texts, map_in_arrow, spark_type
from turnout.spark.endpoints import BatchId, SparkEndpoint, endpoint_of, publishes
from turnout.spark.stage import MESSAGE_ID, MESSAGES, ROW, SINK, SparkStage
from turnout.traces.spans import Span, SpanContext, TraceSettings, micro_batch_context

OBSERVED: Final = "turnout"
"""The name under which a streaming query reports the counts of a micro-batch."""


def observed(route: Route, rows: DataFrame, observation: str | Observation = OBSERVED) -> DataFrame:
    """Return the rows of a stage, whose counts and failures Spark reports."""
    return rows.observe(observation, *_metrics(route))


def write_all(route: Route, rows: DataFrame, stage: SparkStage, batch: BatchId | None = None) -> dict[str, object]:
    """Run the route over a frame and write to every sink; return the observations after all acknowledgements.

    Args:
        route: the route.
        rows: records; where the stage reads splits and publishes, the counts that a source has run it for.
        stage: stage of the route.
        batch: names the micro-batch for tables; None for a source that is read once.
    """
    observation = Observation()
    if publishes(route.sinks):
        counts = rows if stage.splits else map_in_arrow(rows, stage.publish, TALLY)
        _into_nothing(observed(route, counts, observation))
        return observation.get
    sinks = [endpoint_of(sink) for sink in route.sinks.values()]
    batches = [None if batch is None else batch._replace(sink=name) for name in route.sinks]
    plans = _row_plans(route, rows, sinks)
    stage = stage.with_plans(plans)
    columns = cast("StructType", StructType.fromDDL(MESSAGES))
    for number, schema in stage.columns.items():
        columns.add(f"{ROW}{number}", spark_type(schema))
    messages = observed(route, map_in_arrow(rows, stage.rows, columns), observation)
    if len(sinks) == 1 and sinks[0].observable:
        if not _write(sinks[0], messages, 0, plans, batches[0], F.col(SINK).isNotNull()):
            # The table has the micro-batch: it is counted again.
            _into_nothing(messages)
        return observation.get
    messages = messages.persist()
    try:
        # Kafka's writer runs the plan out of Spark's sight: its observations are never reported.
        _into_nothing(messages)
        for index, sink in enumerate(sinks):
            _write(sink, messages, index, plans, batches[index], F.col(SINK) == index)
    finally:
        messages.unpersist()
    return observation.get


def _row_plans(route: Route, rows: DataFrame, sinks: Sequence[SparkEndpoint]) -> dict[int, RowPlan]:
    """Return the columns of the sinks that are tables, by the index of the sink."""
    if not any(isinstance(sink, TableSink) for sink in route.sinks.values()):
        return {}
    own = endpoint_of(route.source).value_schema(rows)
    read = own if own is not None else codec_of(route.value).schema()
    after = value_after(route.chain, codec_of(route.key).schema(), read)
    paths = [f"sinks.{name}" if name else "sink" for name in route.sinks]
    found = [one.plan(rows.sparkSession, after, path) for one, path in zip(sinks, paths, strict=True)]
    return {number: plan for number, plan in enumerate(found) if plan is not None}


def _write(
    sink: SparkEndpoint,
    messages: DataFrame,
    number: int,
    plans: Mapping[int, RowPlan],
    batch: BatchId | None,
    own: Column,
) -> bool:
    """Write the messages of one sink; return False if it has them already."""
    if number not in plans:
        sink.write(messages.where(own), MESSAGE_ID)
        return True
    if plans[number] is RECORD_ROWS:
        messages = as_texts(messages)
    rows = messages.where(own).select(*(_content(spec, schema, number) for spec, schema in plans[number].columns))
    return sink.write_rows(rows, plans[number], batch)


def _content(spec: ColumnSpec, schema: Schema, number: int) -> Column:
    """Return a column of a table: a field of the row, or another part of its message."""
    column = F.col(f"{ROW}{number}")
    if spec.part == "value":
        for name in spec.path:
            column = column[name]
    elif spec.part.startswith("match."):
        parts = ("position", "revision", "subscription")
        column = F.split(MESSAGE_ID, MATCH_SIGN)[parts.index(spec.part.removeprefix("match."))]
    elif spec.part == "headers" and spec.path:
        named = F.filter("headers", lambda header: header["key"] == spec.path[0])
        column = F.try_element_at(named, F.lit(-1))["value"].cast("string")
    else:
        column = F.col({"messageId": MESSAGE_ID, "body": "value"}.get(spec.part, spec.part))
    return column.cast(spark_type(schema)).alias(spec.name)


def _into_nothing(rows: DataFrame) -> None:
    rows.write.format("noop").mode("append").save()


def _metrics(route: Route) -> list[Column]:
    """Return the texts of the tasks' counts, for `counts_of`, and the first failures if the route logs them."""
    counts = F.collect_list("counts").alias("counts")
    if not route.errors.log:
        return [counts]
    offset = F.get_json_object("failure", "$.offset").cast("bigint")
    order = F.when(F.col("failure").isNotNull(), F.coalesce(offset, F.lit(0)))
    return [
        counts,
        F.min_by("failure", order, IN_FULL).alias(FAILURES),
        F.sum("failures").alias(FAILURES_COUNT),
    ]


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


def metrics_of(report: StreamingQueryProgress, name: str) -> JsonMapping:
    """Return the observed metrics of a name; empty if no row was observed."""
    observed = report.observedMetrics.get(name)
    metrics: JsonMapping = {} if observed is None else _by_name(observed.asDict())
    return metrics


def _by_name(value: DynamicValue) -> DynamicValue:
    """Return a value with its rows as dicts: Spark Connect gives a row as its values and its schema apart."""
    if isinstance(value, list):
        return [_by_name(item) for item in value]
    if not isinstance(value, Mapping) or set(value) != {"schema", "values"}:
        return value
    schema = value["schema"]
    fields = schema["fields"] if isinstance(schema, Mapping) else schema
    return {field["name"]: _by_name(item) for field, item in zip(fields, value["values"], strict=True)}


def counts_of(metrics: JsonMapping) -> Counts:
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


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _AcknowledgedBatch:
    """Micro-batch whose messages are all acknowledged; Spark's report on it may still be missing."""

    counts: Counts
    at: float
    seconds: float
    revision: int | None


class OpenCounts:
    """Counts of records before Spark commits their micro-batch; a run without open splits has none."""

    is_last = False
    """True if the micro-batch that was committed last ends at a place that an open split has reached."""

    @property
    def last_batch(self) -> int:
        """Number of the micro-batch that Spark has planned last; -1 before the first."""
        return -1

    @property
    def revision(self) -> int | None:
        """The revision of the subscriptions that was recorded last."""
        return None

    def counts(self) -> Counts:
        """Return the counts of records that Spark has not committed yet."""
        return Counts()

    def has_news(self) -> bool:
        """Return True if the counts have changed since the last call."""
        return False

    def losses(self) -> list[str]:
        """Return the losses that the source and its tasks have stepped over."""
        return []

    def committed(self, offset: dict[str, int], counts: Counts) -> Counts:  # noqa: ARG002 - by open splits
        """Return the counts of a committed micro-batch, without those that an earlier run of this process reported."""
        return counts


class RunCounts:
    """Counts and times of a run in progress, and their reports to the caller.

    Args:
        route_name: name of the route, for its log.
        whole: True if Spark runs the whole route, so that only its reports have the counts.
        on_progress: called after each micro-batch, and every second of an open split.
        subscriptions: returns the number of the run's subscriptions; None without.
        open_counts: counts of the run's open splits.
    """

    def __init__(
        self,
        route_name: str,
        *,
        whole: bool,
        on_progress: Callable[[Progress], None] | None,
        subscriptions: Callable[[], int | None],
        open_counts: OpenCounts,
    ) -> None:
        self._route_name = route_name
        self._whole = whole
        self._on_progress = on_progress
        self._subscriptions = subscriptions
        self._open = open_counts
        self._reports = Reports()
        self._written: dict[int, _AcknowledgedBatch] = {}
        self._warned: set[str] = set()
        self._traces = TraceSettings.of_process()
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
                self._complete(report.batchId, done, self._traced(query, report.batchId, done))

    def _traced(self, query: StreamingQuery, batch: int, done: _AcknowledgedBatch) -> SpanContext | None:
        """Emit the span of a micro-batch, and return its context; None where no spans are made."""
        if self._traces is None:
            return None
        context = micro_batch_context(str(query.id), batch)
        end = time.time_ns() - int((time.monotonic() - done.at) * 1e9)
        facts: dict[str, str | int] = {
            "turnout.route": self._route_name,
            "turnout.batch": batch,
            "messaging.batch.message_count": done.counts.read,
        }
        name = f"micro-batch {self._route_name}"
        self._traces.exporter.emit([Span(name, context, None, end - int(done.seconds * 1e9), end, attributes=facts)])
        return context

    def _take_losses(self) -> None:
        """Say and count what tasks and source have stepped over; the source's reports have some of it later."""
        for warning in self._open.losses():
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
        counts = self._open.committed(offset_of(report), counts_of(metrics))
        # What an open split has done was reported every second.
        seconds = min(seconds, RECORD_SECONDS) if self._open.is_last else seconds
        self._began = ended - seconds if self._began is None else self._began
        return _AcknowledgedBatch(counts, self._last, seconds, revision_of(report))

    def _complete(self, batch: int, done: _AcknowledgedBatch, context: SpanContext | None = None) -> None:
        """Add a completed micro-batch to the total, and report the progress."""
        self._total += done.counts
        self.batches += 1
        self._report(batch, done.at, done.seconds, done.revision, context)

    def report_open(self) -> None:
        """Report what open splits have counted since the last report, and what was lost."""
        self._take_losses()
        if not self._open.has_news():
            return
        now = time.monotonic()
        seconds = within(0.0, now - self._last, RECORD_SECONDS)
        self._began, self._last = now - seconds if self._began is None else self._began, now
        self._report(self._open.last_batch, now, seconds, self._open.revision)

    def _report(
        self, batch: int, at: float, seconds: float, revision: int | None, context: SpanContext | None = None
    ) -> None:
        if self._on_progress is not None and self._began is not None:
            whole, since = self.counts(), at - self._began
            self._on_progress(Progress(batch, whole, since, seconds, revision, self._subscriptions(), context))

    def counts(self) -> Counts:
        """Return all counts so far, including micro-batches that Spark has not yet committed."""
        return sum((done.counts for done in tuple(self._written.values())), self._total + self._open.counts())

    def result(self, *, stopped: bool) -> RunResult:
        """Return the result of the run."""
        seconds = self._last - self._began if self._began is not None else 0.0
        return RunResult(self.counts(), self.batches + len(self._written), seconds, stopped=stopped)
