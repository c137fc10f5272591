"""Runs the vectors of matching, subsets, collisions and validity, in Python and, where it has them, in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.vectors.outcome import OLDER_SERVERS, Outcome, in_python_and_spark, is_of_older_servers
from turnout import subjects

# Per list of the file: what a vector asks, and the field that has the answer.
_Ask = Callable[[dict[str, Any]], object]
PYTHON: dict[str, tuple[tuple[str, _Ask], ...]] = {
    "match": (("matches", lambda v: subjects.matches(v["filter"], v["subject"])),),
    "subset": (("subset", lambda v: subjects.is_subset(v["subject"], v["filter"])),),
    "collide": (("collide", lambda v: subjects.collide(v["a"], v["b"])),),
    "valid": (("valid", lambda v: subjects.is_valid(v["subject"])),),
    "literal": (
        ("valid_literal", lambda v: subjects.is_valid_literal(v["subject"])),
        ("valid_publish", lambda v: subjects.is_publishable(v["subject"])),
    ),
    "has_no_wildcard": (("literal", lambda v: subjects.is_literal(v["subject"])),),
    "token_at": (("expect", lambda v: subjects.token_at(v["subject"], v["index"])),),
    "reverse_match": (("expect", lambda v: subjects.subscriptions_under(v["subscriptions"], v["subject"])),),
}


def run(path: Path) -> Iterable[Outcome]:
    return in_python_and_spark(path, python_outcomes, spark_outcomes)


def _judge(kind: str, vector: dict[str, Any], implementation: str, field: str, actual: object) -> Outcome:
    question = {key: value for key, value in vector.items() if key not in ("note", "live", field)}
    good = actual == vector[field]
    if not good and is_of_older_servers(vector):
        return Outcome(f"{kind} {question}", implementation, "unsupported", OLDER_SERVERS)
    reason = "" if good else f"expected {vector[field]!r}, found {actual!r}"
    return Outcome(f"{kind} {question}", implementation, "passed" if good else "failed", reason)


def python_outcomes(vectors: dict[str, Any]) -> Iterator[Outcome]:
    for kind, questions in PYTHON.items():
        for vector in vectors[kind]:
            for field, ask in questions:
                yield _judge(kind, vector, "python", field, ask(vector))


def spark_outcomes(vectors: dict[str, Any], spark: Any) -> Iterator[Outcome]:
    from pyspark.sql import functions as F

    from turnout.spark.subjects import subject_is_publishable, subject_matches

    texts = sorted({v["subject"] for v in vectors["match"] + vectors["literal"]})
    frame = spark.createDataFrame([(text,) for text in texts], "s string")
    filters = sorted({v["filter"] for v in vectors["match"]})
    columns = [subject_matches(filter_, "s").alias(f"f{n}") for n, filter_ in enumerate(filters)]
    rows = frame.select("s", subject_is_publishable(F.col("s")).alias("publish"), *columns).collect()
    by_subject = {row["s"]: row for row in rows}
    for vector in vectors["match"]:
        matched = by_subject[vector["subject"]][f"f{filters.index(vector['filter'])}"]
        yield _judge("match", vector, "spark", "matches", matched)
    for vector in vectors["literal"]:
        yield _judge("literal", vector, "spark", "valid_publish", by_subject[vector["subject"]]["publish"])
