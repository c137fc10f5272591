"""Runs a route: reads, transforms, maps, matches, delivers, and says what became of every record."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from turnout.errors import RunError, TurnoutError
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSink, NatsSink
from turnout.spark import pipeline
from turnout.spark.counts import Counts
from turnout.spark.ends import is_batch, look_ahead, pausable, read, write, write_stream
from turnout.spark.error_log import log_failures
from turnout.spark.failures import run_error
from turnout.spark.matching import Matching
from turnout.spark.reports import Reports, ended_at
from turnout.spark.sampling import learn_from_stream
from turnout.subscriptions import open_store

__all__ = ["Progress", "RunResult", "run"]

_WORTH_LEARNING = 1000
"""From so many subscriptions on, a look at typical records before the first micro-batch pays for itself."""

_POLL_SECONDS = 0.1
_COMMIT_SECONDS = 15.0
"""How long the commit of a finished micro-batch may take before a stop goes on without it; it is then done again."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands after a micro-batch.

    Attributes:
        batch: the number of the micro-batch, as in the checkpoint.
        counts: everything since the run began.
        seconds: since the first micro-batch began.
        batch_seconds: that the last micro-batch took, from the match to the last acknowledgement.
        revision: of the subscriptions that it was matched with; None without subscriptions.
    """

    batch: int
    counts: Counts
    seconds: float
    batch_seconds: float
    revision: int | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did.

    Attributes:
        counts: what became of the records.
        batches: how many micro-batches were run.
        seconds: from the first micro-batch's beginning to the end of the last.
        stopped: somebody asked the run to stop; it can go on from its checkpoint.
    """

    counts: Counts
    batches: int
    seconds: float
    stopped: bool = False

    @property
    def records_per_second(self) -> float:
        """Records read for each second of work; 0 where nothing was done."""
        return self.counts.read / self.seconds if self.seconds else 0.0


