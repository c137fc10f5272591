"""Creation or reuse of a SparkSession."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.base.files import append_privately, lasting_folder, private_folder
from turnout.routes import Route
from turnout.runtime.java import Java, run_error, use_java
from turnout.spark.endpoints import reads_splits
from turnout.spark.session.class_archive import archive_options, check_spark_home, jars_of_spark
from turnout.spark.session.connect import connect, is_connect
from turnout.spark.session.jvm import (
    forget_jvm,
    how_jvm_ended,
    launch_jvm,
    leave_last_words_unsaid,
    out_of_reach_of_sigterm,
    own_interrupts,
)
from turnout.spark.session.latency import with_open_slots
from turnout.spark.session.route_properties import needed_properties, session_properties
from turnout.spark.workers.daemon import ROUTES_ONLY
from turnout.spark.workers.python import worker_python

_QUIET_LOGS = Path(__file__).with_name("log4j2.properties")

_DEFAULTS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # PySpark sends the JVM the source line of each column: five calls for one. Ours are generated.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The engine is at its best with thousands of records at once.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # However large the rows of other sources are, a worker has a few megabytes of them at once.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
    # 40 ms per micro-batch on loopback TCP vanish with it (measured).
    "spark.python.unix.domain.socket.enabled": "true",
    # The JVM carries rows that it does not look into, and holds few of them.
    "spark.driver.memory": "1g",
    # numpy would make a pool of threads in each worker, for linear algebra.
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    # Arrow's usual pool keeps 30 MB more in each worker, and is no faster (measured).
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}

_OF_A_SESSION = {name: value for name, value in _DEFAULTS.items() if name.startswith("spark.sql.")}
"""Settings that Spark Connect lets a client set."""

_HERE_ONLY: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Other hosts may have turnout from a file that was added to the session, which is too late for this.
    "spark.python.daemon.module": "turnout.spark.workers.daemon",
}


_CARRIER = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn40m")
"""For a JVM that carries rows and does not look into them: its second compiler and its collector's threads took more
processor time than they saved (measured on a year of flights: 5 µs a record for 8, 32 for 57 in the first micro-batch),
and 130 MB; a larger young generation only takes more memory."""


def build_session(
    name: str = "turnout",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    carrier: bool = False,
) -> SparkSession:
    """Return a SparkSession suitable for routes; the running one, if this process has one already.

    Args:
        name: name of the application in Spark.
        master: ``local[N]``, ``spark://…`` and so on; ``sc://HOST:PORT`` for a Spark Connect server. A running session
            keeps its own.
        conf: more Spark properties; they win over ours.
        carrier: the JVM will do little but hand splits from Python to Python, all on this machine.

    Raises:
        TurnoutError: when no Java is new enough; a Spark Connect server that does not answer; SPARK_HOME is that of
            another Spark; Spark refuses to start.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if is_connect(master):
        return connect(master, {**_OF_A_SESSION, **(conf or {})})
    check_spark_home()
    java = use_java(jars_of_spark())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python() if master.startswith("local") else sys.executable)
    # pandas 3 makes PySpark warn once per process; nothing of ours uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    builder = SparkSession.builder.appName(name).master(master)
    routes_only = {f"spark.executorEnv.{ROUTES_ONLY}": "1"} if carrier else {}
    settings = {**_DEFAULTS, **_for_master(master), **_private_places(master), **routes_only, **(conf or {})}
    settings.setdefault(
        "spark.driver.extraJavaOptions", " ".join([*_java_options(java), *(_CARRIER if carrier else ())])
    )
    launch_jvm({"spark.app.name": name, "spark.master": master, **settings})
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with own_interrupts():
            return builder.getOrCreate()
    except (PySparkException, Py4JError) as failure:
        raise run_error("Spark could not be started", failure) from failure


def _for_master(master: str) -> dict[str, str]:
    """Return the settings for a master with all processes on this machine."""
    if master.startswith("local"):
        return _HERE_ONLY
    on_loopback = "127.0.0.1" in master or "localhost" in master
    return {name: value for name, value in _HERE_ONLY.items() if on_loopback and name.startswith("spark.driver.")}


