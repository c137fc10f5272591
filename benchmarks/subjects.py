"""Subjects: transforms of every function class, and tables from 1 to 10,000 mappings, in rows per second.

Beside each case stand the scan of the same file (the ratio; *net* is the rate with the scan's time taken off), a plain
Python UDF, and the pure library in a loop. ``partition`` is shown in every way that was tried.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

# At the top: PySpark reads a vectorised function's annotations from its module.
import numpy as np
import pyarrow as pa

from benchmarks.harness import Options, Result, best_of, clock
from turnout.subjects import MappingTable, SubjectTransform

USUAL, QUICK = 5_000_000, 200_000
SOURCE = "flights.*.*.*"
TRANSFORMS = {
    "reorder": "eu.$2.$1.$3",
    "partition of two tokens": "eu.{{partition(10,1,2)}}",
    "partition of the subject": "eu.{{partition(10)}}",
    "split": "eu.{{split(3,-)}}",
    "splitFromLeft": "eu.{{splitFromLeft(2,2)}}",
    "sliceFromRight": "eu.{{sliceFromRight(2,2)}}",
    "left": "eu.{{left(2,2)}}",
    "random": "eu.{{random(10)}}",
}
SIZES = (1, 10, 100, 1_000, 10_000)
UDFS = ("reorder", "partition of two tokens", "split", "table of 1,000 literals and 20 wildcards")


def run(options: Options) -> list[Result]:
    library = _library(options)
    if options.cases and all(case.startswith("library") for case in options.cases):
        return list(library)
    transforms = list(library)
    return [*transforms, *_spark(options, {result.case: result.rows_per_second for result in transforms})]


def _library(options: Options) -> Iterator[Result]:
    """The pure library in a loop over distinct subjects; each figure is also shown beside its case in Spark."""
    count = min(options.rows(USUAL, QUICK), 200_000)
    subjects = [f"flights.{n * 7919 % 4093:03X}.{n * 104729 % 1048573:05X}.{n}-{n % 7}" for n in range(count)]
    for name, apply in _applied():
        if options.wants(f"library: {name}") or options.wants(f"spark: {name}"):
            seconds = best_of(3, lambda apply=apply: [apply(subject) for subject in subjects])
            yield Result(f"library: {name}", count, count / seconds, "the Python library, one core")


def _applied() -> Iterator[tuple[str, Callable[[str], str | None]]]:
    """By name: what the library makes of a subject."""
    for name, destination in TRANSFORMS.items():
        yield name, SubjectTransform.parse(SOURCE, destination).apply
    for name, table in _tables():
        yield name, lambda subject, table=table: table.apply(subject, None, 0.5)


@cache
def _tables() -> tuple[tuple[str, MappingTable], ...]:
    # One in fifty has a wildcard, the rest are literal; about half of the subjects are mapped. Subjects are distinct,
    # so nearly all of them miss the literals, which costs the same look-up as a hit.
    shares = [(size, max(1, size // 50)) for size in SIZES]
    sizes = [(f"table of {size:,} mappings", _table(size - stars, stars)) for size, stars in shares]
    return (*sizes, ("table of 1,000 literals and 20 wildcards", _table(1_000, 20)))


def _table(literals: int, wildcards: int) -> MappingTable:
    config: dict[str, Any] = {f"flights.{n:03X}.static.0": f"eu.{n}" for n in range(literals)}
    for number in range(wildcards - 1):
        # Four shapes of source and three forms of destination; the last wildcard maps half of what is left.
        source = (f"flights.{number:03X}.*.*", f"flights.*.*.{number}", f"flights.{number + 64:03X}.>", f"*.{number}.>")
        to = (f"w.{number}.$2.$1", f"w.{number}.$1", f"w.{number}.>", f"w.{number}.$1.>")
        config[source[number % 4]] = to[number % 4]
    config["flights.*.*.*"] = {"destination": "half.$1.$2", "weight": 50}
    return MappingTable.from_config(config)


@contextmanager
def _subjects(spark: Any, count: int) -> Iterator[Any]:
    """A Parquet file of *count* distinct subjects, of some 28 bytes each."""
    from pyspark.sql import functions as F

    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    try:
        number = F.col("id")
        words = [F.lit("flights"), F.format_string("%03X", number * 7919 % 4093)]
        words += [F.format_string("%05X", number * 104729 % 1048573), F.concat_ws("-", number, number % 7)]
        frame = spark.range(0, count, 1, 2).select("id", F.concat_ws(".", *words).alias("s"))
        frame.write.parquet(str(folder / "subjects"))
        yield spark.read.parquet(str(folder / "subjects"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spark(options: Options, library: dict[str, float]) -> Iterator[Result]:
    from turnout.spark.session.build import build_session

    count = options.rows(USUAL, QUICK)
    spark = build_session("turnout-bench-subjects", master="local[2]")
    with _subjects(spark, count) as frame:
        scanning = frame.select("s")
        queries = {case: build for case, build in _queries(frame).items() if options.wants(case)}
        _write(scanning)
        # A JVM is slow at first: what is measured first would pay for all.
        for build in list(queries.values())[:3]:
            _write(build())
        scan = best_of(3, lambda: _write(scanning))
        yield Result("scan", count, count / scan)
        for case, build in queries.items():
            query = build()
            with clock() as planning:
                query._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark has no other way to plan
            seconds = best_of(3, lambda query=query: _write(query))
            extra: dict[str, Any] = {
                "net rows/s": round(count / max(seconds - scan, 1e-9)),
                "planning ms": round(planning() * 1000),
            }
            name = case.removeprefix("spark: ")
            if f"library: {name}" in library:
                extra["Python library/s"] = round(library[f"library: {name}"])
            if name in UDFS:
                extra["Python UDF/s"] = round(_udf_rate(frame, count, dict(_applied())[name]))
            yield Result(case, count, count / seconds, "the scan alone", scan / seconds, extra)


def _write(query: Any) -> None:
    query.write.format("noop").mode("overwrite").save()


def _udf_rate(frame: Any, count: int, apply: Callable[[str], str | None]) -> float:
    """Rows per second of a plain Python UDF, on a twentieth of the rows."""
    from pyspark.sql import functions as F

    query = frame.where(F.col("id") % 20 == 0).select(F.udf(lambda subject: apply(subject), "string")("s"))
    return count / 20 / best_of(1, lambda: _write(query))


def _queries(frame: Any) -> dict[str, Callable[[], Any]]:
    """By case: what builds its query."""
    from turnout.spark.subjects import map_subject, map_subjects, transform_subject

    queries: dict[str, Callable[[], Any]] = {
        f"spark: {name}": lambda destination=destination: frame.select(
            transform_subject(SubjectTransform.parse(SOURCE, destination), "s", seed=["id"]).alias("x")
        )
        for name, destination in TRANSFORMS.items()
    }
    for name, table in _tables():
        queries[f"spark: {name}"] = lambda table=table: map_subjects(frame, table, "s", "x", seed=["id"]).select("x")
    column = map_subject(_table(1_000, 20), "s", seed=["id"])
    queries["spark: the last table, as a column"] = lambda: frame.select(column.alias("x"))
    for name, way in _partitions().items():
        queries[f"partition by {name}"] = lambda way=way: frame.select(way.alias("x"))
    return queries


def _partitions() -> dict[str, Any]:
    """FNV-1a of the same two tokens in each of the ways that were tried; the Python UDF stands beside the transform."""
    from pyspark.sql import functions as F

    from turnout.spark.subjects.partition import fnv1a, hash_by_loop
    from turnout.spark.subjects.text import split_tokens
    from turnout.subjects._fnv import OFFSET, PRIME

    tokens = split_tokens(F.col("s"))
    key = F.concat(F.get(tokens, F.lit(1)), F.get(tokens, F.lit(2)))

    def vectorised(keys: pa.Array) -> pa.Array:
        offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
        data = np.frombuffer(keys.buffers()[2], np.uint8)
        lengths = np.diff(offsets)
        state = np.full(len(keys), OFFSET, np.uint32)
        for place in range(int(lengths.max(initial=0))):
            live = np.flatnonzero(lengths > place)
            state[live] = (state[live] ^ data[offsets[live] + place]) * np.uint32(PRIME)
        return pa.array(state, pa.uint32()).cast(pa.int64())

    return {
        "the key alone": key,
        "inverse CRC, straight (ours)": fnv1a(key),
        "higher-order function": hash_by_loop(key),
        "Arrow UDF with numpy": F.arrow_udf(vectorised, "long")(key),
    }
