"""The demo from the wheel in a new environment, under each Python that pyproject.toml names and this machine has.

``make pythons`` runs it. Pythons are looked for on the path and among pyenv's; others are named, with their paths and
separated by colons, in ``TURNOUT_PYTHONS``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment

pytestmark = [pytest.mark.packaging, pytest.mark.spark]

CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
PYTHONS = [name for line in CLASSIFIERS if (name := line.rpartition(" :: ")[2]).startswith("3.")]


def candidates(version: str) -> list[Path]:
    """Programs that may be this Python, those that were named first."""
    named = [Path(path) for path in os.environ.get("TURNOUT_PYTHONS", "").split(":") if path]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    return [*named, *sorted(pyenv.glob(f"{version}.*/bin/python")), *([Path(on_path)] if on_path else [])]


def is_python(program: Path, version: str) -> bool:
    """Whether it runs, which pyenv's placeholders do not, and is of this version."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version


def test_what_is_declared() -> None:
    """The oldest is the one that the package requires, and there is no gap."""
    minors = [int(name.split(".")[1]) for name in PYTHONS]

    assert re.search(rf'requires-python = ">={PYTHONS[0]}"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert minors == list(range(minors[0], minors[-1] + 1))


@pytest.mark.parametrize("version", PYTHONS)
def test_the_demo(version: str, wheel: Path, tmp_path: Path) -> None:
    """It runs to its end, and its counts are those of the server."""
    python = next((path for path in candidates(version) if is_python(path, version)), None)
    if python is None:
        pytest.skip(f"there is no Python {version} here: name its program in TURNOUT_PYTHONS")
    pinned = ["--constraints", str(ROOT / "constraints.txt"), f"turnout[demo] @ {wheel.as_uri()}"]
    environment = Environment.created(tmp_path / "venv", python, pinned, wheel)

    printed = environment.turnout("--version", cwd=tmp_path)
    done = environment.turnout("demo", "--limit", "5000", "--subscriptions", "200", "--json", cwd=tmp_path)

    assert printed.stdout.startswith("turnout ")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["conserved"]
