"""Creation or reuse of a SparkSession."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.base.files import append_privately, lasting_folder, private_folder, replace_file, scratch_folder
from turnout.errors import RunError
from turnout.routes import Route
from turnout.runtime import planners
from turnout.runtime.checkpoint import local_folder
from turnout.runtime.java import Java, counts_jars_twice, run_error, use_java
from turnout.spark.endpoints import SparkEndpoint, endpoint_of, open_tasks, publishes, reads_splits
from turnout.spark.session.daemon import ROUTES_ONLY
from turnout.spark.session.jvm import (
    OUTPUT,
    connect,
    forget_jvm,
    how_jvm_ended,
    is_connect,
    launch_jvm,
    leave_last_words_unsaid,
    out_of_reach_of_sigterm,
    own_interrupts,
)

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(, *\d+)?\])?")

_OF_LOCAL_CHECKPOINTS: Final = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.hadoop.fs.file.impl",
)
"""Properties of `low_latency_session` for checkpoints on this machine."""

_POLL_WAIT_CONF: Final = {"pollWait": "1"}


def low_latency_session() -> dict[str, str]:
    """Spark properties that halve the time of a micro-batch, for the session (``trigger: {latency: low}``).

    The checkpoint is written through Hadoop's FileSystem, whose rename is atomic on a local disk and on HDFS, and not
    on an object store: keep Spark's own choice there. It holds through a kill -9 at any point (tested). Neither
    choice syncs its files: after a power cut a route removes the damaged ones.
    """
    return {
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # Hadoop starts the program chmod for each file that it creates on a local disk. With this file system, which
        # writes no .crc files, it does so twice in a micro-batch and not four times: 12 ms less (measured).
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        # 40 ms per micro-batch on loopback TCP vanish with it.
        "spark.python.unix.domain.socket.enabled": "true",
    }


def low_latency_source() -> dict[str, str]:
    """Options of the NATS source: wait for the next message at the server, and let one task read it.

    A route with ``trigger: {latency: low}`` has them by itself; its source's own settings have precedence.
    """
    return {**_POLL_WAIT_CONF, "partitions": "1"}


def waiting_source() -> dict[str, str]:
    """Options of the NATS source: wait for the next message at the server.

    A route whose micro-batches start as soon as there are records has them by itself.
    """
    return dict(_POLL_WAIT_CONF)


def with_open_slots(master: str, routes: Iterable[Route]) -> str:
    """Return a local master with enough task slots for the routes' open splits and one more; other masters unchanged.

    An open split has a slot to itself and sleeps most of the time, so that there may be more slots than cores.

    >>> with_open_slots("local[1]", []), with_open_slots("spark://host:7077", [])
    ('local[1]', 'spark://host:7077')
    """
    found = _LOCAL.fullmatch(master)
    needed = sum(map(open_tasks, routes))
    if found is None or not needed:
        return master
    slots = _cores() if found[1] == "*" else int(found[1] or 1)
    return master if slots > needed else f"local[{slots + needed}{found[2] or ''}]"


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def asking_less(route: Route) -> dict[str, str]:
    """Return session properties that reduce idle polling of a source that cannot wait for the next record.

    Spark lists a folder a hundred times a second for as long as there is nothing new. It does so at
    once after a micro-batch that had records, so that nothing changes where there is always something to read; what
    reaches an idle route is seen 0.05 s later on average. Not with ``trigger: {latency: low}``, and not with
    ``processingTime``, which polls once in that time anyway.
    """
    if reads_splits(route.source) or route.trigger.latency == "low" or route.trigger.processing_time is not None:
        return {}
    return {"spark.sql.streaming.pollingDelay": "100ms"}


def session_properties(route: Route) -> dict[str, str]:
    """Return the properties of a session for the route; its own have precedence."""
    return {**needed_properties(route), **asking_less(route), **route.spark}


def needed_properties(route: Route) -> dict[str, str]:
    """Return the Spark properties for the route's endpoints and trigger: connectors, short micro-batches."""
    needed: dict[str, str] = {}
    for endpoint in _endpoints(route):
        needed |= endpoint.needs({**route.spark, **needed})
    if route.trigger.latency == "low":
        needed.update(low_latency_session())
        if route.checkpoint and local_folder(route.checkpoint) is None:
            # An object store renames by copies, and its client needs Hadoop's own local file system for buffers.
            for name in _OF_LOCAL_CHECKPOINTS:
                del needed[name]
    return needed


