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


OLDER_SERVERS = "nats-server before 2.15.3 takes a source token that only starts with * for a wildcard"


def is_of_older_servers(vector: dict[str, Any]) -> bool:
    """Return True if a vector holds for servers before 2.15.3 only, by a token that only starts with ``*``."""
    filters = [vector.get(name, "") for name in ("source", "filter", "a", "b")]
    starred = any(len(token) > 1 and token.startswith("*") for filter_ in filters for token in filter_.split("."))
    return starred and bool(vector.get("quirk")) and "since" not in vector
