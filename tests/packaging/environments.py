"""New environments with turnout's wheel and chosen versions of what it depends on, made by uv."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.packaging.processes import Process

__all__ = ["ROOT", "Environment", "build_wheel", "declared_extras", "pins", "uv"]

ROOT: Final = Path(__file__).parents[2]
INSTALL_SECONDS: Final = 900
"""The first time some hundred megabytes are fetched; afterwards they are in uv's cache."""
RUN_SECONDS: Final = 300
"""Time limit of a turnout command in seconds; the longest, a demo, takes some 30 on two idle cores."""

_INDEX = """
[[index]]
url = "{url}"
default = true
cache-control = {{ files = "max-age=31536000, immutable" }}
"""


def uv(*arguments: str | Path) -> str:
    """Run uv, on the index that pip is told to use, if only that is said; its standard output.

    Files of an index never change, but not each index says so, and then uv fetches and builds PySpark, which has no
    wheel, two or three times for each environment: here it keeps them whatever the index says. The file that says so
    stands in the place of the user's own uv.toml; an index that a variable names goes before it.

    Raises:
        AssertionError: it failed, or goes on; with its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="turnout-uv-") as folder:
        config = Path(folder, "uv.toml")
        config.write_text(_INDEX.format(url=_index()), encoding="utf-8")
        return _uv("--config-file", config, *arguments)


@cache
def _index() -> str:
    """The index that uv asks here; only uv knows its own."""
    with tempfile.TemporaryDirectory(prefix="turnout-uv-") as folder:
        nothing = Path(folder, "requirements.in")
        nothing.touch()
        said = _uv("pip", "compile", "--emit-index-url", "--no-header", nothing)
    match = re.search(r"^--index-url (\S+)", said, re.MULTILINE)
    assert match, f"uv pip compile --emit-index-url: {said}"
    return match[1]


def _uv(*arguments: str | Path) -> str:
    # A PYTHONPATH is one of this environment, and nothing to other environments.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    command = [Path(sys.executable).with_name("uv"), "--no-progress", *arguments]
    with Process(command, ROOT, environment) as process:
        done = process.finish(INSTALL_SECONDS)
    assert done.returncode == 0, f"uv {' '.join(map(str, arguments))}: {done.stderr[-2000:]}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built into *folder*."""
    command: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    with Process(command, ROOT, os.environ) as process:
        done = process.finish(INSTALL_SECONDS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = folder.glob("*.whl")
    return wheel


def declared_extras() -> dict[str, list[str]]:
    """Return the extras that users can install, with their requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return {name: extras[name] for name in extras if name not in {"all", "docs", "dev"}}


def pins(*names: str) -> list[str]:
    """The lines of constraints.txt for these packages."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if "==" in line)
    return [f"{name}=={versions[name]}" for name in names]


@dataclass(frozen=True)
class Environment:
    """A venv with the wheel that does not see the checkout.

    Attributes:
        folder: the venv.
    """

    folder: Path

    @classmethod
    def lowest(cls, folder: Path, wheel: Path, extras: Sequence[str], tools: Sequence[str] = ()) -> Environment:
        """One with the lowest versions that pyproject.toml allows for these extras.

        What turnout does not ask for itself, and the *tools* with what they need, is the newest that goes with those.
        """
        bounds = folder.with_suffix(".txt")
        flags = [part for extra in extras for part in ("--extra", extra)]
        uv(
            "pip", "compile", "--resolution", "lowest-direct", "--python", sys.executable, *flags,
            "--output-file", bounds, ROOT / "pyproject.toml",
        )  # fmt: skip
        return cls.created(folder, Path(sys.executable), ["--requirements", str(bounds), *tools], wheel)

    @classmethod
    def created(cls, folder: Path, python: Path, requirements: Sequence[str], wheel: Path) -> Environment:
        """One with these requirements, and the wheel as it is; *requirements* may be none."""
        uv("venv", "--python", python, folder)
        environment = cls(folder)
        if requirements:
            uv("pip", "install", "--python", environment.python, *requirements)
        uv("pip", "install", "--python", environment.python, "--no-deps", wheel)
        return environment

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def variables(self, **more: str) -> dict[str, str]:
        """The variables of its processes: nothing that leads to another turnout."""
        kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME", "CI"}}
        return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", **more}

    def start(self, *arguments: str | Path, cwd: Path, **variables: str) -> Process:
        """Start a command of turnout."""
        return Process([self.folder / "bin" / "turnout", *arguments], cwd, self.variables(**variables))

    def turnout(self, *arguments: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of turnout to its end.

        Raises:
            AssertionError: it goes on; with what it has printed.
        """
        with self.start(*arguments, cwd=cwd, **variables) as process:
            return process.finish(RUN_SECONDS)
