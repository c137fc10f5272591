"""Subjects in Spark: the vectors, and equality with the pure library on generated transforms and tables."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from tests.spark.subjects.frames import MANY, draws_of, small_plans, subject_frame, texts_of
from tests.subjects import strategies
from tests.vectors import mappings, subject_match, subject_transform
from tests.vectors.outcome import OLDER_SERVERS

from turnout.errors import ConfigError, NotCompilableError
from turnout.subjects import MappingTable, SubjectTransform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = Path(__file__).parents[2] / "vectors" / "subjects"


def text_of(column: Any) -> str:
    """The expression that the JVM makes of a column."""
    return str(column._jc.toString())


@pytest.mark.parametrize(
    ("module", "file", "most_terms"),
    [
        pytest.param(subject_transform, "subject-transform.json", 400, marks=pytest.mark.heavy),
        (subject_match, "subject-match.json", 400),
        (mappings, "mappings.json", 400),
        (mappings, "mappings.json", 0),
    ],
)
def test_every_vector_gives_the_same_in_spark(
    spark: SparkSession, module: Any, file: str, most_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns return the server's result for each vector, as expressions and in Python workers."""
    monkeypatch.setattr("turnout.spark.subjects._MOST_TERMS", most_terms)
    with small_plans(spark):
        outcomes = list(module.spark_outcomes(json.loads((VECTORS / file).read_text(encoding="utf-8")), spark))

    assert len(outcomes) > 40
    older = [outcome for outcome in outcomes if outcome.status == "unsupported"]
    assert {outcome.reason for outcome in older} <= {OLDER_SERVERS}
    assert [outcome for outcome in outcomes if outcome.status != "passed" and outcome not in older] == []


def _different_mappings(spark: SparkSession, table: MappingTable, subjects: list[str]) -> list[Any]:
    """Every subject through both forms of the table, in two clusters: where columns and library differ."""
    from turnout.spark.subjects import map_subject, map_subjects

    frame = subject_frame(spark, subjects)
    draws = draws_of(frame)
    clusters = (None, "west", "west")
    mapped = map_subjects(frame, table, "s", "m0", None, ["id"])
    mapped = map_subjects(mapped, table, "s", "m1", "west", ["id"])
    texts = texts_of(mapped, [mapped["m0"], mapped["m1"], map_subject(table, mapped["s"], "west", ["id"])])
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
    with small_plans(spark):
        differences = _different_mappings(
            spark, MappingTable.from_config(config), [*subjects, *strategies.ODD_SUBJECTS]
        )

    assert differences == []


@pytest.mark.parametrize("most_terms", [400, 0], ids=["expression", "python"])
def test_a_table_is_equal_to_the_pure_one_when_compiled(
    spark: SparkSession, most_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of source and every way to look one up, with the choices and the functions in one table."""
    monkeypatch.setattr("turnout.spark.subjects._MOST_TERMS", most_terms)
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
    frame = subject_frame(spark, [subject, "other"])
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