def run(
    route: Route,
    spark: SparkSession,
    *,
    once: bool = False,
    checkpoint: str | Path | None = None,
    stop: threading.Event | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Run the route until its source ends, the trigger says so, or *stop* is set.

    A streaming run goes on where its checkpoint stands. Records are delivered at least once; into JetStream exactly
    once, as long as a micro-batch is done again within the stream's duplicate window.

    Args:
        route: what to run.
        spark: where to run it.
        once: do all there is and stop, whatever the route's trigger says.
        checkpoint: the folder of the run's progress; the route's own, or one beside its file, if not given.
        stop: set it to end the run after the micro-batch that is under way.
        on_progress: called after each micro-batch.

    Raises:
        ConnectionLostError: a server cannot be reached.
        StreamError: a stream of the route does not exist.
        RunError: the run failed; what was delivered stays delivered, and a later run goes on from the checkpoint.
    """
    look_ahead(route)
    work = _Run(route, spark, stop or threading.Event(), on_progress)
    try:
        if is_batch(route.source):
            return work.batch()
        return work.stream(once=once, checkpoint=str(checkpoint or checkpoint_of(route)))
    finally:
        work.close()


def checkpoint_of(route: Route) -> Path | str:
    """Where the route keeps its progress if nobody says otherwise."""
    if route.checkpoint:
        return route.checkpoint
    beside = route.file.parent if route.file else Path()
    return (beside / ".turnout" / route.name / "checkpoint").absolute()


class _Run:
    """One run under way. Micro-batches are written on a thread of Spark's, all else happens on the caller's.

    Without subscriptions nothing changes from one micro-batch to the next: from NATS to NATS Spark then runs the whole
    route, planned once, in half the time. Python hears of it by Spark's reports, and ends it by pausing its source.
    """

    def __init__(
        self,
        route: Route,
        spark: SparkSession,
        stop: threading.Event,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.route = route
        self.spark = spark
        self.stop = stop
        self.on_progress = on_progress
        self.store = open_store(route.subscriptions.store) if route.subscriptions else None
        self.matching = (
            Matching(spark, self.store, route.subscriptions.metadata, how="auto")
            if self.store and route.subscriptions
            else None
        )
        self.whole = self.matching is None and pausable(route)
        self.folder = tempfile.TemporaryDirectory(prefix="turnout-run-")
        self.pause = Path(self.folder.name) / "pause"
        self.reports = Reports(pipeline.PREPARED)
        self.between_batches = threading.Lock()
        self.written: dict[int, _Written] = {}
        self.total = Counts()
        self.batches = 0
        self.began: float | None = None
        self.last = 0.0
        self.failure: BaseException | None = None

    def close(self) -> None:
        """Let go of the subscriptions, and of what was kept for the run."""
        self.folder.cleanup()
        if self.store is not None:
            self.store.close()

    # One micro-batch

    def deliver(self, prepared: DataFrame, batch: int) -> None:
        """Match, fan out and write one micro-batch; counted when every sink has acknowledged it."""
        with self.between_batches:
            if self.stop.is_set():
                raise _StoppedError
            begun = time.perf_counter()
            self.began = self.began or begun
            if self.matching is not None:
                self.matching.refresh()
            counts = self._write(prepared)
            self.last = time.perf_counter()
            revision = self.matching.revision if self.matching else None
            self.written[batch] = _Written(counts, self.last, self.last - begun, revision)

    def _write(self, prepared: DataFrame) -> Counts:
        observation = Observation()
        messages = pipeline.deliveries(self.route, prepared, self.matching, observation)
        sinks = self.route.sinks
        to_kafka = any(isinstance(sink, KafkaSink) for sink in sinks.values())
        if len(sinks) == 1 and not to_kafka:
            write(messages, next(iter(sinks.values())), pipeline.MESSAGE_ID)
        else:
            messages = messages.persist()
            try:
                if to_kafka:
                    # Kafka's writer runs the plan out of Spark's sight: what is observed there is never reported.
                    messages.write.format("noop").mode("append").save()
                for name, sink in sinks.items():
                    write(messages.where(messages[pipeline.SINK] == name), sink, pipeline.MESSAGE_ID)
            finally:
                messages.unpersist()
        log_failures(observation.get, route=self.route.name)
        return Counts.of(observation.get)

    def _complete(self, batch: int, prepared: Counts) -> None:
        """All is known of a micro-batch now: add it to the total, and tell."""
        done = self.written.pop(batch)
        self.total += prepared + done.counts
        self.batches += 1
        if self.on_progress is not None and self.began is not None:
            since = done.at - self.began
            self.on_progress(Progress(batch, self.counts(), since, done.seconds, done.revision))

    def counts(self) -> Counts:
        """Everything counted until now; micro-batches that Spark has not yet reported on count as far as known."""
        return sum((done.counts for done in tuple(self.written.values())), self.total)

    # The whole

    def batch(self) -> RunResult:
        """One pass over a source that ends."""
        observation = Observation()
        prepared = pipeline.prepare(self.route, read(self.spark, self.route.source), observation)
        try:
            self.deliver(prepared, 0)
        except PySparkException as failure:
            raise run_error(f"route {self.route.name} failed", failure) from failure
        self._complete(0, Counts.of(observation.get))
        return self._result()

    def stream(self, *, once: bool, checkpoint: str) -> RunResult:
        """Micro-batches until the trigger, the caller or a failure ends them."""
        try:
            if self.matching is not None and len(self.matching) >= _WORTH_LEARNING:
                learn_from_stream(self.route, self.spark, self.matching)
            query = self._start(once=once, checkpoint=checkpoint)
            try:
                self._follow(query)
            finally:
                self._end(query)
        except PySparkException as failure:
            if self.whole or not self.stop.is_set() or self.failure is not None:
                raise self._run_error(failure) from (self.failure or failure)
        return self._result()

    def _start(self, *, once: bool, checkpoint: str) -> StreamingQuery:
        trigger = self.route.trigger
        pause = str(self.pause) if self.whole else None
        records = read(self.spark, self.route.source, latency=trigger.latency, pause_file=pause)
        writer = self._writer(pipeline.prepare(self.route, records))
        writer = writer.queryName(self.route.name).option("checkpointLocation", checkpoint)
        if once or trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger.processing_time:
            writer = writer.trigger(processingTime=trigger.processing_time)
        return writer.start()

    def _writer(self, prepared: DataFrame) -> DataStreamWriter:
        sink = next(iter(self.route.sinks.values()))
        if self.whole and isinstance(sink, NatsSink):
            return write_stream(pipeline.deliveries(self.route, prepared, None), sink, pipeline.MESSAGE_ID)
        return prepared.writeStream.foreachBatch(self._guarded)

    def _guarded(self, prepared: DataFrame, batch: int) -> None:
        """`deliver`, with the first failure kept: Spark hands on only its text."""
        try:
            self.deliver(prepared, batch)
        except _StoppedError:
            raise
        except BaseException as failure:
            self.failure = self.failure or failure
            raise

    def _follow(self, query: StreamingQuery) -> None:
        while query.isActive:
            self._take_reports(query)
            if self.stop.wait(_POLL_SECONDS):
                if self.whole:
                    self._pause(query)
                else:
                    self._let_finish(query)
                return
        # Ended by itself: raises what it failed with, if it failed.
        query.awaitTermination()

    def _pause(self, query: StreamingQuery) -> None:
        """Have the source offer nothing more, and wait until Spark has seen it twice: it may have asked just before."""
        self.pause.touch()
        idle = 0
        while query.isActive and idle < 2:
            time.sleep(_POLL_SECONDS)
            self._take_reports(query)
            working = query.status["isTriggerActive"] and query.status["isDataAvailable"]
            idle = 0 if working else idle + 1
        if not query.isActive:
            query.awaitTermination()

    def _let_finish(self, query: StreamingQuery) -> None:
        """Wait for the micro-batch under way, and for Spark to commit it; a next one sees the request and gives up."""
        with self.between_batches:
            deadline = time.monotonic() + _COMMIT_SECONDS
        while self.written and query.isActive and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 2)
            self._take_reports(query)

    def _end(self, query: StreamingQuery) -> None:
        query.stop()
        self._take_reports(query)

    def _take_reports(self, query: StreamingQuery) -> None:
        """Take what was counted from Spark's reports on ended micro-batches."""
        for report in self.reports.new(query):
            if self.whole:
                self.written[report.batchId] = self._reported(report)
            if report.batchId in self.written:
                self._complete(report.batchId, Counts.of(report.observedMetrics[pipeline.PREPARED].asDict()))

    def _reported(self, report: StreamingQueryProgress) -> _Written:
        """A micro-batch that Spark has written by itself."""
        metrics = report.observedMetrics[pipeline.DELIVERED].asDict()
        log_failures(metrics, route=self.route.name)
        self.last, seconds = ended_at(report), report.batchDuration / 1000
        self.began = self.began or self.last - seconds
        return _Written(Counts.of(metrics), self.last, seconds, None)

    def _run_error(self, failure: PySparkException) -> TurnoutError:
        if isinstance(self.failure, TurnoutError) and not isinstance(self.failure, RunError):
            return self.failure
        return run_error(f"route {self.route.name} failed", self.failure or failure)

    def _result(self) -> RunResult:
        seconds = self.last - self.began if self.began is not None else 0.0
        return RunResult(self.counts(), self.batches + len(self.written), seconds, stopped=self.stop.is_set())


@dataclass(frozen=True, slots=True)
class _Written:
    """A micro-batch whose messages are all acknowledged, and of which Spark's report is still to come."""

    counts: Counts
    at: float
    seconds: float
    revision: int | None


class _StoppedError(Exception):
    """Raised inside a micro-batch that begins after somebody asked the run to stop."""
