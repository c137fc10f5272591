"""The code of an earlier version, and what it does in a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.integration.switch import Switch

__all__ = ["COMMITS", "EarlierVersion"]

REPOSITORY: Final = Path(__file__).parents[3]

COMMITS: Final = {"columns": "9c7c804", "engine": "86c0051"}
"""The last version that compiled routes to Spark's Columns, and one of those that followed, with the engine."""


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """An earlier version's ``src``, which runs with the dependencies of this one.

    Attributes:
        source: the folder.
    """

    source: Path

    @classmethod
    def unpack(cls, commit: str, folder: Path) -> Self | None:
        """Take the version of a commit out of the repository; None where this is no clone that has it."""
        command = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit, "src"]
        try:
            archive = subprocess.run(command, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return cls(folder / "src")

    @property
    def environment(self) -> dict[str, str]:
        """The variable by which Python, and Spark's workers, import this version."""
        return {"PYTHONPATH": str(self.source)}

    def turnout(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run this version's command line and wait for it."""
        return self._run("-m", "turnout", *arguments)

    def python(self, script: str, *arguments: str) -> str:
        """Run a script that imports this version; what it printed."""
        done = self._run("-c", script, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def switch(self, folder: Path, route: Path, *arguments: str) -> Switch:
        """This version's ``turnout run``, to be started, watched and killed."""
        return Switch(folder, route, *arguments, env=self.environment)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Not from the repository's root, whose tests are the present version's.
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            cwd=self.source,
            env={**os.environ, **self.environment},
        )
