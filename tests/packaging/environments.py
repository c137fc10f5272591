"""New environments with turnout's wheel and chosen versions of what it depends on, made by uv."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "Environment", "build_wheel", "declared_extras", "pins", "uv"]

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 900
"""The first time some hundred megabytes are fetched; afterwards they are in uv's cache."""


def uv(*arguments: str | Path) -> str:
    """Run uv, on the index that pip is told to use, if only that is said; its standard output.

    Raises:
        AssertionError: it failed; with its last lines.
    """
    # A PYTHONPATH is one of this environment, and nothing to other environments.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    command = [str(Path(sys.executable).with_name("uv")), "--quiet", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"uv {' '.join(command[2:4])}: {done.stderr[-2000:]}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built into *folder*."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = folder.glob("*.whl")
    return wheel


def declared_extras() -> dict[str, list[str]]:
    """What users can ask for in square brackets, with its requirements."""
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

    def run(self, *command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            list(map(str, command)), cwd=cwd, env=self.variables(**variables), capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip

    def turnout(self, *arguments: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of turnout to its end."""
        return self.run(self.folder / "bin" / "turnout", *arguments, cwd=cwd, **variables)

    def start(self, *arguments: str | Path, cwd: Path, **variables: str) -> subprocess.Popen[str]:
        """Start a command of turnout that goes on; what it says is to be read from its standard error."""
        return subprocess.Popen(
            [self.folder / "bin" / "turnout", *map(str, arguments)], cwd=cwd, env=self.variables(**variables),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
