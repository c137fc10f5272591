"""Run of a route: reads, transforms, maps, matches, delivers, and reports the outcome of every record."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import reduce
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from turnout.base.background import Background
from turnout.base.files import scratch_folder
from turnout.errors import Mistake, RunError, TurnoutError
from turnout.routes import Route
from turnout.runtime.checkpoint import checkpoint_of, claimed, keep_private, local_folder, mend
from turnout.runtime.java import run_error
from turnout.runtime.lake.lookups import with_rows
from turnout.runtime.leases import Fence, FenceServer, Permit, guard_process
from turnout.runtime.offsets import Progress, RunResult, StartupStep, encoded
from turnout.runtime.open_splits import SLOTS, SlotUse
from turnout.runtime.preflight import make_delay_stream, make_webhook_streams, preflight
from turnout.runtime.publishing import log_failures
from turnout.spark.endpoints import (
    BatchId,
    ReadOptions,
    activate,
    endpoint_of,
    has_transactions,
    publishes,
    reads_splits,
    task_slots,
)
from turnout.spark.running.counts import RunCounts, counts_of, observed, write_all
from turnout.spark.running.executors import ExecutorWatch, keep_ready, warm_up, warm_up_query
from turnout.spark.running.parts import parts_of
from turnout.spark.session.build import local_copy, missing_properties, server_session, session_for
from turnout.spark.session.jvm import driver_address, ending_in_words, how_jvm_ended, is_connect
from turnout.spark.stage import SparkStage
from turnout.traces.spans import EXPORT_SECONDS

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
"""Property of Spark's threads with the id of their query."""

_PLANNED = "Writing offsets to log"
"""Spark's word for a query that writes down the plan of a micro-batch."""

_POLL_SECONDS = 0.1
_PAUSING_SECONDS = 0.05
"""Seconds between two checks of a query whose source is paused: a hand-over between servers waits for it."""
_IDLE_SECONDS = 1.0
"""The longest pause between two checks of an idle query: a check costs half a
millisecond, of each route of a server."""
_LONGER = 1.1
"""Growth factor of an idle query's pause, which reaches its maximum after ten seconds."""
_COMMIT_SECONDS = 15.0
"""Seconds that the commit of a finished micro-batch may take; a stop then proceeds and the micro-batch is repeated."""


def run(
    route: Route,
    spark: SparkSession,
    *,
    once: bool = False,
    checkpoint: str | Path | None = None,
    stop: threading.Event | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_step: Callable[[StartupStep], None] = lambda _: None,
    on_ready: Callable[[], None] | None = None,
) -> RunResult:
    """Run the route until its source ends, its trigger ends the run, or *stop* is set.

    A streaming run continues from its checkpoint. Records are delivered at least once; into JetStream exactly
    once, as long as a micro-batch is done again within the stream's duplicate window, and into Kafka with transactions.

    Args:
        route: route to run.
        spark: session to run it in.
        once: do all there is and stop, whatever the route's trigger says.
        checkpoint: the folder of the run's progress; the route's own, or one beside its file, if not given. With Spark
            Connect it is on the server's machine, and has to be given here or by the route.
        stop: set it to end the run after the micro-batch that is under way.
        on_progress: called after each micro-batch.
        on_step: called with the phase of the run until the first of them.
        on_ready: called once, when a streaming run reads: later records wait for no preparation.

    Raises:
        ConnectionLostError: a server cannot be reached.
        StreamError: a stream of the route does not exist.
        RunError: the session is one of Spark Connect and the route needs more than that, and nothing has run; or the
            run failed: delivered messages stay delivered, and a later run continues from the checkpoint.
    """
    remote = is_connect(spark)
    if remote:
        _refuse_over_connect(route, checkpoint)
    route = preflight(route)
    folder = str(checkpoint or checkpoint_of(route))
    streaming = not route.source.is_bounded
    # A Connect server's checkpoint is not to be looked for on this machine.
    local_checkpoint = local_folder(folder) if streaming and not remote else None
    with ending_in_words(route.name, spark, local_checkpoint), ExitStack() as resources:
        if local_checkpoint is not None:
            keep_private(folder)
        resources.enter_context(claimed(local_checkpoint))
        mend(route, local_checkpoint)
        if route.tables:
            with local_copy(spark, folder if streaming and not remote else None) as copy:
                route = with_rows(route, copy, renew=True, keep=True)
        make_webhook_streams(route)
        make_delay_stream(route)
        stop = stop or threading.Event()
        work = _Run(route, spark, folder, local_checkpoint, stop, on_progress, resources, on_ready)
        result = work.stream(once=once, on_step=on_step) if streaming else work.batch(on_step)
        if work.stage.traces is not None and not stop.is_set():
            # The session may end now, and its workers with the spans that they have not exported yet.
            time.sleep(1.2 * EXPORT_SECONDS)
        return result


