"""Subjects: transforms of every function class, and tables from 1 to 10,000 mappings, in rows per second.

Beside each case stands the scan of the same file. A plain Python UDF and the pure library in a loop are the
alternatives that the columns are there to beat; ``partition`` is shown in every way that was tried.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def run(options: Options) -> list[Result]:
    only_library = options.cases and all(case.startswith("library") for case in options.cases)
    return [*_library(options), *(() if only_library else _spark(options))]


def _library(options: Options) -> Iterator[Result]:
    count = min(options.rows(USUAL, QUICK), 200_000)
    subjects = [f"flights.{n * 7919 % 4093:03X}.{n * 104729 % 1048573:05X}.{n}-{n % 7}" for n in range(count)]
    for name, destination in TRANSFORMS.items():
        case = f"library: {name}"
        if options.wants(case):
            apply = SubjectTransform.parse(SOURCE, destination).apply
            seconds = best_of(3, lambda apply=apply: [apply(subject) for subject in subjects])
            yield Result(case, count, count / seconds, "the Python library, one core")
    for name, table in _tables():
        case = f"library: {name}"
        if options.wants(case):
            seconds = best_of(3, lambda table=table: [table.apply(subject, None, 0.5) for subject in subjects])
            yield Result(case, count, count / seconds, "the Python library, one core")


def _tables() -> Iterator[tuple[str, MappingTable]]:
    for size in SIZES:
        # One in fifty has a wildcard, the rest are literal; about half of the subjects are mapped.
        stars = max(1, size // 50)
        yield f"table of {size:,} mappings", _table(size - stars, stars)
    yield "table of 1,000 literals and 20 wildcards", _table(1_000, 20)


def _table(literals: int, wildcards: int) -> MappingTable:
    config: dict[str, Any] = {f"flights.{n:03X}.static.0": f"eu.{n}" for n in range(literals)}
    for number in range(wildcards):
        # Four shapes of source and three forms of destination.
        source = (f"flights.{number:03X}.*.*", f"flights.*.*.{number}", f"flights.{number + 64:03X}.>", f"*.{number}.>")
        to = (f"w.{number}.$2.$1", f"w.{number}.$1", f"w.{number}.>", f"w.{number}.$1.>")
        config[source[number % 4]] = to[number % 4]
    config.setdefault("flights.*.*.*", {"destination": "half.$1.$2", "weight": 50})
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


def _spark(options: Options) -> Iterator[Result]:
    from pyspark.sql import functions as F

    from turnout.spark.session import build_session
    from turnout.spark.subjects import map_subject, map_subjects, transform_subject

    count = options.rows(USUAL, QUICK)
    spark = build_session("turnout-bench-subjects", master="local[2]")
    with _subjects(spark, count) as frame:

        def measure(case: str, query: Any, baseline: float | None, size: int = count) -> Result:
            with clock() as planning:
                query._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark has no other way to plan
            work: Callable[[], object] = lambda: query.write.format("noop").mode("overwrite").save()  # noqa: E731
            rate = size / best_of(2, work)
            ratio = None if baseline is None else rate / baseline
            scan = None if baseline is None else "the scan alone"
            return Result(case, size, rate, scan, ratio, {"planning_ms": round(planning() * 1000)})

        scan = measure("scan", frame.select("s"), None)
        yield scan
        queries: dict[str, Callable[[], Any]] = {
            f"spark: {name}": lambda destination=destination: frame.select(
                transform_subject(SubjectTransform.parse(SOURCE, destination), "s", seed=["id"]).alias("x")
            )
            for name, destination in TRANSFORMS.items()
        }
        for name, table in _tables():
            queries[f"spark: {name}"] = lambda table=table: map_subjects(frame, table, "s", "x", seed=["id"]).select(
                "x"
            )
        column = map_subject(_table(1_000, 20), "s", seed=["id"])
        queries["spark: the last table, as a column"] = lambda: frame.select(column.alias("x"))
        for name, way in _partitions().items():
            queries[f"partition by {name}"] = lambda way=way: frame.select(way.alias("x"))
        for case, build in queries.items():
            if options.wants(case):
                yield measure(case, build(), scan.rows_per_second)
        case = "python UDF: reorder"
        if options.wants(case):
            apply = SubjectTransform.parse(SOURCE, TRANSFORMS["reorder"]).apply
            few = count // 10
            udf = F.udf(lambda subject: apply(subject), "string")
            yield measure(case, frame.where(F.col("id") % 10 == 0).select(udf("s")), scan.rows_per_second, few)


def _partitions() -> dict[str, Any]:
    """FNV-1a of the same two tokens in each of the ways that were tried."""
    from pyspark.sql import functions as F

    from turnout.spark.subjects.partition import fnv1a, hash_by_loop
    from turnout.spark.subjects.text import split_tokens
    from turnout.subjects._fnv import OFFSET, PRIME
    from turnout.subjects._fnv import fnv1a as one_by_one

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
        "Python UDF": F.udf(lambda text: one_by_one(text.encode()), "long")(key),
    }