def checkpoint_properties(route: Route) -> dict[str, str]:
    """Return the Spark properties by which the checkpoint of a session's only route is written in less time.

    There are none for a checkpoint elsewhere, and for routes with other files of Spark's, which keep their checksums.
    """
    is_elsewhere = route.checkpoint and local_folder(route.checkpoint) is None
    return low_latency_session() if publishes(route.sinks) and not (route.tables or is_elsewhere) else {}


def missing_properties(spark: SparkSession, route: Route) -> dict[str, str]:
    """Return the properties that the route needs and that only a new application can have.

    What merely makes micro-batches shorter is not missed.
    """
    required = dict(route.spark)
    settings = spark.sparkContext.getConf()
    for endpoint in _endpoints(route):
        required |= endpoint.lacks({**dict(settings.getAll()), **route.spark})
    return {
        name: value
        for name, value in required.items()
        if not spark.conf.isModifiable(name) and settings.get(name) != value
    }


def _endpoints(route: Route) -> list[SparkEndpoint]:
    return [endpoint_of(endpoint) for endpoint in (route.source, *route.sinks.values())]


# Spark puts its own copy of PySpark, a zip without compiled modules, before the installed one.
_WRAPPER = """#!/bin/sh
kept=
IFS=:
for part in $PYTHONPATH; do
  case "$part" in
    {lib}/pyspark.zip | {lib}/py4j-*.zip | {real}/pyspark.zip | {real}/py4j-*.zip) ;;
    *) kept="${{kept:+$kept:}}$part" ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
case "${{{variable}}}:$*" in
  ?*:"-m {module}") exec {python} -I -S {planners} "$@" ;;
esac
exec {python} "$@"
"""


def worker_python() -> str:
    """Return a program that starts this Python without Spark's zips on its path.

    From a zip every process compiles its imports: half a second in each of the eight that a first query starts
    (measured). The zip has the installed version, as long as Spark is the one inside this PySpark. Where no
    program can be put into the user's cache, this Python itself is good enough.
    """
    home = Path(pyspark.__file__).parent
    if os.name != "posix" or Path(os.environ.get("SPARK_HOME") or home).resolve() != home.resolve():
        return sys.executable
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Of an environment that is reached by a link Spark names the real path.
    lib, real = (shlex.quote(str(path / "python" / "lib")) for path in (home, home.resolve()))
    text = _WRAPPER.format(
        lib=lib,
        real=real,
        python=shlex.quote(sys.executable),
        variable=planners.PLANNERS,
        module=planners.MODULE,
        planners=shlex.quote(planners.__file__),
    )
    program = caches / "turnout" / f"python-{zlib.crc32(text.encode()):08x}"
    with suppress(OSError):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            # Another start may do the same: each puts a whole file there.
            replace_file(program, text, mode=0o755)
        if os.access(program, os.X_OK):
            return str(program)
    return sys.executable


# --- archive of Spark's classes ---------------------------------------------------------------------------------------

# The JVM of a first run writes it, and later JVMs map it. Loading and verifying some 20,000 classes is half of what it
# takes to start Spark. HotSpot can write those that a run has loaded to a file when it ends (application class data
# sharing), and map them at the next start. The file fits one JDK and one class path, and is in the user's cache under a
# name made from both. Nothing here can fail a start: without an archive the JVM loads its classes as ever.