def _refuse_over_connect(route: Route, checkpoint: str | Path | None) -> None:
    """Raise if Spark Connect cannot run the route: no Python beside Spark's driver, or no checkpoint."""
    cannot = f"the route {route.name!r} cannot run in a session of Spark Connect"
    if not (reads_splits(route.source) and publishes(route.sinks)):
        raise RunError(
            f"{cannot}: only between NATS and Kafka does Spark run a route, and other ends are written from "
            "the process of Spark's driver; run it with a classic session, as `turnout run` does"
        )
    if checkpoint is None and route.checkpoint is None:
        raise RunError(
            f"{cannot} without a checkpoint: it is kept where the server runs, so name a folder or a URL there"
        )


class _StoppedError(Exception):
    """Raised inside a micro-batch that begins after a stop of the run was requested."""


class _Run:
    """Run in progress.

    Between NATS and Kafka Spark runs the whole route, planned once: Python hears of it by Spark's reports, and ends it
    by pausing its source. Of other ends each micro-batch is written by `deliver`, on a thread of Spark's.
    """

    def __init__(
        self,
        route: Route,
        spark: SparkSession,
        checkpoint: str,
        local_checkpoint: Path | None,
        stop: threading.Event,
        on_progress: Callable[[Progress], None] | None,
        resources: ExitStack,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self.route = route
        self.spark = spark
        self.checkpoint = checkpoint
        self.stop = stop
        self.on_ready = on_ready
        scratch = resources.enter_context(scratch_folder("run"))
        self.executors = resources.enter_context(ExecutorWatch(route.name, spark, self.stop))
        self.pause = scratch / "pause"
        stage = SparkStage.of(route, splits=reads_splits(route.source)).held_to_brokers(route)
        for sink in route.sinks.values():
            endpoint_of(sink).prepare()
        warm_up(spark, stage)
        self.whole = stage.splits and publishes(route.sinks)
        self.parts = parts_of(route, spark, local_checkpoint, scratch, resources, whole=self.whole)
        self.stage = reduce(lambda stage, part: part.stage(stage), self.parts.every, stage)
        self.fence = None if self.stage.fence is None else Fence(self.stage.fence)
        self.counts = RunCounts(
            route.name,
            whole=self.whole,
            on_progress=on_progress,
            subscriptions=self.parts.subscriptions,
            open_counts=self.parts.open_counts,
        )
        self.between_batches = threading.Lock()
        self.failure: BaseException | None = None
        self.pause_between = _POLL_SECONDS

    # One micro-batch

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Process one micro-batch completely; it is counted when every sink has acknowledged it."""
        with self.between_batches:
            if self.stop.is_set():
                raise _StoppedError
            if self.fence is not None:
                self.fence.check()
            begun = self.counts.begin()
            stage = reduce(lambda stage, part: part.batch(batch, stage), self.parts.every, self.stage)
            query = None if self.route.source.is_bounded else rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
            metrics = write_all(self.route, rows, stage, None if query is None else BatchId(query, batch))
            log_failures(metrics, route=self.route.name)
            self.counts.add_written(batch, counts_of(metrics), begun, stage.revision)

    # The whole

    def batch(self, on_step: Callable[[StartupStep], None]) -> RunResult:
        """Run one pass over a bounded source."""
        on_step(StartupStep.FIRST_BATCH)
        self.executors.own_jobs()
        try:
            self.deliver(endpoint_of(self.route.source).read(self.spark, ReadOptions()), 0)
        except Exception as failure:
            if self.stop.is_set() and self.executors.cancels:
                return self.counts.result(stopped=True)
            if not isinstance(failure, PySparkException):
                raise
            raise run_error(f"route {self.route.name} failed", failure) from failure
        self.counts.complete(0)
        return self.counts.result(stopped=self.stop.is_set())

    def stream(self, *, once: bool, on_step: Callable[[StartupStep], None]) -> RunResult:
        """Run micro-batches until the trigger, the caller or a failure ends them."""
        if self.route.subscriptions is not None:
            on_step(StartupStep.SUBSCRIPTIONS)
        for part in self.parts.every:
            part.begin(once=once)
        try:
            query = self._start(once=once)
            on_step(StartupStep.FIRST_BATCH)
            try:
                self._follow(query, lasting=not (once or self.route.trigger.available_now))
            finally:
                self._end(query)
            if not self.stop.is_set():
                for part in self.parts.every:
                    part.finish()
        except PySparkException as failure:
            if self.whole or not self.stop.is_set() or self.failure is not None:
                error = self._run_error(failure)
                # Of an error that is its own cause a walk through the causes has no end.
                raise error from (failure if error is self.failure else self.failure or failure)
        except Exception as failure:
            if not self._stopped_without_jvm(failure):
                raise
        return self.counts.result(stopped=self.stop.is_set())

    def _stopped_without_jvm(self, failure: Exception) -> bool:
        """Return True if a stop was requested and the JVM ended meanwhile: the counts are valid."""
        ended = how_jvm_ended(self.spark, failure) if self.stop.is_set() else None
        if ended is not None:
            warning = "route %s: Spark's JVM ended %s before the run did; the next run repeats the unfinished work"
            _log.warning(warning, self.route.name, ended)
        return ended is not None

    def _start(self, *, once: bool) -> StreamingQuery:
        trigger = self.route.trigger
        writer = self._writer(self._read()).queryName(self.route.name).option("checkpointLocation", self.checkpoint)
        if once or trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger.processing_time:
            writer = writer.trigger(processingTime=trigger.processing_time)
        return writer.start()

    def _read(self) -> DataFrame:
        options = ReadOptions(
            latency=self.route.trigger.latency,
            # A route with an interval has its own pause.
            wait=self.route.trigger.processing_time is None,
            pause_file=str(self.pause) if self.whole and not is_connect(self.spark) else None,
            splits=self.stage.splits,
            stage=encoded(self.stage) if self.whole else None,
            more={
                **{name: value for part in self.parts.every for name, value in part.options.items()},
                **({"fixedPlan": "true"} if has_transactions(self.route) else {}),
            },
        )
        return endpoint_of(self.route.source).read(self.spark, options)

    def _writer(self, rows: DataFrame) -> DataStreamWriter:
        if self.whole:
            activate(self.spark)
            return observed(self.route, rows).writeStream.format("noop")
        return rows.writeStream.foreachBatch(self._guarded)

    def _guarded(self, rows: DataFrame, batch: int) -> None:
        """Run `deliver` and keep the first failure, as Spark passes on only its text."""
        try:
            self.deliver(rows, batch)
        except _StoppedError:
            raise
        except BaseException as failure:
            self.failure = self.failure or failure
            raise

    def _follow(self, query: StreamingQuery, *, lasting: bool) -> None:
        while query.isActive:
            before = self.counts.batches
            self._take_reports(query)
            self.counts.report_open()
            for part in self.parts.every:
                part.follow()
            self._report_ready(query)
            idle = lasting and self.counts.batches == before
            self.pause_between = min(_IDLE_SECONDS, self.pause_between * _LONGER) if idle else _POLL_SECONDS
            if self.stop.wait(self.pause_between):
                if is_connect(self.spark):
                    self._let_report(query)
                elif self.whole:
                    self._pause(query)
                else:
                    self._let_finish(query)
                return
        # Ended by itself: raises its failure, if any.
        query.awaitTermination()

    def _pause(self, query: StreamingQuery) -> None:
        """Pause the source, and wait for two idle polls: Spark may have requested data just before the pause."""
        self.pause.touch()
        for part in self.parts.every:
            part.pause()
        idle, deadline = 0, time.monotonic() + _COMMIT_SECONDS
        # Without executors the micro-batch does not end: it is run again later.
        while query.isActive and idle < 2 and self.executors.granted:
            time.sleep(_PAUSING_SECONDS)
            self._take_reports(query)
            status = query.status
            # Of a micro-batch that is planned already Spark says so only when its offsets are written, which takes an
            # object store long: it has to be finished, or the next run repeats it.
            planned = status["isDataAvailable"] or status["message"] == _PLANNED
            working = status["isTriggerActive"] and planned
            # Behind an open split the source has Spark commit the place that it has reached.
            follows = self.parts.open_counts.is_last and time.monotonic() < deadline
            idle = 0 if working or follows else idle + 1
        if not query.isActive:
            query.awaitTermination()

    def _let_report(self, query: StreamingQuery) -> None:
        """Wait for the end of a micro-batch if the source cannot be paused: the next one is run again later."""
        ended, deadline = self.counts.batches, time.monotonic() + _COMMIT_SECONDS
        while self.counts.batches == ended and query.isActive and time.monotonic() < deadline:
            if not query.status["isDataAvailable"]:
                return
            time.sleep(_POLL_SECONDS / 2)
            self._take_reports(query)

    def _let_finish(self, query: StreamingQuery) -> None:
        """Wait for the current micro-batch and its commit; a later one sees the stop request and ends."""
        while not self.between_batches.acquire(timeout=_POLL_SECONDS):
            if not self.executors.granted:
                return
        self.between_batches.release()
        deadline = time.monotonic() + _COMMIT_SECONDS
        while self.counts.awaits_commit and query.isActive and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 2)
            self._take_reports(query)

    def _end(self, query: StreamingQuery) -> None:
        try:
            query.stop()
            self._take_reports(query)
        finally:
            for part in self.parts.every:
                part.end()
            # Counts recorded by now are not reported again by the next run of this process.
            self.counts.report_open()

    def _take_reports(self, query: StreamingQuery) -> None:
        self.counts.take_reports(query, self.pause_between)

    def _report_ready(self, query: StreamingQuery) -> None:
        """Say once that the run reads."""
        if self.on_ready is None or not self.executors.granted:
            return
        prepared = all(part.ready for part in self.parts.every) or self.counts.counts().read > 0
        if prepared and not query.status["message"].startswith("Initializing"):
            self.on_ready()
            self.on_ready = None

    def _run_error(self, failure: PySparkException) -> TurnoutError:
        if isinstance(self.failure, TurnoutError) and not isinstance(self.failure, RunError):
            return self.failure
        return run_error(f"route {self.route.name} failed", self.failure or failure)


_READY_SECONDS = 45.0
"""Seconds between two uses of the processes of a standby."""

_FAIR = {"spark.scheduler.mode": "FAIR"}


class Application:
    """Runs routes, each on the calling thread and in its own session with its own properties.

    The tasks of routes take turns (FAIR scheduling): one that reads a year of messages does not keep a trickle waiting.
    Settings of the JVM as a whole, like its memory or jars, have to be known when it starts.

    Args:
        routes: the known routes; the application gets the dependencies of their endpoints, as a connector.
        master: Spark's master.
        properties: Spark properties, over turnout's own.
        log: file for the standard error of the JVM and the workers.
    """

    def __init__(
        self,
        routes: Iterable[Route] = (),
        *,
        master: str = "local[*]",
        properties: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        routes = list(routes)
        self._session: SparkSession = server_session(
            routes, master=master, properties={**_FAIR, **(properties or {})}, log=log
        )
        # Read once: later callers, like metrics, need not wait for the JVM.
        self._id = str(self._session.sparkContext.applicationId)
        self._slots = task_slots(self._session)
        self._routes = routes
        self._stop_warming: Callable[[], None] = lambda: None
        self._closed = False
        self._resources = ExitStack()

    def guard(self, permit: Callable[[], Permit]) -> Callable[[], bool]:
        """Write only while the lease of a leader permits it, on all machines of the application.

        Returns:
            A function that returns True when the application is warmed up.
        """
        fence = self._resources.enter_context(FenceServer(permit, driver_address(self._session)))
        guard_process(fence.address)
        # A standby has time for what a takeover would wait for.
        session, is_warm = self._session.newSession(), threading.Event()

        def prepare() -> None:
            try:
                if not is_warm.is_set():
                    warm_up_query(session)
                keep_ready(session, self._routes)
            finally:
                # A standby that can lead, only later, is one.
                is_warm.set()

        warming = self._resources.enter_context(Background("warm-up of the standby", prepare, every=_READY_SECONDS))
        self._stop_warming = warming.stop
        return is_warm.is_set

    def mistakes(self, route: Route) -> list[Mistake]:
        """Return the properties that require a restart of the application."""
        return [
            Mistake(
                name, f"a running application cannot take {value!r}: set it in turnout.yaml, and start the server again"
            )
            for name, value in missing_properties(self._session, route).items()
        ]

    def run(self, route: Route, *, stop: threading.Event, on_progress: Callable[[Progress], None]) -> RunResult:
        """Run the route on the calling thread, until it ends or is to stop; see `turnout.spark.running.job.run`."""
        self._stop_warming()
        try:
            # Holds for this thread, and those that Spark starts from it.
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", route.name)
            session = session_for(self._session, route)
            return run(route, session, stop=stop, on_progress=on_progress)
        except PySparkException as failure:
            raise run_error(f"route {route.name} failed", failure) from failure
        except (ConnectionError, EOFError) as failure:
            if self.alive():
                raise
            raise RunError(f"route {route.name} failed: the Spark session has ended") from failure

    def slots(self) -> SlotUse:
        """Return the use of the application's task slots by open splits."""
        return SLOTS.use(self._id, self._slots)

    def alive(self) -> bool:
        """Return True if the JVM answers."""
        with suppress(Exception):
            # A question that a context which has stopped refuses, as a JVM does which is no longer there.
            return not self._closed and self._session.sparkContext.defaultParallelism > 0
        return False

    def close(self) -> None:
        """Stop the application."""
        self._closed = True
        # It may be under way, and then ends with the session.
        self._stop_warming()
        with suppress(Exception):
            self._session.stop()
        self._resources.close()
