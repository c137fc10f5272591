"""Spark's notation of a struct."""

from __future__ import annotations

import pytest

from turnout.codecs import DdlError, parse_ddl
from turnout.records import Field, Schema
from turnout.records.schema import DATE, DECIMAL, TIMESTAMP

TYPES = {
    "TINYINT": "int8", "byte": "int8", "SMALLINT": "int16", "short": "int16", "INT": "int32", "integer": "int32",
    "BIGINT": "int64", "LONG": "int64", "Float": "float32", "REAL": "float32", "DOUBLE": "float64",
    "BOOLEAN": "boolean", "STRING": "string", "VARCHAR(10)": "string", "CHAR(3)": "string", "BINARY": "bytes",
    "VARIANT": "variant",
}  # fmt: skip


def fields(ddl: str) -> dict[str, Schema]:
    return {field.name: field.schema for field in parse_ddl(ddl).schema.fields}


@pytest.mark.parametrize(("name", "type_"), TYPES.items())
def test_each_type_has_its_schema(name: str, type_: str) -> None:
    """In any case of letters, and optional, as it is in Spark."""
    assert {"a": Schema(type_, True)} == fields(f"a {name}")


def test_logical_types_have_connects_names() -> None:
    """Date, Timestamp in all its kinds, and Decimal with its scale; ten digits and no scale if nothing is said."""
    columns = fields("a DATE, b TIMESTAMP, c TIMESTAMP_NTZ, d DECIMAL(10,2), e DEC, f NUMERIC(5)")

    assert [schema.logical for schema in columns.values()] == [DATE, TIMESTAMP, TIMESTAMP, DECIMAL, DECIMAL, DECIMAL]
    assert [columns[name].scale for name in "def"] == [2, 0, 0]
    assert [column.digits for column in parse_ddl("d DECIMAL(10,2), e DEC, f NUMERIC(5)").inner] == [10, 10, 5]


def test_types_may_be_nested() -> None:
    """Structs with or without colons, arrays and maps, one in the other."""
    columns = fields("a STRUCT<x: INT, y ARRAY<STRUCT<z: STRING NOT NULL>>>, b MAP<STRING, ARRAY<INT>>, c STRUCT<>")

    inner = Schema("struct", True, fields=(Field("z", Schema("string")),))
    a = (Field("x", Schema("int32", True)), Field("y", Schema("array", True, values=inner)))
    assert Schema("struct", True, fields=a) == columns["a"]
    ints = Schema("array", True, values=Schema("int32", True))
    assert Schema("map", True, keys=Schema("string", True), values=ints) == columns["b"]
    assert Schema("struct", True) == columns["c"]


@pytest.mark.parametrize(
    "ddl",
    [
        "a INT, `b c` STRING",
        "STRUCT<a: INT, `b c`: STRING>",
        "a int comment 'x, y' , `b c` string -- end",
        "a/**/INT,`b c`string",
    ],
)
def test_the_same_may_be_written_in_many_ways(ddl: str) -> None:
    """White space, comments, and the whole as a type."""
    assert {"a": Schema("int32", True), "b c": Schema("string", True)} == fields(ddl)


def test_names_may_be_quoted_and_types_taken_as_names() -> None:
    """A backtick is doubled in backticks."""
    assert list(fields("`a``b` INT, `` INT, date DATE, array ARRAY<INT>, 1st INT")) == [
        "a`b",
        "",
        "date",
        "array",
        "1st",
    ]


@pytest.mark.parametrize(
    ("ddl", "place", "about"),
    [
        ("a STRNG", 3, "did you mean STRING?"),
        ("a", 2, "found the end, expected a type"),
        ("", 1, "expected a column's name"),
        ("a INT,", 7, "expected a column's name"),
        ("a INT b INT", 7, "expected a comma or the end"),
        ("a INT NOT", 10, "expected NULL after NOT"),
        ("a INT COMMENT x", 15, "expected a text in quotes"),
        ("a INT, a INT", 8, "occurs twice"),
        ("a ARRAY INT", 9, "expected '<'"),
        ("a ARRAY<INT", 12, "expected '>'"),
        ("a MAP<INT, INT>", 7, "MAP<STRING, …>"),
        ("a DECIMAL(39, 2)", 10, "expected 1 to 38"),
        ("a DECIMAL(5, 6)", 10, "expected at most the 5 digits"),
        ("a DECIMAL(x)", 11, "expected a whole number"),
        ("a-b INT", 2, "found '-'"),
        ("INT", 4, "found the end, expected a type"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_place_and_what_was_expected(ddl: str, place: int, about: str) -> None:
    """In characters from 1."""
    with pytest.raises(DdlError) as refused:
        parse_ddl(ddl)

    assert place == refused.value.position + 1
    assert about in str(refused.value)
