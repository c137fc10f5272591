"""Earlier versions of a file, read from git."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from turnout.errors import ConfigError, Mistake

_SECONDS = 30
"""Seconds that one call of git may take."""


def versions_of(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the commits that changed a file, the latest first, and what each has in it.

    Raises:
        ConfigError: there is no git, or the file is in no repository.
    """
    git = shutil.which("git")
    if git is None:
        raise ConfigError([Mistake("git", "there is no program git")])
    name = f"./{file.name}"
    log = _git_output(git, file.parent, "log", "--format=%H", "--", name)
    if log is None:
        raise ConfigError([Mistake("git", f"{str(file)!r} is in no git repository")])
    for commit in log.decode().split():
        content = _git_output(git, file.parent, "show", f"{commit}:{name}")
        if content is not None:
            yield commit, content


def _git_output(git: str, folder: Path, *arguments: str) -> bytes | None:
    process = subprocess.run([git, *arguments], cwd=folder, capture_output=True, timeout=_SECONDS, check=False)
    return process.stdout if process.returncode == 0 else None