_SINCE: Final = 13
"""The first JDK whose JVM archives at its exit."""

_BASE: Final = Path("lib", "server", "classes.jsa")
"""Within a Java's home: the archive of its own classes, which slim runtimes leave out."""

_WITHOUT_BASE: Final = 21
"""The first JDK seen to start, with its options here, if the archive of its own classes is missing."""

_SETTLED: Final = 20.0
"""Seconds without a change after which a file is no longer being written."""

_ABANDONED: Final = 86_400.0
"""Seconds without a change after which no start waits for a file any more, whatever its class path."""

_VARIABLE: Final = "TURNOUT_SPARK_ARCHIVE"
"""With ``read``, JVMs map an existing archive and write none: that takes each as long again as its start."""

_CHECK_SECONDS: Final = 20.0
_QUIET: Final = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit is no news, and neither are the classes that cannot be archived."""


def archive_options(java: Java, cache: Path | None = None) -> list[str]:
    """Return the JVM options that use the archive for this Java and this PySpark, or have it made when the JVM ends.

    Args:
        java: Java that Spark will run on.
        cache: the folder of archives; the user's own if not given.
    """
    if java.major < _SINCE or (java.major < _WITHOUT_BASE and not (java.home / _BASE).exists()):
        return []
    # Without HOME a user that the system does not know has no home: RuntimeError.
    with suppress(OSError, RuntimeError):
        folder = cache or _cache()
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"spark-{_fingerprint(java)}.jsa"
        _adopt(java, archive)
        _remove_abandoned(folder)
        if archive.exists():
            return [*_QUIET, f"-XX:SharedArchiveFile={archive}"]
        is_writable = os.environ.get(_VARIABLE) != "read" and os.access(folder, os.W_OK)
        if is_writable and not _refused(archive).exists():
            return [*_QUIET, f"-XX:ArchiveClassesAtExit={_part(archive)}"]
    return []


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout"


def jars_of_spark() -> Path:
    """Return the folder of the jars that Spark's launcher puts on the class path; it follows links to PySpark."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).resolve().parent) / "jars"


def check_spark_home() -> None:
    """Check that SPARK_HOME, if it is set, is a Spark of PySpark's version.

    Raises:
        RunError: it is none; names it, what was found and the remedy.
    """
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    remedy = f"unset SPARK_HOME to use PySpark's own Spark {pyspark.__version__}, or let it be such a Spark"
    if not (Path(home) / "bin" / "spark-submit").exists():
        raise RunError(f"SPARK_HOME is {home!r}, which has no bin/spark-submit: {remedy}")
    versions = [jar.stem.rpartition("-")[2] for jar in jars_of_spark().glob("spark-core_*.jar")]
    if versions and pyspark.__version__ not in versions:
        raise RunError(f"SPARK_HOME is {home!r}, a Spark {', '.join(versions)}: {remedy}")


def _fingerprint(java: Java) -> str:
    """Return a fingerprint of the JDK and class path that an archive belongs to."""
    release = java.home.resolve() / "release"
    version = release.read_bytes() if release.exists() else b""
    jars = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars_of_spark().glob("*.jar"))
    parts = (java.home, java.major, version, _class_path(java), jars, pyspark.__version__)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def _part(archive: Path) -> Path:
    """Return a unique path for a JVM that may write an archive."""
    return archive.with_name(f"{archive.stem}.{secrets.token_hex(4)}.part")


def _refused(archive: Path) -> Path:
    """Return the mark that this JVM's archives are of no use to it, so that no run makes another."""
    return archive.with_suffix(".refused")


def _adopt(java: Java, archive: Path) -> None:
    """Make the file of an earlier JVM the archive, if it is whole; several JVMs may have written one.

    The others are removed, at a later start if they were still being written: each has some 200 MB.
    """
    for part in sorted(archive.parent.glob(f"{archive.stem}.*.part")):
        if _seconds_unchanged(part) < _SETTLED:
            continue
        if archive.exists():
            part.unlink(missing_ok=True)
        elif _is_whole(java, part):
            part.replace(archive)
        else:
            part.unlink(missing_ok=True)
            _refused(archive).touch(0o600)


