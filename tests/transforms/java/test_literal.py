from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.vectors.connect import same, same_schema, schema_of, value_of

from turnout.records import Float32, Int8, Moment
from turnout.records.schema import DATE, DECIMAL, Schema
from turnout.transforms.java.literal import Literal, parse_literal

LITERALS = json.loads(Path(__file__).with_name("literals.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", LITERALS, ids=lambda case: ascii(case["text"])[:40])
def test_a_literal_is_what_it_is_in_kafka(case: dict[str, Any]) -> None:
    """Schema and value are those of Kafka 4.3's ``Values.parseString``; the differential test asks the class itself."""
    literal = parse_literal(case["text"])
    schema = schema_of(case["schema"])

    assert same_schema(schema, literal.schema), literal
    assert same(schema, value_of(schema, case["value"]), literal.value), literal


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("", "string", ""),
        ("true", "boolean", True),
        ("True", "string", "True"),
        ("1", "int8", 1),
        ("128", "int16", 128),
        ("1e3", "int16", 1000),
        ("1.5", "float32", 1.5),
        ("1e300", "float64", 1e300),
        ("10:20", "int8", 10),
        ("1,000", "int8", 1),
        ("two words", "string", "two words"),
        ('{"a": 1}', "map", {"a": 1}),
        ("[1, 300]", "array", [1, 300]),
        ("[a]", "string", "[a]"),
    ],
)
def test_the_text_tells_the_type(text: str, type_: str, value: object) -> None:
    """The narrowest type that holds a number, and words for everything else."""
    literal = parse_literal(text)

    assert literal.schema is not None
    assert (type_, value) == (literal.schema.type, literal.value)


def test_null_has_no_schema() -> None:
    """The word null is no value at all."""
    assert Literal(None, None) == parse_literal("null")


def test_dates_are_days_in_milliseconds() -> None:
    """A date's text makes Connect's Date."""
    assert Literal(Schema("int32", name=DATE, version=1), 1_577_836_800_000) == parse_literal("2020-01-01")


@pytest.mark.parametrize(
    "text",
    [
        "[null,1]",
        "[1,null]",
        '{"a":null,"b":1}',
        "[12:30:00.123Z ]",
        "{,}",
        "[,]",
        "[1 2]",
        "[2013-01-01,3000000000]",
        "{[1]:2}",
        "{{}:1}",
        "{true:1,1:2}",
        "{1e400:1,10e399:2}",
        "1e99999999999",
        ".5",
        "[" * 5000,
        "[" * 101 + "]" * 101,
    ],
)
def test_what_kafka_takes_for_text(text: str) -> None:
    """Brackets that hold no array or map after all, numbers that are none, and what a Python dict cannot hold."""
    assert Literal(Schema("string"), text) == parse_literal(text)


@pytest.mark.parametrize(
    ("text", "element", "value"),
    [
        ("[1, 2.5]", "float32", [1.0, 2.5]),
        ("[1, 300]", "int16", [1, 300]),
        ('["a\\"b"]', "string", ['a\\"b']),
        ("[-1, 2013-01-01]", "int32", [Moment(-86_400_000), Moment(1_356_998_400_000)]),
        ("[12:30:00.123Z]", "int32", [Moment(45_000_123)]),
    ],
)
def test_elements_are_brought_under_their_common_schema(text: str, element: str, value: object) -> None:
    """Numbers are widened, and a number beside a date is one."""
    literal = parse_literal(text)

    assert literal.schema is not None
    assert literal.schema.values is not None
    assert (element, repr(value)) == (literal.schema.values.type, repr(literal.value))


def test_elements_without_a_common_schema_tell_their_width() -> None:
    """No common schema exists for them."""
    literal = parse_literal('[1, "x", 0.5]')

    assert Literal(Schema("array"), [Int8(1), "x", Float32(0.5)]) == literal
    assert isinstance(literal.value, list)
    assert [Int8, str, Float32] == [type(item) for item in literal.value]


def test_what_is_too_large_for_a_float_is_a_decimal() -> None:
    """Never infinite."""
    literal = parse_literal("1e400")

    assert Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "-400"),)) == literal.schema
    assert str(literal.value) == "1E+400"
