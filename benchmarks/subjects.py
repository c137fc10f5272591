"""Subjects: transforms of every function class, and tables from 1 to 10,000 mappings, in rows per second.

Beside each case in Spark stand the scan of the same files (the ratio; *net* is the rate with the scan's time taken off)
and a plain Python UDF. No subject is there twice. ``partition`` is shown in every way that was tried.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

# At the top: PySpark reads a vectorised function's annotations from its module.
import numpy as np
import pyarrow as pa

from benchmarks.harness import Case, Options, Result, Setup, Supply, clock, rates, timed
from benchmarks.peers.programs import NATS_SERVER, Program, natsgo
from turnout.errors import TurnoutError
from turnout.subjects import MappingTable, SubjectTransform

USUAL, QUICK = 200_000, 20_000
REPEATS = 3
TURNS = 15
"""Turns beside nats-server: one takes 10 ms, and what else the processor does disturbs several."""

CORES = 2
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


def cases(options: Options) -> Iterator[Case]:
    """The library by itself, beside nats-server's own code, and the same in Spark."""
    yield Case("library", lambda: _library(options))
    yield Case("nats-server", lambda: _beside_nats_server(options))
    yield Case("spark", lambda: _spark(options))


def _endless() -> Iterator[str]:
    for n in itertools.count():
        yield f"flights.{n * 7919 % 4093:03X}.{n * 104729 % 1048573:05X}.{n}-{n % 7}"


def _library(options: Options) -> Iterator[Result]:
    """The pure library in a loop over distinct subjects."""
    count, subjects = options.rows(50_000, 5_000), Supply(_endless())
    for name, apply in _applied():
        seconds = timed(
            REPEATS, lambda: subjects.take(count), lambda some, apply=apply: [apply(subject) for subject in some]
        )
        yield Result(f"library: {name}", count, rates(count, seconds), Setup("new", 1, 1))


def _beside_nats_server(options: Options) -> Iterator[Result]:
    """``apply_many`` and nats-server's `SubjectTransform.Match` by turns, after a round that warms both."""
    count, subjects = options.rows(50_000, 5_000), Supply(_endless())
    with Program([natsgo()]) as program:
        for name, destination in TRANSFORMS.items():
            transform = SubjectTransform.parse(SOURCE, destination)
            ours, its = [], []
            for _ in range(TURNS + 1):
                some = subjects.take(count)
                begun = time.process_time()
                mapped = transform.apply_many(some)
                ours.append(time.process_time() - begun)
                order = {"work": "subjects", "source": SOURCE, "destination": destination, "subjects": some}
                answer = program.ask(json.dumps(order))
                if name != "random" and answer["subjects"] != mapped:
                    raise TurnoutError(f"nats-server maps other subjects than turnout with {destination!r}")
                its.append(answer["cpu"])
            ratio = median(one / used for used, one in zip(ours[1:], its[1:], strict=True))
            extra = {"cpu_us": median(ours[1:]) / count * 1e6, "its_cpu_us": median(its[1:]) / count * 1e6}
            speeds = rates(count, ours[1:])
            yield Result(
                f"nats-server: {name}", count, speeds, Setup("new", None, 1), f"nats-server {NATS_SERVER}", ratio, extra
            )


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
def _subjects(spark: Any, count: int) -> Iterator[list[Any]]:
    """Parquet files of *count* distinct subjects of some 28 bytes: one to warm up, and one for each repeat."""
    from pyspark.sql import functions as F

    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    try:
        number = F.col("id")
        words = [F.lit("flights"), F.format_string("%03X", number * 7919 % 4093)]
        words += [F.format_string("%05X", number * 104729 % 1048573), F.concat_ws("-", number, number % 7)]
        frames = []
        for part in range(REPEATS + 1):
            ids = spark.range(part * count, (part + 1) * count, 1, CORES)
            ids.select("id", F.concat_ws(".", *words).alias("s")).write.parquet(str(folder / str(part)))
            frames.append(spark.read.parquet(str(folder / str(part))))
        yield frames
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spark(options: Options) -> Iterator[Result]:
    from turnout.spark.session.build import build_session

    count = options.rows(USUAL, QUICK)
    spark = build_session("turnout-bench-subjects", master=f"local[{CORES}]")
    setup = Setup("new", None, CORES)
    with _subjects(spark, count) as frames:
        queries = [_queries(frame) for frame in frames]
        # A JVM is slow at first: what is measured first would pay for all.
        for build in list(queries[0].values())[:3]:
            _write(build())
        scans = _seconds([frame.select("s") for frame in frames])
        yield Result("scan", count, rates(count, scans), setup)
        for case in queries[0]:
            built = [builders[case]() for builders in queries]
            with clock() as planning:
                built[0]._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark has no other way to plan
            seconds = _seconds(built)
            extra: dict[str, Any] = {
                "net_per_second": count / max(median(seconds) - median(scans), 1e-9),
                "planning_ms": planning() * 1000,
            }
            if (name := case.removeprefix("spark: ")) in UDFS:
                extra["python_udf_per_second"] = _udf_rate(spark, count, dict(_applied())[name])
            ratio = median(scans) / median(seconds)
            yield Result(case, count, rates(count, seconds), setup, "the scan alone", ratio, extra)
    spark.stop()


def _seconds(queries: Iterable[Any]) -> list[float]:
    """The seconds of each query, but for the first, which warms up."""
    remaining = iter(queries)
    return timed(REPEATS, lambda: next(remaining), _write)


def _write(query: Any) -> None:
    query.write.format("noop").mode("overwrite").save()


def _udf_rate(spark: Any, count: int, apply: Callable[[str], str | None]) -> float:
    """Rows per second of a plain Python UDF, on a twentieth of the rows."""
    from pyspark.sql import functions as F

    some = count // 20
    function = F.udf(lambda subject: apply(subject), "string")
    subject = F.concat(F.lit("flights."), F.hex(F.col("id") % 4093), F.lit(".x."), F.col("id"))
    ids = (spark.range(part * some, (part + 1) * some, 1, CORES) for part in range(2))
    return some / timed(1, lambda: next(ids).select(function(subject)), _write)[0]


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

    from turnout.spark.subjects import fnv1a, hash_by_loop, split_tokens
    from turnout.subjects.functions import OFFSET, PRIME

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
