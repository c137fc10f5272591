"""Starts the JVM with its settings in a file: everybody on a machine can read the command lines of its processes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from turnout.errors import RunError
from turnout.private_files import scratch_folder
from turnout.runtime.java_failures import in_one_line

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
_OPTION = "--properties-file"
_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", " ": "\\ ", "=": "\\=", ":": "\\:"}
)


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start this process's JVM with these Spark properties; nothing where it has one, or was started by one.

    PySpark hands what is set before there is a JVM to `spark-submit` as arguments, passwords included. What it is told
    once the JVM runs does not go that way, but is too late for memory, libraries and the JVM's own options.

    Raises:
        RunError: the JVM has ended before it could be reached.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # noqa: SLF001
        return
    with scratch_folder("launch") as folder, _arguments(folder / "spark.properties", settings):
        try:
            SparkContext._ensure_initialized()  # noqa: SLF001 - what a SparkContext does first
        except PySparkRuntimeError as failure:
            words = "Spark's JVM ended while it started; what it said itself stands before this, or in the run's log"
            raise RunError(f"{words} ({in_one_line(failure)})") from failure


@contextmanager
def _arguments(file: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Have `spark-submit` read the settings from *file* in this block; they win over what the user has in one."""
    before = os.environ.get(_ARGUMENTS)
    arguments = [argument for argument in shlex.split(before or "") if argument != _SHELL]
    theirs, arguments = _properties_of(arguments)
    file.touch(0o600)
    file.write_text(theirs + as_properties(settings), encoding="ascii")
    defaults = [] if theirs else ["--load-spark-defaults"]
    os.environ[_ARGUMENTS] = shlex.join([*arguments, _OPTION, str(file), *defaults, _SHELL])
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def _properties_of(arguments: list[str]) -> tuple[str, list[str]]:
    """The text of the properties file that arguments name, "" for none, and the other arguments."""
    if _OPTION not in arguments[:-1]:
        return "", arguments
    at = arguments.index(_OPTION)
    text = Path(arguments[at + 1]).read_text(encoding="utf-8") + "\n"
    return _ascii(text), arguments[:at] + arguments[at + 2 :]


def as_properties(settings: Mapping[str, str]) -> str:
    """The settings as Java's `Properties` reads them."""
    lines = (f"{name.translate(_ESCAPES)}={value.translate(_ESCAPES)}\n" for name, value in settings.items())
    return _ascii("".join(lines))


def _ascii(text: str) -> str:
    r"""The text with `\uXXXX` in the place of what is not ASCII, in units of UTF-16."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
