"""JVM of this process: its start, protection from signals meant for the run, and the reason of its end.

Its settings are in a file, as all users of a machine can read the command lines of its processes.

A user without an entry in the list of users, as a container's of any number, has a name and a home in the JVM all the
same: Hadoop's login and Ivy would fail without them.
"""

from __future__ import annotations

import getpass
import logging
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, accumulators, java_gateway
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from turnout.base.files import scratch_folder
from turnout.base.terminal import printable_lines
from turnout.errors import MissingExtraError, RunError, TurnoutError, chain_of
from turnout.runtime.java import in_one_line, run_error

_SCHEME: Final = "sc://"
_PORT: Final = 15002
"""Default port of a server."""

_KNOCK_SECONDS: Final = 10.0
_RETRIES: Final = 6
"""Retries of a request to a server that does not answer: about a minute. PySpark's 15 take more than ten, in which a
run says nothing and does not stop; a server that was restarted does not know the session anyway."""

_ANY_PORT: Final = 9
"""Nothing is sent to it: it is only for the system to say which way it would take."""

_log = logging.getLogger(__name__)


def is_connect(session_or_master: SparkSession | str) -> bool:
    """Return True for a Spark Connect session, or the address of its server as master."""
    if isinstance(session_or_master, str):
        return session_or_master.startswith(_SCHEME)
    return getattr(session_or_master, "_jsparkSession", None) is None


def connect(url: str, properties: Mapping[str, str]) -> SparkSession:
    """Return a session of the Connect server at *url*, with the properties that a session may set.

    Args:
        url: ``sc://HOST:PORT``.
        properties: of Spark. What belongs to the whole application is the server's to have: it is logged, and left.

    Raises:
        MissingExtraError: PySpark's client for such a server is not installed.
        RunError: the server does not answer.
    """
    # What follows the address may hold a token.
    server = url.partition(";")[0]
    _knock(server)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
        for name, value in properties.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
            elif session.conf.get(name, None) != value:
                _log.warning("%s is set where the Spark Connect server is started, not by a session: left out", name)
    except ImportError as missing:
        raise MissingExtraError("connect", missing.name or "grpc") from missing
    except PySparkException as failure:
        raise RunError(f"the Spark Connect server at {server} does not answer: {in_one_line(failure)}") from failure
    return session


def _knock(server: str) -> None:
    """Check that a server accepts connections: PySpark alone would retry for ten minutes."""
    try:
        address = urlsplit(server)
        socket.create_connection((address.hostname or "", address.port or _PORT), timeout=_KNOCK_SECONDS).close()
    except (OSError, ValueError) as failure:
        raise RunError(f"the Spark Connect server at {server} does not answer: {failure}") from failure


def knock(session: SparkSession) -> None:
    """Check that a session's server accepts connections.

    Raises:
        RunError: it does not.
    """
    client: Any = session.client
    _knock(f"{_SCHEME}{client._builder.endpoint}")  # noqa: SLF001 - PySpark tells the host alone


def own_address(session: SparkSession) -> str:
    """Return the address of this machine that the Connect server's network reaches it by.

    Raises:
        RunError: the server's name leads nowhere.
    """
    client = session.client
    host = str(client.host).strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as route:
            route.connect(address)
            return str(route.getsockname()[0])
    except OSError as failure:
        raise RunError(f"no address of this machine leads to the Spark Connect server {host}: {failure}") from failure


_LAST_BREATH_SECONDS = 5.0
"""Connections break before the process has ended."""

_LAST_LINES = 3
_LAST_BYTES = 4_000
"""The end of the JVM's output that a message about its end carries."""

_FRAMES = ("at ", "... ")
"""Beginnings of the lines of a trace that say where, and not what."""

_NAMELESS = "turnout"
"""Name of a user who has none."""

_Launch: TypeAlias = Callable[..., subprocess.Popen[bytes]]
"""`subprocess.Popen`, or a function that PySpark calls in its place."""


@contextmanager
def out_of_reach_of_sigterm() -> Iterator[None]:
    """Have a JVM that is started in this block ignore SIGTERM, as PySpark has it ignore SIGINT.

    What stops a service signals all of its processes. The run then ends after its micro-batch, and needs its JVM for
    that. A JVM of ours ends with this process in any case: it reads the other end of a pipe.
    """

    def launch_deaf(
        launch: _Launch, *arguments: object, preexec_fn: Callable[[], None] | None = None, **more: object
    ) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            if preexec_fn is not None:
                preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return launch(*arguments, preexec_fn=prepare, **more)

    with _launched_by(launch_deaf):
        yield


