"""Spark's VARIANT in bytes: what Spark writes is read, and what is written Spark reads."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from turnout.codecs.variant import decode, encode
from turnout.errors import RecordError
from turnout.records import BigInt, Field, Float32, Moment, Schema, Struct
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP

VALUES: list[Any] = [
    None,
    True,
    False,
    *(sign * (1 << bits) for bits in (0, 7, 8, 15, 31, 32, 62) for sign in (1, -1)),
    (1 << 63) - 1,
    -(1 << 63),
    1.5,
    -0.0,
    1e300,
    "",
    "é" * 31,
    "é" * 32,
    "x" * 70_000,
    [],
    {},
    [1, [None, {"a": []}], "x"],
    {"b": 1, "a": {"c": [{}]}, "": None, "ü": "ü", 'it\'s "it"': 0, "\U0001f600": 1, "\ufffd": 2},
    {f"k{n}": n for n in range(300)},
    list(range(300)),
    [{"k": "v" * 70_000}, {"k": 1}],
]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
)


@given(values.filter(lambda value: "\ud800" not in repr(value)))
def test_what_is_written_is_read_again(value: Any) -> None:
    """Any JSON is read back unchanged."""
    try:
        written = encode(value)
    except RecordError:
        # Lone surrogates have no UTF-8.
        return

    assert decode(*written) == value


def test_spark_reads_what_is_written(spark: SparkSession) -> None:
    """Each value is the JSON that it was to Spark, whatever the sizes of its parts."""
    rows = spark.createDataFrame(
        [(n, VariantVal(*encode(value))) for n, value in enumerate(VALUES)], "n int, v variant"
    )

    collected = rows.selectExpr("n", "to_json(v) text", "v:k299 field").orderBy("n").collect()

    assert [json.loads(row["text"]) for row in collected] == VALUES
    assert [row["field"].toPython() for row in collected if row["field"] is not None] == [299]


def test_what_spark_writes_is_read(spark: SparkSession) -> None:
    """Parsed JSON, where fractions are decimals, and each type of Spark."""
    texts = [(n, json.dumps(value)) for n, value in enumerate(VALUES)]
    parsed = spark.createDataFrame(texts, "n int, text string").selectExpr("parse_json(text) v", "n").orderBy("n")
    typed = spark.sql(
        """SELECT to_variant_object(named_struct('i', 7S, 'f', 0.5F, 'd', 1.25D, 'm', 1.50BD, 'b', X'00ff',
        'day', DATE'1969-12-31', 't', TIMESTAMP'1969-12-31 23:59:59.9995Z', 'n', TIMESTAMP_NTZ'1970-01-01 00:00:01',
        'many', parse_json('12345678901234567890'), 'none', parse_json('null'))) v"""
    )

    rows = [decode(bytes(row["v"].value), bytes(row["v"].metadata)) for row in parsed.collect()]
    (row,) = typed.collect()
    object_: Any = decode(bytes(row["v"].value), bytes(row["v"].metadata))

    assert rows == VALUES
    assert object_ == {
        "i": 7, "f": 0.5, "d": 1.25, "m": 1.5, "b": b"\x00\xff", "day": -86_400_000, "t": -1, "n": 1_000,
        "many": 12345678901234567890, "none": None,
    }  # fmt: skip
    assert {name: type(object_[name]) for name in ("f", "m", "day", "t", "many")} == {
        "f": Float32, "m": float, "day": Moment, "t": Moment, "many": BigInt,
    }  # fmt: skip


def test_values_with_schemas_have_sparks_types(spark: SparkSession) -> None:
    """Dates, timestamps, decimals and floats of a struct are such in a variant; a map with other keys is pairs."""
    schema = Schema(
        "struct",
        fields=(
            Field("day", Schema("int32", name=DATE)),
            Field("at", Schema("int64", name=TIMESTAMP)),
            Field("clock", Schema("int32", name=TIME)),
            Field("price", Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),))),
            Field("ratio", Schema("float32")),
            Field("counts", Schema("map", keys=Schema("int32"), values=Schema("int64"))),
            Field("inner", Schema("struct", True, fields=(Field("x", Schema("string", True)),))),
        ),
    )
    value = {
        "day": Moment(86_400_000), "at": Moment(-1), "clock": Moment(5), "price": Decimal("1.5"), "ratio": 0.5,
        "counts": {1: 2}, "inner": {"x": None},
    }  # fmt: skip
    rows = spark.createDataFrame(
        [(VariantVal(*encode(value, schema)),), (VariantVal(*encode(Struct(schema, value))),)], "v variant"
    )

    for row in rows.selectExpr("v", "schema_of_variant(v) type").collect():
        read_value = row["v"].toPython()

        assert read_value["day"] == date(1970, 1, 2)
        assert read_value["at"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)
        assert (read_value["clock"], read_value["price"], read_value["ratio"]) == (5, Decimal("1.50"), 0.5)
        assert (read_value["counts"], read_value["inner"]) == ([[1, 2]], {"x": None})
        assert "price: DECIMAL" in row["type"]
        assert "ratio: FLOAT" in row["type"]


@pytest.mark.parametrize(
    "value", [10**38, -(10**38), Decimal(1).scaleb(-39), Decimal("NaN"), "\ud800", Moment(1 << 62)]
)
def test_what_a_variant_cannot_hold_is_refused(value: Any) -> None:
    """More than 38 digits, no number, half a character, a date beyond Spark's."""
    with pytest.raises(RecordError):
        encode({"a": [value]})


@pytest.mark.parametrize("value", [b"", b"\x18\x01", bytes([63 << 2]), b"\x02\x01\x07\x00\x01\x00", b"\x05\xff"])
def test_what_is_no_variant_is_refused(value: bytes) -> None:
    """Truncated, of an unknown type, with an unknown name, and text that is not UTF-8."""
    with pytest.raises(RecordError):
        decode(value, encode(None)[1])
