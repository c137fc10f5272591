"""Runs the vectors of subject transforms: parsing, applying and reversing, in Python and in Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.vectors.outcome import OLDER_SERVERS, Outcome, in_python_and_spark, is_of_older_servers
from turnout.errors import SubjectError
from turnout.subjects import SubjectTransform, placeholders, with_placeholders
from turnout.subjects.functions import parse_call
from turnout.subjects.pattern import encode
from turnout.subjects.transform import check_mapping

_AT_ONCE = 40


def run(path: Path) -> Iterable[Outcome]:
    return in_python_and_spark(path, python_outcomes, spark_outcomes)


def name_of(vector: dict[str, Any]) -> str:
    strict = " (strict)" if vector["strict"] else ""
    return f"{vector['source']!r} -> {vector['destination']!r}{strict} on {vector['subject']!r}"


def judge(expect: Any, actual: str | SubjectError | None) -> str:
    """Why *found* is not what was expected; empty where it is. None is Spark's "no match"."""
    if isinstance(expect, dict) and "error" in expect:
        expected_reason = expect.get("reason", expect["error"])
        reason = expected_reason if actual is None and expect["stage"] == "match" else getattr(actual, "reason", None)
        return "" if reason == expected_reason else f"expected {expected_reason}, found {actual!r}"
    if not isinstance(actual, str):
        return f"expected {expect!r}, found {actual!r}"
    if isinstance(expect, str):
        good = actual == expect
    elif "hex" in expect:
        good = encode(actual).hex() == expect["hex"]
    elif "one_of" in expect:
        good = actual in expect["one_of"]
    else:
        good = bool(re.search(expect["regex"], actual)) and int(actual.rsplit(".", 1)[-1]) <= expect["max"]
    return "" if good else f"expected {expect!r}, found {actual!r}"


def _outcome(name: str, implementation: str, problem: str, *, older: bool = False) -> Outcome:
    if problem and older:
        return Outcome(name, implementation, "unsupported", OLDER_SERVERS)
    return Outcome(name, implementation, "failed" if problem else "passed", problem)


def reason_of(error: SubjectError) -> str | None:
    """The short reason of an error; None where it has none."""
    return getattr(error, "reason", None)


def _tried(work: Any) -> Any:
    try:
        return work()
    except SubjectError as failure:
        return failure


def _same(name: str, actual: Any, expect: Any) -> Outcome:
    return _outcome(name, "python", "" if actual == expect else f"expected {expect!r}, found {actual!r}")


def python_outcomes(vectors: dict[str, Any]) -> Iterator[Outcome]:
    for v in vectors["vectors"]:
        outcome = _tried(lambda v=v: parsed(v).apply(v["subject"]))
        yield _outcome(name_of(v), "python", judge(v["expect"], outcome), older=is_of_older_servers(v))
    for v in vectors["reverse"]:
        forward = parsed({**v, "strict": False})
        back = forward.reverse()
        reversed_ = None if back is None else {"source": back.source, "destination": back.destination}
        yield _same(f"reverse of {forward}", reversed_, v["server_reverse"])
        yield _same(f"{forward} on {v['subject']!r}", forward.apply(v["subject"]), v["forward"])
        if back is not None:
            outcome = back.apply(v["forward"])
            yield _same(f"reverse of {forward} on {v['forward']!r}", outcome, v["server_reverse_of_forward"])
    for v in vectors["placeholders"]:
        yield _same(f"placeholder {v['token']!r}", _placeholder(v["token"]), v["expect"])
    for v in vectors["tokenize"]:
        yield _same(f"tokenize {v['subject']!r}", with_placeholders(v["subject"]), v["expect"])
    for v in vectors["untokenize"]:
        outcome = dict(zip(("filter", "placeholders"), placeholders(v["destination"]), strict=True))
        yield _same(f"untokenize {v['destination']!r}", outcome, v["expect"])
    for v in vectors["validate_mapping"]:
        checked = _tried(lambda v=v: check_mapping(v["source"], v["destination"]))
        verdict = {"error": reason_of(checked)} if isinstance(checked, SubjectError) else "ok"
        yield _same(f"mapping {v['source']!r} -> {v['destination']!r}", verdict, v["expect"])
    for v in vectors["transform_without_match"]:
        transform = SubjectTransform.parse(v["source"], v["destination"])
        yield _same(f"{transform} on the tokens {v['tokens']}", transform.apply_tokens(v["tokens"]), v["expect"])


def _placeholder(token: str) -> dict[str, Any]:
    call = _tried(lambda: parse_call(token))
    if isinstance(call, SubjectError):
        return {"error": reason_of(call)}
    if call is None:
        return {"function": None}
    parsed_call = {"function": call.function, "wildcards": list(call.wildcards), "number": call.number}
    return {key: value for key, value in {**parsed_call, "delimiter": call.delimiter}.items() if value is not None}


def parsed(vector: dict[str, Any]) -> SubjectTransform:
    return SubjectTransform.parse(vector["source"], vector["destination"], vector["strict"])


def spark_outcomes(vectors: dict[str, Any], spark: Any) -> Iterator[Outcome]:
    """Every transform that can be built, on its subject, a few dozen columns to a query."""
    cases = [
        v for v in vectors["vectors"] if not (isinstance(v["expect"], dict) and v["expect"].get("stage") == "create")
    ]
    results = apply_all(spark, [parsed(v) for v in cases], sorted({v["subject"] for v in cases}))
    for v, transform in zip(cases, (parsed(v) for v in cases), strict=True):
        problem = judge(v["expect"], results[transform, v["subject"]])
        yield _outcome(name_of(v), "spark", problem, older=is_of_older_servers(v))


def apply_all(
    spark: Any, transforms: list[SubjectTransform], subjects: list[str]
) -> dict[tuple[SubjectTransform, str], str | None]:
    """Return the result of each transform for each subject in Spark; None for null."""
    from pyspark.sql import functions as F

    from turnout.spark.subjects import transform_subject

    rows = [(number, bytearray(encode(subject))) for number, subject in enumerate(subjects)]
    frame = spark.createDataFrame(rows, "id long, data binary").withColumn("s", F.col("data").cast("string"))
    distinct = list(dict.fromkeys(transforms))
    rendered: dict[tuple[SubjectTransform, str], str | None] = {}
    for start in range(0, len(distinct), _AT_ONCE):
        part = distinct[start : start + _AT_ONCE]
        # As bytes: what is not UTF-8 would not survive the way to Python.
        columns = [transform_subject(t, "s", seed=["id"]).cast("binary").alias(f"t{n}") for n, t in enumerate(part)]
        for row in frame.select("id", *columns).collect():
            for number, transform in enumerate(part):
                data = row[f"t{number}"]
                text = None if data is None else bytes(data).decode("utf-8", "surrogateescape")
                rendered[transform, subjects[row["id"]]] = text
    return rendered
