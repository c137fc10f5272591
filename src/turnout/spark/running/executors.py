"""Watch over the executors of a cluster, or its Spark Connect server: what a run does while it has none."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from turnout.base.background import Background, run_once
from turnout.base.files import scratch_folder
from turnout.errors import RunError
from turnout.loops import fill_cache
from turnout.runtime.publishing import TALLY
from turnout.spark.columns import map_in_arrow
from turnout.spark.endpoints import ReadOptions, endpoint_of, reads_splits, register_source
from turnout.spark.session.jvm import is_connect, knock
from turnout.spark.stage import SparkStage

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql.types import StructType

    from turnout.routes import Route


def plan_read(spark: SparkSession) -> None:
    """Have Spark plan a read of a Python source, for which it starts one process for each of three steps."""
    register_source(spark, _NothingDataSource)
    spark.read.format(_NothingDataSource.name()).load().collect()


class _NothingDataSource(DataSource, DataSourceReader):
    """Source without rows, and its own reader; its module imports little, as its processes do the same."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "turnout-nothing"

    def schema(self) -> str:
        """Return a column."""
        return "nothing int"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there are no rows
        """Return the reader."""
        return self

    def partitions(self) -> Sequence[InputPartition]:
        """Return no partitions: PySpark plans an empty one then."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002 - there are no rows
        """Return no rows."""
        return iter(())


_warmed: set[str] = set()


def warm_up(spark: SparkSession, stage: SparkStage) -> None:
    """Start the processes that plan reads of sources, the one that forks workers, and two workers with the route.

    It is done on threads, once per application. It takes a second and more, in which the first micro-batch would wait,
    and the driver's own second of reading subscriptions and planning continues in parallel. Nothing depends on it: a
    failure here repeats where it is reported.
    """
    context = getattr(spark, "sparkContext", None)
    name = getattr(context, "applicationId", None)
    if name is None or name in _warmed:
        return
    _warmed.add(name)
    # The process that forks workers loads the loops from it.
    fill_cache()
    tasks = map_in_arrow(spark.range(2, numPartitions=2), _Ready(stage), TALLY)
    run_once("warm-up of workers", tasks.collect, level=logging.DEBUG)
    if stage.splits:
        run_once("warm-up of plans", lambda: plan_read(spark), level=logging.DEBUG)


def warm_up_query(spark: SparkSession) -> None:
    """Run a streaming query of one row, as a route is one: the JVM loads and compiles what the first one needs."""
    fill_cache()
    register_source(spark, _OneRow)
    with scratch_folder("warm-up") as folder:
        rows = map_in_arrow(spark.readStream.format(_OneRow.name()).load(), _same, "n bigint")
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()


def keep_ready(spark: SparkSession, routes: Iterable[Route]) -> None:
    """Have Spark use the processes with which runs of these routes begin: it ends idle ones after a minute.

    Of several routes from one format one is enough. A run needs no `warm_up` then, whose tasks its own would wait for.
    """
    for route in {route.source.format: route for route in routes}.values():
        stage = SparkStage.of(route, splits=reads_splits(route.source))
        map_in_arrow(spark.range(2, numPartitions=2), _Ready(stage), TALLY).collect()
        if stage.splits:
            endpoint_of(route.source).read(spark, ReadOptions(splits=True))
    plan_read(spark)
    _warmed.add(spark.sparkContext.applicationId)


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


class _OneRow(DataSource):
    @classmethod
    def name(cls) -> str:
        return "turnout-warm-up"

    def schema(self) -> str:
        return "n bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's names
        return _OneRowReader()


class _OneRowReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(n) for n in range(start["n"], end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class _Ready:
    """A task that does nothing but make its worker's program of the route.

    Args:
        stage: stage of the route.
    """

    def __init__(self, stage: SparkStage) -> None:
        self._stage = stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield from self._stage.nothing()


_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 15.0
"""A cluster that has room starts an executor in less."""

_REPEATED_SECONDS: Final = 300.0
_KNOCK_SECONDS: Final = 5.0
"""Seconds between two connections to a Spark Connect server."""


class ExecutorWatch:
    """Thread that warns while a cluster grants no executors, and cancels a bounded run's jobs then, if it is to stop.

    Spark waits for executors for ever, and says so in its own log. Of a Spark Connect server, which alone knows its
    executors, it watches that it accepts connections: PySpark repeats requests in silence. In a local session it does
    nothing.

    Args:
        route: name of the route.
        spark: session of the run.
        stop: set when the run is to stop.
    """

    def __init__(self, route: str, spark: SparkSession, stop: threading.Event) -> None:
        self._route = route
        self._stop = stop
        self._context = None if is_connect(spark) else spark.sparkContext
        self._granted = self._context is None or _is_local(str(self._context.master))
        self._connect = spark if self._context is None else None
        self._is_watched = not self._granted or self._connect is not None
        self._job_group = f"turnout-{route}"
        every = _POLL_SECONDS if self._connect is None else _KNOCK_SECONDS
        self._background = Background(f"route {route}: watch of Spark's executors", self._poll, every=every)
        self._since, self._warned = time.monotonic(), -_REPEATED_SECONDS
        self.waits = False
        """True while Spark has work to do, and no executor to do it."""
        self.cancels = False
        """True once jobs were cancelled at a stop: that they fail is no failure of the run."""

    def __enter__(self) -> Self:
        if self._is_watched:
            self._background.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._is_watched:
            self._background.close()

    @property
    def granted(self) -> bool:
        """True if the cluster has granted an executor, or does so when there is work."""
        return self._granted and not self.waits

    def own_jobs(self) -> None:
        """Have the jobs of the calling thread cancelled at a stop without executors."""
        if self._context is not None and self._is_watched:
            self._context.setJobGroup(self._job_group, f"route {self._route}")

    def _poll(self) -> None:
        if self._connect is not None:
            self._knock(self._connect)
            return
        scala = self._context._jsc.sc()  # type: ignore[union-attr]  # noqa: SLF001 - PySpark has no way to ask
        try:
            # The driver is one of them.
            executors = scala.getExecutorMemoryStatus().size() - 1
            works = bool(scala.statusTracker().getActiveJobIds())
            grants_later = scala.getConf().getBoolean("spark.dynamicAllocation.enabled", False)
        except (Py4JError, OSError):
            # The JVM has ended, which the run itself reports.
            self._background.stop()
            return
        now = time.monotonic()
        self._granted = self._granted or executors > 0 or (grants_later and not works)
        self.waits = works and executors == 0
        if not self.waits and self._granted:
            if self._warned > 0:
                _log.warning("route %s: Spark has executors, and the run continues", self._route)
            self._since, self._warned = now, -_REPEATED_SECONDS
            return
        if now - self._since >= _PATIENCE_SECONDS and now - self._warned >= _REPEATED_SECONDS:
            self._warned = now
            _log.warning("route %s %s", self._route, _problem(scala, now - self._since))
        if self.waits and self._stop.is_set():
            self.cancels = True
            with suppress(Py4JError, OSError):
                scala.cancelJobGroup(self._job_group)

    def _knock(self, session: SparkSession) -> None:
        """Warn while the server of a Spark Connect session accepts no connections."""
        now = time.monotonic()
        try:
            knock(session)
        except RunError as failure:
            if now - self._since >= _PATIENCE_SECONDS and now - self._warned >= _REPEATED_SECONDS:
                self._warned = now
                text = (
                    "route %s waits: %s, for %.0f s. Requests are repeated for about a minute, then the run ends; its"
                    " checkpoint stays. Start the server, and then this command again"
                )
                _log.warning(text, self._route, failure, now - self._since)
            return
        if self._warned > 0:
            _log.warning("route %s: the Spark Connect server answers again", self._route)
        self._since, self._warned = now, -_REPEATED_SECONDS


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _problem(scala: JavaObject, seconds: float) -> str:
    conf, master = scala.getConf(), str(scala.master())
    memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", "all cores of a worker")
    host = conf.get("spark.driver.host", "?")
    where = (
        "`kubectl describe pods` shows why executors are pending"
        if master.startswith("k8s")
        else ("The cluster's own page shows its workers and the application")
    )
    return (
        f"waits: {master} has granted Spark no executor for {seconds:.0f} s. Check that the cluster has workers with "
        f"room for one (spark.executor.memory {memory}, spark.executor.cores {cores}), and that they can connect to "
        f"this process at {host} (spark.driver.host): set these under spark in the route. {where}. SIGTERM or Ctrl-C "
        "ends the run"
    )