@contextmanager
def _launched_by(launch: _Launch) -> Iterator[None]:
    """Have PySpark launch the JVM in this block by a function, which gets its usual one as the first argument."""
    names = vars(java_gateway)
    usual = names["Popen"]
    names["Popen"] = partial(launch, usual)
    try:
        yield
    finally:
        names["Popen"] = usual


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the handler of SIGINT that a command has set: PySpark replaces it when it starts in the main thread.

    Its own cancels all jobs and raises `KeyboardInterrupt`, where a command ends after the micro-batch. If no handler
    is set, as in a notebook, PySpark's is kept.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_set = before not in (None, signal.default_int_handler)
        if is_set and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def leave_last_words_unsaid() -> None:
    """Suppress the trace of PySpark's accumulator server when the JVM breaks the connection.

    Its trace has nothing beyond the caller's exception.
    """
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _handle_error  # type: ignore[assignment, method-assign]


def _handle_error(server: socketserver.BaseServer, request: socket.socket, client_address: object) -> None:
    """Handle an exception of a server's connection, other than the peer's disconnect."""
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        socketserver.BaseServer.handle_error(server, request, client_address)


def how_jvm_ended(spark: SparkSession, failure: BaseException | None = None) -> str | None:
    """Describe the end of the session's JVM, as "by SIGKILL"; None while it runs, or if it is another process's.

    Args:
        spark: the session.
        failure: the exception; after a broken connection, the JVM gets a moment to end.
    """
    process = _process(spark)
    if process is None:
        return None
    if isinstance(failure, Py4JError | OSError | EOFError) and not isinstance(failure, Py4JJavaError):
        try:
            process.wait(_LAST_BREATH_SECONDS)
        except subprocess.TimeoutExpired:
            return None
    code = process.poll()
    if code is None:
        return None
    # A shell that has waited for the JVM says 128 and the signal.
    number = -code if code < 0 else code - 128
    try:
        return f"by {signal.Signals(number).name}"
    except ValueError:
        return f"with exit code {code}"


class JvmOutput:
    """Output of this process's JVM, for messages about its end.

    Attributes:
        log: file that the JVM appends to; None if it writes to this process's own output.
    """

    def __init__(self) -> None:
        self.log: Path | None = None
        self._start = 0

    def goes_to(self, log: Path) -> None:
        """Remember the file that a JVM that is started next appends to."""
        self.log = log
        self._start = log.stat().st_size

    def last_lines(self) -> str:
        """Return its last lines since its start, as the rest of a sentence; "" without a file, and without lines."""
        if self.log is None:
            return ""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, size - _LAST_BYTES))
                text = file.read().decode(errors="replace")
        except OSError as failure:
            return f"; its output cannot be read: {failure}"
        stripped = (line.strip() for line in text.splitlines())
        lines = [line for line in stripped if line and not line.startswith(_FRAMES)][-_LAST_LINES:]
        return f"; its last lines in {self.log}: {printable_lines([' | '.join(lines)])}" if lines else ""


OUTPUT = JvmOutput()
"""Output of the one JVM that a process has."""


def forget_jvm(spark: SparkSession) -> None:
    """Let PySpark start another JVM in this process where the session's has ended."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return
    with SparkContext._lock:  # noqa: SLF001 - `stop` calls the JVM first
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
        context._jsc = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """Return the JVM's process; None for Spark Connect, and for a JVM that has started this process."""
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
_OPTION = "--properties-file"
_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", " ": "\\ ", "=": "\\=", ":": "\\:"}
)


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start this process's JVM with these Spark properties, unless it has one or was started by one.

    PySpark passes settings from before the JVM's start to `spark-submit` as arguments, passwords included. Settings
    once the JVM runs does not go that way, but is too late for memory, libraries and the JVM's own options.

    An exception, as that of a second Ctrl-C, kills the JVM that is starting.

    Raises:
        RunError: the JVM has ended before it could be reached.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # noqa: SLF001
        return
    with scratch_folder("launch") as folder, _arguments(folder / "spark.properties", settings), _killed_on_failure():
        try:
            name = _name_of_nameless_user()
            if name:
                _give_name(name)
            SparkContext._ensure_initialized()  # noqa: SLF001 - a SparkContext's first step
            if name:
                users = SparkContext._jvm.org.apache.hadoop.security.UserGroupInformation  # type: ignore[union-attr] # noqa: SLF001
                users.setLoginUser(users.createRemoteUser(os.environ["SPARK_USER"]))
        except PySparkRuntimeError as failure:
            words = "Spark's JVM ended while it started"
            tail = OUTPUT.last_lines() or "; its own output is above"
            raise RunError(f"{words}{tail} ({in_one_line(failure)})") from failure


def _give_name(name: str) -> None:
    """Have a JVM that is started next know the user by a name, and the home where one can be written."""
    # Spark's own, which it looks up otherwise.
    os.environ.setdefault("SPARK_USER", name)
    home = os.environ.get("HOME", "")
    if not Path(home).is_absolute() or not os.access(home, os.W_OK):
        home = tempfile.gettempdir()
    options = [os.environ.get("SPARK_SUBMIT_OPTS", ""), f"-Duser.name={shlex.quote(name)}"]
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*options, f"-Duser.home={shlex.quote(home)}"]).strip()


