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

from tests.packaging.environments import ROOT, RUN_SECONDS, Environment
from tests.packaging.processes import Process

# Each wait has a limit of its own, whose error says more.
pytestmark = [pytest.mark.packaging, pytest.mark.spark, pytest.mark.timeout(3600)]

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


def python_of(version: str) -> Path:
    """Return a program that is this Python; skip the test if there is none."""
    for path in candidates(version):
        if is_python(path, version):
            return path
    pytest.skip(f"there is no Python {version} here: name its program in TURNOUT_PYTHONS")


def test_what_is_declared() -> None:
    """The oldest is the package's minimum, and no version is missing."""
    minors = [int(name.split(".")[1]) for name in PYTHONS]

    assert re.search(rf'requires-python = ">={PYTHONS[0]}"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert minors == list(range(minors[0], minors[-1] + 1))


@pytest.mark.parametrize("version", PYTHONS)
def test_the_demo(version: str, wheel: Path, tmp_path: Path) -> None:
    """It runs to its end, its counts are those of the server, and nothing of ours is warned of."""
    pinned = ["--constraints", str(ROOT / "constraints.txt"), f"turnout[demo] @ {wheel.as_uri()}"]
    environment = Environment.created(tmp_path / "venv", python_of(version), pinned, wheel)

    printed = environment.turnout("--version", cwd=tmp_path)
    demo = ("demo", "--limit", "5000", "--subscriptions", "200", "--json")
    done = environment.turnout(*demo, cwd=tmp_path, PYTHONWARNINGS="default")

    assert printed.stdout.startswith("turnout ")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["conserved"]
    assert warnings_of_turnout(done.stderr) == []


@pytest.mark.parametrize("version", PYTHONS)
def test_it_compiles_without_warnings(version: str, tmp_path: Path) -> None:
    """Warnings of a newer Python about the sources of the package and the examples are errors."""
    for folder in ("src", "benchmarks", "examples"):  # copied, as it writes beside what it compiles
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    command: list[str | Path] = [python_of(version), "-W", "error", "-m", "compileall", "-q", tmp_path]

    with Process(command, tmp_path, os.environ) as process:
        done = process.finish(RUN_SECONDS)

    assert (done.returncode, done.stdout) == (0, "")


def warnings_of_turnout(stderr: str) -> list[str]:
    """The lines that warn of code in the package: others warn of themselves, which is theirs to mend."""
    return [
        line
        for line in stderr.splitlines()
        if re.search(r"/site-packages/(turnout|pyspark_nats)/\S+:\d+: \w*Warning: ", line)
    ]


def test_warnings_are_seen() -> None:
    """A warning of turnout is distinguished from one of a library."""
    ours = "/venv/lib/python3.14/site-packages/turnout/cli/run.py:7: DeprecationWarning: that is old"
    theirs = "/venv/lib/python3.14/site-packages/typer/__init__.py:24: DeprecationWarning: that is old"

    assert warnings_of_turnout(f"{theirs}\n{ours}\n  import old\n") == [ours]
