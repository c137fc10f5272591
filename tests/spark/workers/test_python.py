"""The Python of Spark's workers: this one, with PySpark from where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from turnout.spark.workers.python import worker_python

HOME = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


def test_workers_import_what_is_installed(tmp_path: Path) -> None:
    """Spark's zips are taken from the path; what else is on it stays, in order."""
    lib = HOME / "python" / "lib"
    (py4j,) = lib.glob("py4j-*.zip")
    path = os.pathsep.join(map(str, (lib / "pyspark.zip", py4j, tmp_path / "a b", tmp_path)))
    look = (
        "import os, sys, pyspark; print(pyspark.__file__, os.environ['PYTHONPATH'], sys.argv[1], sys.prefix, sep='|')"
    )
    completed = subprocess.run(
        [worker_python(), "-c", look, "an argument"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip

    assert completed.stdout.strip().split("|") == [
        str(HOME / "__init__.py"),
        os.pathsep.join((str(tmp_path / "a b"), str(tmp_path))),
        "an argument",
        sys.prefix,
    ]


def test_it_is_made_once(cache: Path) -> None:
    """The second call finds it."""
    first = worker_python()

    assert worker_python() == first
    assert first.startswith(str(cache))
    assert len(list((cache / "turnout").iterdir())) == 1


def test_where_it_cannot_be_made(tmp_path: Path, monkeypatch: Any) -> None:
    """Without a cache, or with another Spark, workers run on this Python as it is."""
    (tmp_path / "turnout").touch()
    assert worker_python() == sys.executable

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python() == sys.executable
