"""The results file: machine, versions, and the rows of each benchmark that ran.

A benchmark that runs again replaces its rows; every row is written as soon as it is measured, so that a run that is
killed leaves what it has.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

import turnout
from benchmarks.harness import Options

FOLDER = Path(__file__).parent / "results"
SCHEMA = 1

_PACKAGES = ("numpy", "pyarrow", "pyspark", "msgspec", "nats-py", "grpcio")


def now() -> str:
    """Return the time as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_mb": round(psutil.virtual_memory().total / 2**20),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "architecture": platform.machine(),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def versions() -> dict[str, str | None]:
    """Return the versions of turnout and of what its speed depends on; None for what is not there."""
    found: dict[str, str | None] = {"turnout": turnout.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "nats-server": _nats_server()}


def _nats_server() -> str | None:
    from turnout.embedded import find_nats_server
    from turnout.errors import TurnoutError

    try:
        done = subprocess.run([find_nats_server(), "--version"], capture_output=True, text=True, check=False)
    except (TurnoutError, OSError):
        return None
    return done.stdout.strip().rpartition(" ")[2].lstrip("v")


def commit() -> str | None:
    """Return the commit of the checkout, marked where other files than results differ; None without a checkout."""
    name = _git("describe", "--always", "--exclude", "*")
    changed = _git("status", "--porcelain", "--untracked-files=no", ":/", f":(exclude,top)benchmarks/{FOLDER.name}")
    return f"{name}-dirty" if name and changed else name


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=FOLDER.parent)
    except OSError:
        return None
    return done.stdout.strip() or None


class ResultsFile:
    """A results file that is being written.

    Args:
        path: of the file; one that is there is continued.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._content: dict[str, Any] = {
            "schema": SCHEMA, "machine": machine(), "versions": versions(), "benchmarks": kept.get("benchmarks", {}),
        }  # fmt: skip

    @classmethod
    def of_today(cls, folder: Path = FOLDER) -> ResultsFile:
        """Open the file of this day and machine."""
        cpu = re.sub(r"[^a-z0-9]+", "-", _processor().lower().replace("(r)", "")).strip("-")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder / f"{time.strftime('%Y-%m-%d', time.gmtime())}-{os.cpu_count()}x-{cpu}.json")

    def recorded(self, name: str, options: Options, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the rows of one benchmark on, each of them when it is in the file."""
        begun = time.monotonic()
        given = {key: _plain(value) for key, value in asdict(options).items() if value}
        kept: dict[str, Any] = self._content["benchmarks"].get(name, {}) if options.cases else {}
        run: dict[str, Any] = {
            "commit": commit(), "at": now(), "seconds": 0.0, "options": given, "load_before": _load(),
            "load_after": None, "cases": [row for row in kept.get("cases", []) if not _is_repeated(row, options)],
        }  # fmt: skip
        self._content["benchmarks"][name] = run
        self._write()
        for row in rows:
            run["cases"] = [case for case in run["cases"] if _key(case) != _key(row)] + [row]
            run["seconds"] = round(time.monotonic() - begun, 1)
            run["load_after"] = _load()
            self._write()
            yield row

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(_rounded(self._content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        new.replace(self.path)


def _is_repeated(row: dict[str, Any], options: Options) -> bool:
    """Return True for a case without a result that is measured again: its row has no size, and results other names."""
    return row["status"] != "measured" and options.wants(row["case"])


def _key(row: dict[str, Any]) -> tuple[str, int | None]:
    return row["case"], row.get("size")


def _load() -> float:
    return round(os.getloadavg()[0], 2)


def _rounded(value: Any) -> Any:
    """Return the same with floats of five significant digits: more are chance."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def _plain(option: object) -> object:
    """Return an option as JSON has it: of a folder its name, as its path says nothing elsewhere."""
    return option.name if isinstance(option, Path) else option
