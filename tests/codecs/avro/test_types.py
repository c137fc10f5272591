from __future__ import annotations

import json
from typing import Any

import pytest

from turnout.codecs.avro.types import parse_schema


def test_names_and_namespaces() -> None:
    text = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
            {"name": "same", "type": "E"},
            {"name": "full", "type": "a.b.E"},
        ],
    }
    type_ = parse_schema(json.dumps(text))
    assert type_.name == "a.b.R"
    assert {field.type.name for field in type_.fields} == {"a.b.E"}


def test_references() -> None:
    city = '{"type": "fixed", "name": "geo.City", "size": 3}'
    trip = '{"type": "record", "name": "geo.Trip", "fields": [{"name": "to", "type": "City"}]}'
    assert parse_schema(trip, (("geo.City", city),)).fields[0].type.size == 3


def test_unknown_or_invalid_logical_types_are_ignored() -> None:
    for given in (
        {"type": "string", "logicalType": "date"},
        {"type": "long", "logicalType": "mine"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
    ):
        assert parse_schema(json.dumps(given)).logical is None


_LINKED = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (_LINKED, "next.1.: L contains itself: recursive schemas are not supported"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": "strng"}]},
            "x: expected a type, found 'strng'",
        ),
        ({"type": "record", "name": "R"}, "expected the fields of the record R, found None"),
        ({"type": "record", "name": "1", "fields": []}, "expected the name of the record, found '1'"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "a symbol of the enum E occurs twice"),
        ({"type": "fixed", "name": "F", "size": -1}, "expected a size of 0 to"),
        (["null", ["string"]], "expected different types in the union"),
        (["int", "int"], "expected different types in the union, found int, int"),
        ([], "expected a union with branches"),
        (5, "schema: expected a type, found 5"),
    ],
)
def test_mistakes(given: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_schema(json.dumps(given))


def test_short_schemas_of_enormous_types() -> None:
    types: Any = {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "int"}]}
    for level in range(1, 40):
        inner = [{"name": "a", "type": types}, {"name": "b", "type": f"R{level - 1}"}]
        types = {"type": "record", "name": f"R{level}", "fields": inner}
    with pytest.raises(ValueError, match="expected at most 20000 types"):
        parse_schema(json.dumps(types))


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_schemas(depth: int) -> None:
    text = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    with pytest.raises(ValueError, match="inside of one another"):
        parse_schema(text)
