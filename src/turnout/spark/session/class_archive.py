"""Archive of Spark's loaded classes: the JVM of a first run writes it, and later JVMs map it.

Loading and verifying some 20,000 classes is half of what it takes to start Spark. HotSpot can write those that a run
has loaded to a file when it ends (application class data sharing), and map them at the next start. The file fits one
JDK and one class path, and is in the user's cache under a name made from both.

Nothing here can fail a start: without an archive, or with one that does not fit, the JVM loads its classes as ever.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

from turnout.errors import RunError
from turnout.runtime.java import Java, counts_jars_twice

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
        if os.access(folder, os.W_OK) and not _refused(archive).exists():
            return [*_QUIET, f"-XX:ArchiveClassesAtExit={_part(archive)}"]
    return []


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout"


def jars_of_spark() -> Path:
    """Return the folder of the jars that Spark's launcher puts on the class path."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"


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
