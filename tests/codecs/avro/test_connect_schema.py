"""Vectors derived from the rules of Confluent's AvroData."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from tests.codecs.avro.strategies import records

from turnout.codecs.avro.connect_schema import avro_schema_of, connect_schema_of, schema_text
from turnout.codecs.avro.types import parse_schema
from turnout.errors import RecordError
from turnout.records import Field, Schema
from turnout.records.schema import DATE, DECIMAL, TIMESTAMP


def schema_of(given_schema: Any) -> Schema:
    return connect_schema_of(parse_schema(json.dumps(given_schema)))


@pytest.mark.parametrize(
    ("given_schema", "expected"),
    [
        ("int", Schema("int32")),
        ({"type": "int", "connect.type": "int8"}, Schema("int8")),
        (["null", "string"], Schema("string", optional=True)),
        (["string"], Schema("string")),
        ({"type": "int", "logicalType": "date"}, Schema("int32", name=DATE, version=1)),
        ({"type": "long", "logicalType": "timestamp-millis"}, Schema("int64", name=TIMESTAMP, version=1)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"), ("connect.decimal.precision", "9"))),
        ),
        (
            {"type": "fixed", "name": "a.F", "size": 4},
            Schema("bytes", name="a.F", parameters=(("connect.fixed.size", "4"),)),
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            Schema(
                "string",
                name="E",
                parameters=(
                    ("io.confluent.connect.avro.Enum", "E"),
                    ("io.confluent.connect.avro.Enum.A", "A"),
                    ("io.confluent.connect.avro.Enum.B", "B"),
                ),
            ),
        ),
        ({"type": "array", "items": "long"}, Schema("array", values=Schema("int64"))),
        ({"type": "map", "values": "long"}, Schema("map", keys=Schema("string"), values=Schema("int64"))),
        (
            ["null", "string", "long"],
            Schema(
                "struct",
                optional=True,
                name="io.confluent.connect.avro.Union",
                fields=(
                    Field("string", Schema("string", optional=True)),
                    Field("long", Schema("int64", optional=True)),
                ),
            ),
        ),
    ],
)
def test_schemas(given_schema: Any, expected: Schema) -> None:
    assert schema_of(given_schema) == expected


def test_defaults_of_fields() -> None:
    fields = [
        {"name": "n", "type": "long", "default": 5},
        {"name": "x", "type": "double", "default": 1},
        {"name": "s", "type": ["null", "string"], "default": None},
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "l", "type": {"type": "array", "items": "int"}, "default": [1]},
        {"name": "wrong", "type": "long", "default": "5"},
    ]
    schema = schema_of({"type": "record", "name": "R", "fields": fields})
    assert [field.schema.default for field in schema.fields] == [5, 1.0, None, b"\xff", [1], None]


@settings(max_examples=60, deadline=None)
@given(records)
def test_written_schemas_are_read_as_the_same(given_schema: Any) -> None:
    schema = schema_of(given_schema)
    document = avro_schema_of(schema)
    assert connect_schema_of(parse_schema(schema_text(document))) == schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (Schema("array"), "items without a schema"),
        (Schema("map", keys=Schema("int64"), values=Schema("int64")), "keys that are no strings"),
        (Schema("struct", name="R", fields=(Field("a b", Schema("int64")),)), "'a b' is no name in Avro"),
        (Schema("struct", name="R", fields=(Field("v", Schema("variant")),)), "v has no schema"),
        (
            Schema(
                "struct",
                name="R",
                fields=(Field("r", Schema("struct", name="R", fields=(Field("n", Schema("int64")),))),),
            ),
            "two different schemas have the name R",
        ),
    ],
)
def test_schemas_without_a_form_in_avro(schema: Schema, problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        avro_schema_of(schema)