def _remove_abandoned(folder: Path) -> None:
    """Remove what JVMs of other class paths have left: no start looks for it any more."""
    for part in folder.glob("spark-*.part"):
        if _seconds_unchanged(part) > _ABANDONED:
            part.unlink(missing_ok=True)


def _seconds_unchanged(part: Path) -> float:
    """Return the seconds since a file was written; 0 for one that another process has just removed or adopted."""
    with suppress(FileNotFoundError):
        return time.time() - part.stat().st_mtime
    return 0.0


def _is_whole(java: Java, part: Path) -> bool:
    """Return True if the JVM accepts the file as an archive: a JVM killed while writing leaves half of one."""
    program = str(java.home / "bin" / "java")
    command = [program, "-Xshare:on", f"-XX:SharedArchiveFile={part}", "-cp", _class_path(java), "-version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_CHECK_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _class_path(java: Java) -> str:
    """Return the class path that Spark's launcher makes, and `names_jars_once` hands on: an archive fits no other."""
    jars = jars_of_spark()
    conf = os.environ.get("SPARK_CONF_DIR") or jars.with_name("conf")
    first = [] if counts_jars_twice(java) else sorted(jars.glob("slf4j-api-*.jar"))
    return os.pathsep.join(str(part) for part in (conf, *first, jars / "*"))


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
    "spark.python.daemon.module": "turnout.spark.session.daemon",
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
        carrier = reads_splits(route.source) and master.startswith("local")
        conf = {**(checkpoint_properties(route) if carrier else {}), **session_properties(route)}
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
        # A Python that the user names starts planners by itself.
        if master.startswith("local") and os.environ.get("PYSPARK_PYTHON") in (None, worker_python()):
            planners.start_planners()
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
            OUTPUT.goes_to(log)
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


@contextmanager
def local_copy(spark: SparkSession, checkpoint: str | None) -> Iterator[Path | None]:
    """The folder of a checkpoint; of a remote one a copy of what tables that are looked up need of it.

    What is changed in the copy's folder of tables is changed in the checkpoint too.
    """
    from turnout.runtime.lake.lookups import FOLDER, RUNS

    folder, jvm = local_folder(checkpoint), getattr(spark, "_jvm", None)
    if checkpoint is None or folder is not None or jvm is None:
        yield folder
        return
    path = jvm.org.apache.hadoop.fs.Path
    files = path(checkpoint).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001

    def names(of: str) -> list[str]:
        inner = path(checkpoint, of)
        return [str(one.getPath().getName()) for one in files.listStatus(inner)] if files.exists(inner) else []

    with scratch_folder("tables") as copy:
        rows = names(FOLDER)
        batches = [(of, max(filter(str.isdigit, names(of)), key=int, default="")) for of in ("offsets", "commits")]
        for of, name in [*batches, *((FOLDER, name) for name in rows)]:
            (copy / of).mkdir(exist_ok=True)
            if name:
                files.copyToLocalFile(
                    False, path(f"{checkpoint}/{of}/{name}"), path(f"file://{copy}/{of}/{name}"), True
                )
        yield copy
        # The list of revisions is the last: what it names is there.
        for file in sorted((copy / FOLDER).glob("*"), key=lambda file: file.suffix == RUNS):
            if file.name not in rows or file.suffix == RUNS:
                files.copyFromLocalFile(False, True, path(f"file://{file}"), path(f"{checkpoint}/{FOLDER}/{file.name}"))
        for name in rows:
            if not (copy / FOLDER / name).exists():
                files.delete(path(f"{checkpoint}/{FOLDER}/{name}"), False)
