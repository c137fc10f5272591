"""The one place that builds, or borrows, a SparkSession."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from turnout.routes import Route
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.spark.java import use_java
from turnout.spark.sources.kafka import brings_connector, kafka_properties
from turnout.spark.sources.latency import low_latency_session

__all__ = ["build_session", "route_session"]

_QUIET_LOGS = Path(__file__).with_name("log4j2.properties")

_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
"""Spark makes one method of a whole route. The JVM never compiles one of more than 8,000 bytes unless told to, and
everything in it then runs several times slower (measured: mapping 60,000 subjects took 8.5 s, and 2.3 s with this)."""

_DEFAULTS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # PySpark tells the JVM where each column was written: five calls for one. Nobody wrote ours by hand.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # 40 ms per micro-batch on loopback TCP vanish with it (measured).
    "spark.python.unix.domain.socket.enabled": "true",
    # A route has as many tasks as its source gave it; the default of 200 is for shuffles far larger than ours.
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def build_session(
    name: str = "turnout", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A SparkSession fit for routes; the running one, if this process has one already.

    Args:
        name: what Spark shows for the application.
        master: ``local[N]``, ``spark://…`` and so on. A running session keeps its own.
        conf: more Spark properties; they win over ours.

    Raises:
        TurnoutError: when no Java is new enough.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # pandas 3 makes PySpark warn once per process; nothing of ours uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    builder = SparkSession.builder.appName(name).master(master)
    settings = {**_DEFAULTS, "spark.driver.memory": _driver_memory(), **(conf or {})}
    if not master.startswith("local"):
        for local_only in ("spark.driver.host", "spark.driver.bindAddress"):
            if local_only not in (conf or {}) and "127.0.0.1" not in master and "localhost" not in master:
                settings.pop(local_only)
    settings.setdefault(
        "spark.driver.extraJavaOptions", f"{_COMPILE_ALL} -Dlog4j2.configurationFile=file:{_QUIET_LOGS}"
    )
    settings.setdefault("spark.executor.extraJavaOptions", _COMPILE_ALL)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _driver_memory() -> str:
    """A quarter of the machine's memory, from 1 to 8 GB: in local mode the driver does all the work."""
    return f"{min(max(psutil.virtual_memory().total // 4 // 2**20, 1024), 8192)}m"


@contextmanager
def route_session(route: Route, *, master: str = "local[*]", log: Path | None = None) -> Iterator[SparkSession]:
    """A session with the route's own Spark properties, stopped at the end.

    Args:
        route: whose ``spark`` block is applied.
        master: Spark's master.
        log: where the JVM's and the workers' standard error go; the process's own if not given.
    """
    with _children_write_to(log):
        session = build_session(route.name, master=master, conf={**_needs(route), **route.spark})
    try:
        yield session
    finally:
        session.stop()


def _needs(route: Route) -> dict[str, str]:
    """Spark properties that the route's ends and its trigger ask for: the Kafka connector, short micro-batches."""
    needed: dict[str, str] = {}
    kafka = any(isinstance(end, KafkaSource | KafkaSink) for end in (route.source, *route.sinks.values()))
    if kafka and not brings_connector(route.spark):
        needed.update(kafka_properties())
    if route.trigger.latency == "low":
        needed.update(low_latency_session())
    return needed


@contextmanager
def _children_write_to(log: Path | None) -> Iterator[None]:
    """Have processes that are started in this block inherit *log* as their standard error.

    The JVM writes to the descriptor that it was started with, and so do its Python workers: it is exchanged for the
    moment of the start only, and what this process writes later goes where it always did.
    """
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
