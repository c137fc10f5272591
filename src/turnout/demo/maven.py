"""Jars from Maven, by its command, which knows the mirrors and the credentials of its user's settings."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from turnout.errors import TurnoutError
from turnout.files import replace_file
from turnout.private_files import scratch_folder

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>turnout</groupId><artifactId>classpath</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions>{}</exclusions></dependency>"""
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion>"


def resolve_jars(coordinates: Sequence[str], without: Sequence[str] = ()) -> list[Path]:
    """Return the jars of *coordinates* (``group:artifact:version``) and of their dependencies, in the local repository.

    Results are cached as long as the jars exist.

    Args:
        coordinates: artifacts to fetch.
        without: group ids whose artifacts are left out; ``*`` leaves out all dependencies.

    Raises:
        TurnoutError: when there is no Maven, or it cannot fetch them.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(" ".join([*coordinates, "without", *without]).encode()).hexdigest()[:20]
    remembered = caches / "turnout" / f"{name}.classpath"
    if remembered.exists():
        jars = _paths(remembered.read_text(encoding="utf-8"))
        if jars and all(jar.exists() for jar in jars):
            return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise TurnoutError("Maven is not installed: put mvn on PATH, or the jars in spark.jars")
    text = _class_path(maven, coordinates, without)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    replace_file(remembered, text)
    return _paths(text)


def _class_path(maven: str, coordinates: Sequence[str], without: Sequence[str]) -> str:
    exclusions = "".join(_EXCLUSION.format(group) for group in without)
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":"), exclusions) for coordinate in coordinates)
    with scratch_folder("maven") as folder:
        pom, class_path = folder / "pom.xml", folder / "classpath"
        pom.write_text(_POM.format(dependencies), encoding="utf-8")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if process.returncode != 0 or not class_path.exists():
            # The first error names the artifact; what follows it is advice about Maven's switches.
            errors = [line for line in (process.stdout + process.stderr).splitlines() if "[ERROR]" in line]
            reason = errors[0].split("[ERROR]", 1)[1].strip() if errors else "it said nothing"
            raise TurnoutError(f"Maven could not fetch {', '.join(coordinates)}: {reason}")
        return class_path.read_text(encoding="utf-8").strip()


def _paths(text: str) -> list[Path]:
    return [Path(part) for part in text.split(os.pathsep) if part]
