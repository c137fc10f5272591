"""Subjects in Spark: the vectors, and equality with the pure library on generated transforms and tables."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.settings import interpreted
from tests.subjects import strategies
from tests.vectors import mappings, subject_match, subject_transform

from turnout.errors import ConfigError, NotCompilableError, SubjectError
from turnout.subjects import MappingTable, SubjectTransform, matches
from turnout.subjects._fnv import fnv1a as fnv1a_of_bytes
from turnout.subjects.tokens import decode, encode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VECTORS = Path(__file__).parents[2] / "vectors" / "subjects"

# Each example is a Spark job that serves hundreds of cases, and a failure names all that differ: nothing to shrink.
MANY = settings(max_examples=4, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def text_of(column: Any) -> str:
    """The expression that the JVM makes of a column."""
    return str(column._jc.toString())


def _frame(spark: SparkSession, subjects: list[str]) -> DataFrame:
    """The subjects as rows of a scan: neither Python workers nor constants that the optimizer would work out."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    rows = pa.table(
        {"id": pa.array(range(len(subjects)), pa.int64()), "data": [encode(subject) for subject in subjects]}
    )
    return spark.createDataFrame(rows).withColumn("s", F.col("data").cast("string")).localCheckpoint()


def _values(frame: DataFrame, columns: list[Column]) -> list[list[Any]]:
    """The columns' values row by row, in the order of the rows."""
    named = [column.alias(f"c{number}") for number, column in enumerate(columns)]
    return [list(row)[1:] for row in sorted(frame.select("id", *named).collect(), key=lambda row: row["id"])]


def _texts(frame: DataFrame, columns: list[Column]) -> list[list[str | None]]:
    """Return `_values` with the bytes that are not UTF-8 as surrogate escapes."""
    rows = _values(frame, [column.cast("binary") for column in columns])
    return [[None if value is None else decode(bytes(value)) for value in row] for row in rows]


def _draws(frame: DataFrame) -> list[float]:
    from turnout.spark.subjects.draws import draw_bits, draw_of

    return [row[0] for row in _values(frame, [draw_of(draw_bits(["id"], what=""))])]


@contextmanager
def _small_plans(spark: SparkSession) -> Iterator[None]:
    """Interpreted, and with the small one of the two hashes: the other is thousands of nodes for each ``partition``.

    That other one has a test of its own, on every length of key, and is in the compiled queries. The vector runner by
    itself takes it too.
    """
    from turnout.spark.subjects.partition import hash_by_loop

    with (
        interpreted(spark),
        patch("turnout.spark.subjects.transform.fnv1a", hash_by_loop),
        patch("turnout.spark.subjects.mapping.fnv1a", hash_by_loop),
    ):
        yield


