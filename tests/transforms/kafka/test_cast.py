"""Conversions of single values as Cast makes them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from turnout.errors import RecordError
from turnout.records import Float32, Int8, Int32, Moment, Record, Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP
from turnout.transforms import Chain
from turnout.transforms.kafka.cast import caster, keeps

DAY = 86_400_000


def cast(schema: Schema | None, value: Any, target: str) -> Any:
    return caster(schema, target)(value)


@pytest.mark.parametrize(
    ("type_", "value", "target", "result"),
    [
        ("int32", 300, "int8", 44),
        ("int64", -(1 << 63), "int32", 0),
        ("float64", 1e10, "int32", (1 << 31) - 1),
        ("float64", 1e10, "int8", -1),
        ("float64", -1e30, "int64", -(1 << 63)),
        ("float64", -3.99, "int16", -3),
        ("float64", math.nan, "int64", 0),
        ("float64", math.inf, "int64", (1 << 63) - 1),
        ("float64", 0.9, "boolean", False),
        ("int64", 16777217, "float32", 16777216.0),
        ("float64", 1e300, "float32", math.inf),
        ("boolean", True, "float64", 1.0),
        ("boolean", False, "string", "false"),
        ("string", "TRUE", "boolean", True),
        ("string", "1", "boolean", False),
        ("string", "+007", "int8", 7),
        ("string", "\u0665", "int32", 5),
        ("string", " 1.5e1d\n", "float64", 15.0),
        ("string", "0x1p-1", "float64", 0.5),
        ("string", "-Infinity", "float32", -math.inf),
        ("string", "1e999", "float64", math.inf),
        ("float32", 0.10000000149011612, "string", "0.1"),
        ("float64", 1e7, "string", "1.0E7"),
        ("bytes", b"\xff\xfe", "string", "//4="),
    ],
)
def test_numbers_and_texts_are_cast_as_in_java(type_: str, value: Any, target: str, result: Any) -> None:
    """Integers wrap, floats saturate, text is strict."""
    converted = cast(Schema(type_), value, target)

    assert (type(result), result) == (type(converted), converted)


@pytest.mark.parametrize(
    ("schema", "value", "target", "result"),
    [
        (Schema("bytes", name=DECIMAL), Decimal("5E+3"), "string", "5E+3"),
        (Schema("bytes", name=DECIMAL), Decimal("-300.9"), "int8", -44),
        (Schema("bytes", name=DECIMAL), Decimal("1e999999999"), "int64", 0),
        (Schema("int32", name=DATE), Moment(3 * DAY), "int32", 3),
        (Schema("int32", name=TIME), Moment(1000), "float64", 1000.0),
        (Schema("int64", name=TIMESTAMP), Moment(-5), "int8", -5),
        (Schema("int64", name=TIMESTAMP), Moment(-5), "string", "23:59:59.995Z"),
        (Schema("int32", name=DATE), Moment(3 * DAY), "string", "1970-01-04"),
        (Schema("int64", name=TIMESTAMP), Moment(DAY + 1), "string", "1970-01-02T00:00:00.001Z"),
    ],
)
def test_logical_types_are_their_carriers(schema: Schema, value: Any, target: str, result: Any) -> None:
    """Numbers of days, of milliseconds, or text whose pattern the number tells."""
    assert result == cast(schema, value, target)


@pytest.mark.parametrize(
    ("schema", "value", "target"),
    [
        (Schema("string"), "300", "int8"),
        (Schema("string"), " 5", "int64"),
        (Schema("string"), "1.0", "int64"),
        (Schema("string"), "", "int64"),
        (Schema("string"), "x", "float64"),
        (Schema("string"), "1_0", "float64"),
        (Schema("string"), "nan", "float32"),
        (Schema("bytes"), b"", "int8"),
        (Schema("array"), [], "string"),
        (Schema("struct"), {}, "string"),
        (Schema("int32", name=DATE), Moment(DAY + 1), "int64"),
        (Schema("int32", name=TIME), Moment(-1), "int64"),
        (Schema("string", name=DATE), "x", "int64"),
        (None, Decimal(1), "string"),
        (None, Moment(1), "string"),
        (None, [], "string"),
    ],
)
def test_what_cannot_be_cast_is_an_error(schema: Schema | None, value: Any, target: str) -> None:
    """Of the record alone."""
    with pytest.raises(RecordError):
        cast(schema, value, target)


def test_schemaless_values_tell_their_width() -> None:
    """Their width is that of the value, because there is no schema."""
    converted = [
        cast(None, value, target) for value, target in ((300, "int8"), ("0.1", "float32"), (Int32(5), "int64"))
    ]

    assert [(Int8, 44), (Float32, 0.10000000149011612), (int, 5)] == [(type(outcome), outcome) for outcome in converted]


@pytest.mark.parametrize(
    ("schema", "target", "kept"),
    [
        (Schema("int8"), "int64", True),
        (Schema("int64"), "int32", False),
        (Schema("string"), "string", True),
        (Schema("float32"), "float64", True),
        (Schema("int64", name=TIMESTAMP), "int64", False),
        (Schema("boolean"), "int8", False),
    ],
)
def test_some_casts_leave_the_column_alone(schema: Schema, target: str, kept: bool) -> None:
    """This is the case if every value already has the target type."""
    assert kept == keeps(schema, target)


@pytest.mark.parametrize("text", ["1" * 100_000 + "x", "." * 100_000, "1." + "0" * 100_000 + "e", "-" + "9" * 100_000])
def test_long_texts_are_refused_at_once(text: str) -> None:
    """No pattern here goes back over what it has read."""
    for target in ("int64", "float64"):
        try:
            cast(Schema("string"), text, target)
        except RecordError:
            continue


def test_a_bad_record_leaves_the_others_alone() -> None:
    """Each record of a batch is cast for itself."""
    chain = Chain.from_config(
        {"transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.Cast$Value",
         "transforms.t.spec": "a:int8"}
    )  # fmt: skip

    outcomes = chain.apply([Record("t", {"a": text}, offset=at) for at, text in enumerate(["1", "x", None, "3"])])

    assert [outcome.value if isinstance(outcome, Record) else None for outcome in outcomes] == [
        {"a": 1},
        None,
        {"a": None},
        {"a": 3},
    ]
