"""What is done to schemaless values, one field or many at a time."""

from __future__ import annotations

import json
from itertools import combinations

from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F

from turnout.spark.variants import with_fields

OBJECTS = [
    "{}",
    '{"a": 1, "b": null, "ü": "ü", "c": {"d": [null, {"a": 1.5}]}, "e": 12345678901234567890, "f": 1e300}',
    '{"a": {"b": {}}, "\\u0001": true, "": [], "x.y": -0.5, "new": false}',
]


def changes() -> dict[str, Column | None]:
    """Fields set, set to JSON's null, deleted for some objects and for all; names with dots and both quotes."""
    sometimes = F.when(F.col("n") != 1, F.lit("s").cast("variant"))
    return {
        "a": F.lit(2).cast("variant"),
        "b": None,
        "ü": F.parse_json(F.lit("null")),
        "new": sometimes,
        "x.y": F.parse_json(F.lit('{"k": [1]}')),
        "missing": None,
        'it\'s "it"': F.lit(b"x").cast("variant"),
    }


def test_many_changes_at_once_are_the_same_as_one_after_the_other(spark: SparkSession) -> None:
    """Both ways of putting an object together give the same fields, of the same types."""
    rows = spark.createDataFrame(list(enumerate(OBJECTS)), "n int, text string").select(
        "n", F.parse_json("text").alias("v")
    )
    wanted = changes()
    columns: list[Column] = []
    for count in (2, 3, len(wanted)):
        for names in combinations(wanted, count):
            chosen = {name: wanted[name] for name in names}
            single = F.col("v")
            for name, column in chosen.items():
                single = with_fields(single, {name: column})
            columns += [_shown(with_fields(F.col("v"), chosen)), _shown(single)]

    for start in range(0, len(columns), 64):
        batch = columns[start : start + 64]
        for row in rows.select(*[column.alias(f"c{at}") for at, column in enumerate(batch)]).collect():
            found = [_plain(one) for one in row]
            assert found[::2] == found[1::2]
            assert None not in found


def _shown(value: Column) -> Column:
    return F.struct(F.to_json(value).alias("text"), F.schema_of_variant(value).alias("type"))


def _plain(shown: Row) -> tuple[object, str]:
    return json.loads(shown["text"]), shown["type"]


def test_every_field_can_go_and_all_be_new(spark: SparkSession) -> None:
    """Nothing is left of an object whose fields are all deleted, and nothing is needed to begin with."""
    rows = spark.sql('select parse_json(\'{"a": 1, "b": 2, "c": 3}\') as v, parse_json(\'{}\') as empty')
    new = {name: F.lit(name).cast("variant") for name in ("a", "b", "c")}

    found = rows.select(
        F.to_json(with_fields(F.col("v"), dict.fromkeys("abc"))), F.to_json(with_fields(F.col("empty"), new))
    ).collect()[0]

    assert [json.loads(text) for text in found] == [{}, {"a": "a", "b": "b", "c": "c"}]
