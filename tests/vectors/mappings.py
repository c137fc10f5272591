"""Runs the vectors of account mappings: what is accepted, and where messages go, in Python and in Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.vectors.outcome import Outcome, in_python_and_spark
from turnout.errors import SubjectError
from turnout.subjects import MappingTable, mappings_in, parse_config

_MESSAGES = 5_000
REFUSED = "refused on purpose: the server accepts an empty destination and crashes on the first message"


def run(path: Path) -> Iterable[Outcome]:
    return in_python_and_spark(path, python_outcomes, spark_outcomes)


def config_of(vector: dict[str, Any]) -> dict[str, Any]:
    """The ``mappings`` block as a dict; of a source that occurs twice the last one wins."""
    return {mapping["source"]: mapping["value"] for mapping in vector["mappings"]}


def _outcome(name: str, implementation: str, actual: Any, expect: Any) -> Outcome:
    good = actual == expect
    reason = "" if good else f"expected {expect!r}, found {actual!r}"
    return Outcome(name, implementation, "passed" if good else "failed", reason)


def _reason(config: dict[str, Any]) -> str | None:
    try:
        MappingTable.from_config(config)
    except SubjectError as failure:
        return str(getattr(failure, "reason", failure))
    return None


def python_outcomes(vectors: dict[str, Any]) -> Iterator[Outcome]:
    for v in vectors["validation"] + vectors["distribution"]:
        yield _outcome(
            f"configuration file: {v['name']}", "python", mappings_in(parse_config(v["config"])), config_of(v)
        )
    for v in vectors["validation"]:
        reason = _reason(config_of(v))
        if v.get("server_crash"):
            good = reason == "missing_destination"
            yield Outcome(f"validation: {v['name']}", "python", "unsupported" if good else "failed", REFUSED)
        else:
            yield _outcome(f"validation: {v['name']}", "python", reason, v.get("reason"))
    for v in vectors["distribution"]:
        table = MappingTable.from_config(config_of(v))
        for cluster, shares in v["expected_percent"].items():
            # One draw in the middle of each percent: the shares are then exact.
            drawn = Counter(table.apply(v["publish"], cluster, (n + 0.5) / 100) or "" for n in range(100))
            yield _outcome(f"distribution: {v['name']} in {cluster!r}", "python", dict(drawn), shares)
    overlap = vectors["overlap"]
    reason = MappingTable.from_config(overlap["mappings"]).apply(overlap["publish"])
    yield _outcome("overlap", "python", reason in OVERLAP, True)


# The server takes any of these, in an order that changes from start to start; ours is the order written.
OVERLAP = ("star.x", "lit", "gt.x", "all.o.x")


def spark_outcomes(vectors: dict[str, Any], spark: Any) -> Iterator[Outcome]:
    """Shares of many messages, within five standard deviations: draws come from a hash, so this is repeatable."""
    from pyspark.sql import functions as F

    from turnout.spark.subjects import map_subject

    cases = [(v, cluster) for v in vectors["distribution"] for cluster in v["expected_percent"]]
    frame = spark.range(_MESSAGES).select("id", *[F.lit(v["publish"]).alias(f"s{n}") for n, (v, _) in enumerate(cases)])
    columns = [
        map_subject(MappingTable.from_config(config_of(v)), f"s{n}", cluster, [F.col("id")]).alias(f"m{n}")
        for n, (v, cluster) in enumerate(cases)
    ]
    rows = frame.select(*columns).collect()
    for number, (v, cluster) in enumerate(cases):
        counts = Counter(row[number] or "" for row in rows)
        yield Outcome(
            f"distribution: {v['name']} in {cluster!r}", "spark", *_close(counts, v["expected_percent"][cluster])
        )
    overlap = vectors["overlap"]
    table = MappingTable.from_config(overlap["mappings"])
    row = spark.range(1).select(F.lit(overlap["publish"]).alias("s")).select(map_subject(table, "s").alias("m")).first()
    yield _outcome("overlap", "spark", row["m"] in OVERLAP, True)


def _close(actual: Counter[str], percents: dict[str, int]) -> tuple[Any, str]:
    if set(actual) - set(percents):
        return "failed", f"expected {percents}, found {dict(actual)}"
    for subject, percent in percents.items():
        share = percent / 100
        spread = 5 * (_MESSAGES * share * (1 - share)) ** 0.5
        if abs(actual[subject] - _MESSAGES * share) > spread:
            return "failed", f"expected {percent}% on {subject!r}, found {actual[subject]} of {_MESSAGES}"
    return "passed", ""