@pytest.mark.parametrize(
    ("module", "file", "most_terms"),
    [
        (subject_transform, "subject-transform.json", 400),
        (subject_match, "subject-match.json", 400),
        (mappings, "mappings.json", 400),
        (mappings, "mappings.json", 0),
    ],
)
def test_every_vector_gives_the_same_in_spark(
    spark: SparkSession, module: Any, file: str, most_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns return the server's result for each vector, as expressions and in Python workers."""
    monkeypatch.setattr("turnout.spark.subjects.mapper._MOST_TERMS", most_terms)
    with _small_plans(spark):
        outcomes = list(module.spark_outcomes(json.loads((VECTORS / file).read_text(encoding="utf-8")), spark))

    assert len(outcomes) > 40
    assert [outcome for outcome in outcomes if outcome.status != "passed"] == []


def _different_transforms(spark: SparkSession, transforms: list[SubjectTransform], subjects: list[str]) -> list[Any]:
    """Every transform on every subject: where the column and the library differ."""
    from turnout.spark.subjects import transform_subject

    frame = _frame(spark, subjects)
    draws = _draws(frame)
    texts = _texts(frame, [transform_subject(t, "s", seed=["id"]) for t in transforms])
    differences = []
    for subject, draw, values in zip(subjects, draws, texts, strict=True):
        for transform, value in zip(transforms, values, strict=True):
            try:
                expected: str | None = transform.apply(subject, draw)
            except SubjectError:
                expected = None
            if value != expected:
                differences.append((str(transform), subject, expected, value))
    return differences


@pytest.mark.heavy
@MANY
@given(cases=st.lists(strategies.cases(), min_size=40, max_size=40))
def test_generated_transforms_are_equal_to_the_pure_ones(spark: SparkSession, cases: list[strategies.Case]) -> None:
    """40 transforms at once, each on its own subject, on those of others, and on subjects that are not valid."""
    transforms = [SubjectTransform.parse(case.source, case.destination) for case in cases]
    with _small_plans(spark):
        differences = _different_transforms(
            spark, transforms, [*(case.subject for case in cases), *strategies.ODD_SUBJECTS]
        )

    assert differences == []


def test_every_function_is_equal_to_the_pure_one_when_compiled(spark: SparkSession) -> None:
    """Interpreted and compiled expressions are two implementations; routes run the second."""
    calls = ["wildcard(2)", "partition(7,2,1)", "partition(5)", "split(2,-)", "split(2,)", "random(9)"]
    calls += [f"{name}(2,3)" for name in strategies.CUTS]
    transforms = [SubjectTransform.parse("a.*.*", f"x.$1.{{{{{call}}}}}") for call in calls]
    transforms += [SubjectTransform.parse("a.*.>", "{{left(1,2)}}.y.>"), SubjectTransform.parse("a.b", "c.d")]
    subjects = [f"a.{one}.{two}" for one in ("b", "é-日", "\udcff--") for two in ("--x-é-", "abcdefgh", "日本語-")]

    assert _different_transforms(spark, transforms, [*subjects, "a.b", "a.b.c.d", *strategies.ODD_SUBJECTS]) == []


def _different_mappings(spark: SparkSession, table: MappingTable, subjects: list[str]) -> list[Any]:
    """Every subject through both forms of the table, in two clusters: where columns and library differ."""
    from turnout.spark.subjects import map_subject, map_subjects

    frame = _frame(spark, subjects)
    draws = _draws(frame)
    clusters = (None, "west", "west")
    mapped = map_subjects(frame, table, "s", "m0", None, ["id"])
    mapped = map_subjects(mapped, table, "s", "m1", "west", ["id"])
    texts = _texts(mapped, [mapped["m0"], mapped["m1"], map_subject(table, mapped["s"], "west", ["id"])])
    differences = []
    for subject, draw, values in zip(subjects, draws, texts, strict=True):
        for cluster, value in zip(clusters, values, strict=True):
            expected = table.apply(subject, cluster, draw)
            if value != expected:
                differences.append((len(table), cluster, subject, expected, value, str(table.find(subject))))
    return differences


@pytest.mark.heavy
@MANY
@given(case=strategies.tables_with_subjects(min_size=1, max_size=30))
def test_generated_tables_are_equal_to_the_pure_ones(
    spark: SparkSession, case: tuple[dict[str, Any], list[str]]
) -> None:
    """Overlapping sources, weights, clusters, losses and random(): every choice is the same for the same draw."""
    config, subjects = case
    with _small_plans(spark):
        differences = _different_mappings(
            spark, MappingTable.from_config(config), [*subjects, *strategies.ODD_SUBJECTS]
        )

    assert differences == []


@pytest.mark.parametrize("most_terms", [400, 0], ids=["expression", "python"])
def test_a_table_is_equal_to_the_pure_one_when_compiled(
    spark: SparkSession, most_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of source and every way to look one up, with the choices and the functions in one table."""
    monkeypatch.setattr("turnout.spark.subjects.mapper._MOST_TERMS", most_terms)
    config: dict[str, Any] = {f"static.{n}": f"s.{n % 3}" for n in range(40)}
    config |= {f"tenant{n}.*.x": f"t.{n}.$1.{{{{partition(10,1)}}}}" for n in range(20)}
    config |= {f"a.{n}.*.{n % 2}": f"{{{{split(1,-)}}}}.{n}" for n in range(20)}
    config |= {"a.*x": "starred", "few.*.>": "f.{{sliceFromLeft(1,2)}}.>", "lost": {"dest": "lost", "weight": 30}}
    config |= {
        "w.*": [
            {"dest": "w.$1.{{random(3)}}", "weight": 40},
            {"dest": "k.{{partition(9)}}.{{partition(5,1)}}", "weight": 20},
            {"dest": "west.$1", "weight": 100, "cluster": "west"},
        ]
    }
    subjects = [f"static.{n}" for n in range(45)] + [f"tenant{n}.é{n}.x" for n in range(25)] + ["lost"] * 40
    subjects += [f"a.{n}.x-y--é.{m}" for n in range(22) for m in (0, 1)] + ["a.zz", "few.abcdé.b.c", "few.a", "a.*"]
    subjects += [f"w.{n}-a-token-that-is-longer-than-sixteen" for n in range(30)]

    assert _different_mappings(spark, MappingTable.from_config(config), [*subjects, *strategies.ODD_SUBJECTS]) == []


@MANY
@given(keys=st.lists(strategies.keys, min_size=200, max_size=200))
def test_partition_hashes_keys_of_every_length(spark: SparkSession, keys: list[bytes]) -> None:
    """Straight-line code, loop and empty key agree with FNV-1a, for any bytes."""
    from turnout.spark.subjects.partition import fnv1a

    keys = [*keys, *[b"abcdefghijklmnopqrstuvwxyz"[:length] for length in range(27)], *[b"\xff" * n for n in range(40)]]
    frame = _frame(spark, [decode(key) for key in keys])
    hashes = [row[0] for row in _values(frame, [fnv1a(frame["s"])])]

    assert hashes == [fnv1a_of_bytes(key) for key in keys]


@pytest.mark.heavy
@MANY
@given(cases=st.lists(strategies.cases(), min_size=30, max_size=30))
def test_matching_agrees_on_filters_and_subjects(spark: SparkSession, cases: list[strategies.Case]) -> None:
    """subject_matches is matches(), null-free, on generated filters and on subjects that are not valid."""
    from turnout.spark.subjects import subject_matches

    filters = [case.source for case in cases] + ["a..b", "", ">", "a.>.b", "*x", "a.*", "a.b.c"]
    subjects = [case.subject for case in cases] + list(strategies.ODD_SUBJECTS)
    with interpreted(spark):
        frame = _frame(spark, subjects)
        rows = _values(frame, [subject_matches(filter_, "s") for filter_ in filters])
        rendered = {
            (filter_, subject): value
            for subject, row in zip(subjects, rows, strict=True)
            for filter_, value in zip(filters, row, strict=True)
        }

    assert rendered == {(f, s): matches(f, s) for f in filters for s in subjects}


def test_weighted_shares_pass_a_chi_square_test(spark: SparkSession) -> None:
    """200,000 records over weights 1, 9, 20, 30 and the remainder: no more deviation than chance allows."""
    from turnout.spark.subjects import map_subject

    table = MappingTable.from_config(
        {"foo": [{"dest": name, "weight": weight} for name, weight in (("a", 1), ("b", 9), ("c", 20), ("d", 30))]}
    )
    count = 200_000
    frame = spark.range(count).selectExpr("'foo' topic", "cast(id % 7 as int) partition", "id offset")
    mapped = frame.select(map_subject(table, "topic", seed=["topic", "partition", "offset"]).alias("m"))
    rows = {row["m"]: row["count"] for row in mapped.groupBy("m").count().collect()}
    expected = {"a": 0.01, "b": 0.09, "c": 0.20, "d": 0.30, "foo": 0.40}
    chi_square = sum((rows[k] - count * share) ** 2 / (count * share) for k, share in expected.items())

    assert set(rows) == set(expected)
    # The 99.99 % quantile for four degrees of freedom; the seed is fixed, so this never changes by chance.
    assert chi_square < 23.5


def test_weight_and_random_do_not_follow_one_another(spark: SparkSession) -> None:
    """Of the records that a weight sends one way, random(4) spreads evenly: the choices are independent."""
    from turnout.spark.subjects import map_subject

    table = MappingTable.from_config({"foo": {"dest": "a.{{random(4)}}.{{random(4)}}", "weight": 50}})
    mapped = spark.range(160_000).selectExpr("'foo' s", "id").select(map_subject(table, "s", seed=["id"]).alias("m"))
    rows = {row["m"]: row["count"] for row in mapped.groupBy("m").count().collect() if row["m"] != "foo"}
    chi_square = sum((number - 5_000) ** 2 / 5_000 for number in rows.values())

    assert len(rows) == 16
    # The 99.99 % quantile for 16 degrees of freedom.
    assert chi_square < 45.9


def test_map_subjects_keeps_rows_and_columns_without_a_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    """It works in a streaming query: one row per row, other columns unchanged, no exchange in the plan."""
    from turnout.spark.subjects import map_subjects

    table = MappingTable.from_config({"foo.*": "bar.$1", "lost": {"dest": "lost", "weight": 0}})
    rows = [("foo.1", 0, 1, "x"), ("lost", 0, 2, "y"), ("other", 0, 3, None), (None, 0, 4, "z")]
    schema = "topic string, partition int, offset long, value string"
    frame = spark.createDataFrame(rows, schema)
    seed = ["topic", "partition", "offset"]
    mapped = map_subjects(frame, table, seed=seed)
    plan = mapped._jdf.queryExecution().executedPlan().toString()
    frame.write.parquet(str(tmp_path / "in"))
    stream = map_subjects(spark.readStream.schema(schema).parquet(str(tmp_path / "in")), table, into="to", seed=seed)
    query = stream.writeStream.format("memory").queryName("mapped").trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = spark.table("mapped").orderBy("offset").collect()

    assert mapped.columns == frame.columns
    assert [tuple(row) for row in mapped.collect()] == [
        ("bar.1", 0, 1, "x"),
        (None, 0, 2, "y"),
        ("other", 0, 3, None),
        (None, 0, 4, "z"),
    ]
    assert "Exchange" not in plan
    assert "Join" not in plan
    assert [(row["topic"], row["to"]) for row in streamed] == [
        ("foo.1", "bar.1"),
        ("lost", None),
        ("other", "other"),
        (None, None),
    ]


def test_what_is_unmatched_becomes_what_the_caller_asks(spark: SparkSession) -> None:
    """Null by default, the subject or any other value on request, an error where a route wants one."""
    from pyspark.errors import SparkRuntimeException
    from pyspark.sql import functions as F

    from turnout.spark.subjects import transform_subject

    transform = SubjectTransform.parse("foo.*", "bar.$1")
    frame = _frame(spark, ["foo.1", "baz"])
    columns = [transform_subject(transform, "s"), transform_subject(transform, "s", unmatched=F.col("s"))]
    failing = frame.select(transform_subject(transform, "s", unmatched=F.raise_error(F.lit("no match"))))

    assert _texts(frame, columns) == [["bar.1", "bar.1"], [None, "baz"]]
    with pytest.raises(SparkRuntimeException, match="no match"):
        failing.collect()


def test_choices_need_a_seed_and_tables_need_utf_8(spark: SparkSession) -> None:
    """Mappings that are not repeatable or cannot be expressed fail while the query is built."""
    from turnout.spark.subjects import map_subject, transform_subject

    with pytest.raises(ConfigError, match="name columns that identify a record"):
        transform_subject(SubjectTransform.parse("a", "b.{{random(3)}}"), "s")
    with pytest.raises(ConfigError, match="name columns that identify a record"):
        map_subject(MappingTable.from_config({"a": {"dest": "b", "weight": 40}}), "s")
    with pytest.raises(NotCompilableError, match="not UTF-8"):
        map_subject(MappingTable.from_config({"a": "b.\udcff"}), "s")
    assert text_of(map_subject(MappingTable.from_config({}), "s")) == "s"


def _mixed(count: int) -> MappingTable:
    """A table whose sources have their wildcards at different places, each place in its own way."""
    config = {}
    for number in range(count):
        tokens = ["*" if digit == "1" else f"t{place}" for place, digit in enumerate(f"{number:011b}")]
        config[".".join(["m", *tokens])] = f"o.{number}"
    return MappingTable.from_config(config)


def test_many_forms_are_a_small_plan(spark: SparkSession) -> None:
    """The plan of 1,500 sources of different shapes is as small as that of any table of more than the bound."""
    from turnout.spark.subjects import map_subject, map_subjects

    table = _mixed(1_500)
    subject = ".".join(["m", *(f"t{place}" for place in range(10)), "x"])
    frame = _frame(spark, [subject, "other"])
    mapped = map_subjects(frame, table, "s", "to")
    plan = mapped._jdf.queryExecution().executedPlan().toString()

    assert len(plan) < 5_000
    assert len(text_of(map_subject(table, "s"))) < 1_000
    assert [row["to"] for row in mapped.orderBy("id").collect()] == [table.apply(subject), "other"]


@pytest.mark.heavy
def test_many_forms_fit_into_a_small_driver(tmp_path: Path) -> None:
    """1,500 sources of different shapes are mapped by a session whose driver has a gigabyte."""
    script = tmp_path / "job.py"
    script.write_text(
        """
from pyspark.sql import SparkSession
from tests.spark.subjects.test_mapping import _mixed
from turnout.spark.subjects import map_subjects

builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "1g")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
table = _mixed(1_500)
texts = [[f"t{place}" if number % (place + 1) else "x" for place in range(11)] for number in range(64)]
subjects = [".".join(["m", *tokens]) for tokens in texts]
frame = spark.createDataFrame([(subject,) for subject in subjects], "topic string")
rows = map_subjects(frame, table, into="to").collect()
assert [row.to for row in rows] == [table.apply(subject) for subject in subjects]
print("mapped", len(rows))
""",
        encoding="utf-8",
    )
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert "mapped 64" in done.stdout


def test_thousands_of_mappings_stay_one_small_method(spark: SparkSession) -> None:
    """The generated code does not grow with the table, and the JVM compiles it: fewer than 8,000 bytes."""
    from turnout.spark.subjects import map_subjects, transform_subject

    # Without an exchange: an adaptive plan shows no code before it has run.
    frame = spark.range(0, 5, 1, 1).selectExpr("concat('a.', id) s", "id")

    def size(query: DataFrame) -> int:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            query.explain("codegen")
        return max(int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", output.getvalue()))

    def table(count: int) -> MappingTable:
        literals = {f"orders.{n}": f"eu.{n % 7}.orders" for n in range(count)}
        stars = {f"tenant{n}.*": f"t.{n}.$1.{{{{partition(10,1)}}}}" for n in range(20)}
        return MappingTable.from_config({**literals, **stars})

    few, many = (size(map_subjects(frame, table(count), "s", "m")) for count in (10, 2_000))
    one = size(frame.select(transform_subject(SubjectTransform.parse("a.*", "b.{{partition(10,1)}}"), "s")))

    assert abs(many - few) < 200
    assert max(many, one) < 8_000
