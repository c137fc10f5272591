"""InsertHeader, DropHeaders and HeaderFrom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.transforms.chains import FOO, STRUCT, chain
from tests.vectors.connect import same, same_schema, schema_of, value_of

from turnout.records import Failure, Float32, Header, Int8, Moment, Record
from turnout.records.schema import DATE, DECIMAL, Schema
from turnout.transforms import Chain
from turnout.transforms.kafka.headers import Literal, parse_literal


def test_every_record_gets_the_header() -> None:
    """The literal is read once."""
    outcomes = chain("InsertHeader", header="h", value_literal="5").apply([Record("t", 1), Record("t", None)])

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [[5], [5]]  # type: ignore[union-attr]


def test_headers_of_these_names_are_dropped() -> None:
    """All of a name; others keep their order."""
    chain = Chain.from_route([{"name": "d", "type": "DropHeaders", "headers": "a"}])
    headers = [Header("a", b"1"), Header("b", b"2"), Header("a", b"3"), Header("c", b"4")]
    record = chain.apply(Record("t", 1, headers=headers))

    assert record is not None
    assert [header.name for header in record.headers] == ["b", "c"]


def test_headers_under_a_predicate_go_to_the_right_records() -> None:
    """A copy leaves the values in their block."""
    records = [Record(topic, {"a": topic}) for topic in ("foo", "bar", "foo")]

    outcomes = chain("HeaderFrom$Value", fields="a", headers="h", operation="copy", predicate=FOO).apply(records)

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [["foo"], [], ["foo"]]  # type: ignore[union-attr]


def test_a_null_needs_an_optional_schema_in_a_header() -> None:
    """A null that was never stored cannot become a header."""
    records = [Record("t", {"a": "x", "n": n}, value_schema=STRUCT) for n in (1, None)]

    outcomes = chain("HeaderFrom$Value", fields="n", headers="h", operation="copy").apply(records)

    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False, True]


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
