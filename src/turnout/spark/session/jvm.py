"""JVM of this process: its start, protection from signals meant for the run, and the reason of its end.

Its settings are in a file, as all users of a machine can read the command lines of its processes.
"""

from __future__ import annotations

import os
import shlex
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, accumulators, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from turnout.base.files import scratch_folder
from turnout.errors import RunError
from turnout.runtime.java import in_one_line

_LAST_BREATH_SECONDS = 5.0
"""Connections break before the process has ended."""

_Launch: TypeAlias = Callable[..., Any]
"""`subprocess.Popen`, or a function that PySpark calls in its place."""


@contextmanager
def out_of_reach_of_sigterm() -> Iterator[None]:
    """Have a JVM that is started in this block ignore SIGTERM, as PySpark has it ignore SIGINT.

    What stops a service signals all of its processes. The run then ends after its micro-batch, and needs its JVM for
    that. A JVM of ours ends with this process in any case: it reads the other end of a pipe.
    """

    def launch_deaf(launch: _Launch, *arguments: Any, preexec_fn: Callable[[], None] | None = None, **more: Any) -> Any:
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


def _handle_error(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
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
            SparkContext._ensure_initialized()  # noqa: SLF001 - a SparkContext's first step
        except PySparkRuntimeError as failure:
            words = "Spark's JVM ended while it started; its own output is above, or in the run's log"
            raise RunError(f"{words} ({in_one_line(failure)})") from failure


@contextmanager
def _killed_on_failure() -> Iterator[None]:
    """Kill the JVM that is started in this block if the block raises an exception.

    It would fail to write where it can be reached, as PySpark has deleted the folder for that, and run for ever.
    """
    started: list[subprocess.Popen[bytes]] = []

    def launch_noted(launch: _Launch, *arguments: Any, **more: Any) -> Any:
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
