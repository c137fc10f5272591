"""Choice of the Python for Spark's workers: this one, with PySpark from its installation."""

from __future__ import annotations

import os
import shlex
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pyspark

from turnout.base.files import replace_file

# Spark puts its own copy of PySpark, a zip without compiled modules, before the installed one.
_WRAPPER = """#!/bin/sh
kept=
IFS=:
for part in $PYTHONPATH; do
  case "$part" in
    {lib}/pyspark.zip | {lib}/py4j-*.zip) ;;
    *) kept="${{kept:+$kept:}}$part" ;;
  esac
done
unset IFS
PYTHONPATH=$kept exec {python} "$@"
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
    text = _WRAPPER.format(lib=shlex.quote(str(home / "python" / "lib")), python=shlex.quote(sys.executable))
    program = caches / "turnout" / f"python-{zlib.crc32(text.encode()):08x}"
    with suppress(OSError):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            # Another start may do the same: each puts a whole file there.
            replace_file(program, text, mode=0o755)
        if os.access(program, os.X_OK):
            return str(program)
    return sys.executable
