"""Outcome of one vector in one implementation, and comparison of a file of vectors in both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["passed", "failed", "unsupported"]


@dataclass(frozen=True)
class Outcome:
    """*reason* says why it failed, or which reviewed reason makes it unsupported."""

    name: str
    implementation: str
    status: Status
    reason: str = ""


def in_python_and_spark(
    path: Path,
    python_outcomes: Callable[[dict[str, Any]], Iterable[Outcome]],
    spark_outcomes: Callable[[dict[str, Any], Any], Iterable[Outcome]],
) -> Iterator[Outcome]:
    """The outcomes of the vectors of one file, with a Spark session where pyspark is installed."""
    vectors = json.loads(path.read_text(encoding="utf-8"))
    yield from python_outcomes(vectors)
    try:
        from turnout.spark.session.build import build_session
    except ImportError:
        yield Outcome("all of them", "spark", "unsupported", "pyspark is not installed")
        return
    yield from spark_outcomes(vectors, build_session("turnout-vectors", master="local[2]"))