def _name_of_nameless_user() -> str:
    """Return a name for this process's user if the list of users has none; "" if it has.

    Variables of the environment that name a user, as LOGNAME, win.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        pass
    else:
        return ""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        return _NAMELESS


@contextmanager
def _killed_on_failure() -> Iterator[None]:
    """Kill the JVM that is started in this block if the block raises an exception.

    It would fail to write where it can be reached, as PySpark has deleted the folder for that, and run for ever.
    """
    started: list[subprocess.Popen[bytes]] = []

    def launch_noted(launch: _Launch, *arguments: object, **more: object) -> subprocess.Popen[bytes]:
        started.append(launch(*arguments, **more))
        return started[-1]

    with _launched_by(launch_noted):
        try:
            yield
        except BaseException:
            for process in started:
                process.kill()
                process.wait()
            raise


@contextmanager
def _arguments(file: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Have `spark-submit` read the settings from *file* in this block; they override the user's own."""
    before = os.environ.get(_ARGUMENTS)
    arguments = [argument for argument in shlex.split(before or "") if argument != _SHELL]
    spark_settings, arguments = _properties_of(arguments)
    file.touch(0o600)
    file.write_text(spark_settings + as_properties(settings), encoding="ascii")
    defaults = [] if spark_settings else ["--load-spark-defaults"]
    os.environ[_ARGUMENTS] = shlex.join([*arguments, _OPTION, str(file), *defaults, _SHELL])
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def _properties_of(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the text of the properties file that arguments name, "" for none, and the other arguments."""
    if _OPTION not in arguments[:-1]:
        return "", arguments
    at = arguments.index(_OPTION)
    text = Path(arguments[at + 1]).read_text(encoding="utf-8") + "\n"
    return _ascii(text), arguments[:at] + arguments[at + 2 :]


def as_properties(settings: Mapping[str, str]) -> str:
    """Return the settings as Java's `Properties` reads them."""
    lines = (f"{name.translate(_ESCAPES)}={value.translate(_ESCAPES)}\n" for name, value in settings.items())
    return _ascii("".join(lines))


def _ascii(text: str) -> str:
    r"""Return the text with `\uXXXX` instead of non-ASCII characters, in units of UTF-16."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


_AGAIN: Final = "run it again: it continues from its checkpoint"
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT", re.IGNORECASE)
_DEAD_WORKER: Final = re.compile(r"Python worker exited unexpectedly")
_HARDLY_ANY: Final = 1 << 20
"""Bytes: with less a disk is taken for the one that is full."""


@contextmanager
def ending_in_words(name: str, spark: SparkSession, checkpoint: Path | None) -> Iterator[None]:
    """Convert a failure in this block to a `RunError` with a clear message, if a remedy exists.

    Args:
        name: name of the route.
        spark: session whose JVM may have ended.
        checkpoint: the folder of the run's progress, if it is on this machine.

    Raises:
        RunError: for failures of Spark and of this machine, unless they are a `TurnoutError` already.
    """
    heading = f"route {name} failed"
    try:
        yield
    except Exception as failure:
        full = _full_disk(failure, checkpoint)
        if full is not None:
            raise RunError(f"{heading}: {full}; make room and {_AGAIN}") from failure
        if _cause_matching(failure, _DEAD_WORKER) is not None:
            raise RunError(f"{heading}: a Python worker died, killed or short of memory; {_AGAIN}") from failure
        if isinstance(failure, TurnoutError):
            raise
        ended = how_jvm_ended(spark, failure)
        if ended is not None:
            # One that was killed has said nothing of it.
            tail = "" if ended == "by SIGKILL" else OUTPUT.last_lines()
            raise RunError(f"{heading}: Spark's JVM ended {ended}{tail}; {_AGAIN}") from failure
        if isinstance(failure, PySparkException | Py4JError | OSError):
            raise run_error(heading, failure) from failure
        raise


def _full_disk(failure: BaseException, checkpoint: Path | None) -> str | None:
    """Return the full disk, if the failure or one of its causes reports one."""
    cause = _cause_matching(failure, _FULL)
    if cause is None:
        return None
    for folder, kind in ((checkpoint, "the checkpoint"), (Path(tempfile.gettempdir()), "temporary files")):
        with suppress(OSError):
            if folder is not None and shutil.disk_usage(folder).free < _HARDLY_ANY:
                return f"the disk of {kind}, {folder}, is full"
    return f"a disk is full ({in_one_line(cause)})"


def _cause_matching(failure: BaseException | None, pattern: re.Pattern[str]) -> BaseException | None:
    """Return the failure, or the first of its causes, whose message matches the pattern; None if none does."""
    return next((cause for cause in chain_of(failure) if pattern.search(str(cause))), None)


def driver_address(spark: SparkSession) -> str:
    """Return the address of this process, the driver or a Spark Connect client, for other processes of the run."""
    if is_connect(spark):
        return own_address(spark)
    return str(spark.conf.get("spark.driver.host", None) or "127.0.0.1")