_SOCKET = len("/.01234567-0123-0123-0123-0123456789ab.sock")
_LONGEST_SOCKET = 100
"""A Unix socket's path has 104 characters on some systems."""


def _private_places(master: str) -> dict[str, str]:
    """Return the folders for blocks, broadcasts, libraries and sockets of this machine's JVM.

    It is a folder that only its owner reads, and that the next run removes if this one is killed: Spark would let
    all users read them.
    """
    if not master.startswith("local") or "SPARK_LOCAL_DIRS" in os.environ:
        return {}
    folder = _private_folder()
    folders = {"spark.local.dir": str(folder)}
    if len(str(folder)) + _SOCKET <= _LONGEST_SOCKET:
        folders["spark.driver.defaultJavaOptions"] = f"-Djava.io.tmpdir={shlex.quote(str(folder))}"
    return folders


@cache
def _private_folder() -> Path:
    """Return the folder for all sessions of this process, which share one JVM."""
    return lasting_folder("spark")


def _java_options(java: Java) -> list[str]:
    return [f"-Dlog4j2.configurationFile=file:{_QUIET_LOGS}", *archive_options(java)]


@contextmanager
def route_session(route: Route, *, master: str = "local[*]", log: Path | None = None) -> Iterator[SparkSession]:
    """A session with the route's own Spark properties, stopped at the end; an existing one is not stopped.

    Args:
        route: route with the ``spark`` block to apply.
        master: Spark's master.
        log: file for the outputs of the JVM and the workers; the process's own if not given.
    """
    leave_last_words_unsaid()
    with _children_write_to(log), out_of_reach_of_sigterm():
        conf = session_properties(route)
        carrier = reads_splits(route.source) and master.startswith("local")
        slots = with_open_slots(master, [route])
        is_ours = SparkSession.getActiveSession() is None
        session = build_session(route.name, master=slots, conf=conf, carrier=carrier)
    try:
        yield session
    finally:
        if how_jvm_ended(session) is not None:
            forget_jvm(session)
        elif is_ours:
            session.stop()


def server_session(
    routes: Sequence[Route], *, master: str, properties: Mapping[str, str], log: Path | None = None
) -> SparkSession:
    """Return a session for many routes, including later ones; each gets its own by `session_for`.

    Args:
        routes: the known routes: the settings of their endpoints apply from the start.
        master: Spark's master.
        properties: they win over turnout's own.
        log: file for the outputs of the JVM and the workers; the process's own if not given.
    """
    needed: dict[str, str] = {}
    for route in routes:
        needed |= needed_properties(route)
    streams_only = bool(routes) and all(reads_splits(route.source) for route in routes)
    carrier = streams_only and master.startswith("local")
    with _children_write_to(log):
        slots = with_open_slots(master, routes)
        return build_session("turnout", master=slots, conf={**needed, **properties}, carrier=carrier)


def session_for(spark: SparkSession, route: Route) -> SparkSession:
    """Return a new session of the same application, with the route's own properties as far as they can be set."""
    session = spark.newSession()
    for name, value in session_properties(route).items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


@contextmanager
def _children_write_to(log: Path | None) -> Iterator[None]:
    """Have processes that are started in this block inherit *log* as their standard output and standard error.

    The JVM writes to the descriptors that it was started with, and so do its Python workers: they are exchanged for the
    moment of the start only, and later output of this process is not redirected. A reader of this process's output
    would otherwise wait for the JVM, which may write its archive of classes after this process has ended.
    """
    if log is None:
        yield
        return
    private_folder(log.parent)
    # A stream is None if this process was started without it.
    streams = {number: stream for number, stream in ((1, sys.stdout), (2, sys.stderr)) if stream is not None}
    saved = {}
    try:
        with append_privately(log) as file:
            for number, stream in streams.items():
                stream.flush()
                saved[number] = os.dup(number)
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, copy in saved.items():
            streams[number].flush()
            os.dup2(copy, number)
            os.close(copy)
