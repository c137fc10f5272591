"""JSON Schemas as Connect schemas and back: vectors derived from the rules of Confluent's JsonSchemaData."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from turnout.codecs.json_schema.codec import definition_of
from turnout.codecs.json_schema.connect_schema import connect_schema_of
from turnout.codecs.json_schema.kind import JsonSchemaOptions
from turnout.codecs.json_schema.values import ENUM, UNION, Documents, union_field
from turnout.errors import RecordError
from turnout.records import Field, Schema
from turnout.records.schema import DATE, DECIMAL, TIMESTAMP

_DEFAULTS = JsonSchemaOptions()


def connect(document: Any, references: Any = (), **options: Any) -> Schema:
    return connect_schema_of(Documents.parse(json.dumps(document), references), JsonSchemaOptions(**options))


def present(schema: Schema) -> Schema:
    """The schema without the mark of fields that may be absent."""
    return schema.with_(
        omissible=False,
        fields=tuple(Field(field.name, present(field.schema)) for field in schema.fields),
        keys=schema.keys and present(schema.keys),
        values=schema.values and present(schema.values),
    )


def struct(**fields: Schema) -> Schema:
    return Schema("struct", fields=tuple(Field(name, schema) for name, schema in fields.items()))


def union(*members: Schema, optional: bool = False) -> Schema:
    fields = tuple(Field(union_field(at), member.with_(optional=True)) for at, member in enumerate(members))
    return Schema("struct", optional, name=UNION, fields=fields)


LONG, TEXT = Schema("int64"), Schema("string")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"type": "integer"}, LONG),
        ({"type": "integer", "connect.type": "int8"}, Schema("int8")),
        ({"type": "number"}, Schema("float64")),
        ({"type": "number", "connect.type": "float32"}, Schema("float32")),
        ({"type": "boolean"}, Schema("boolean")),
        ({"type": "string", "title": "T", "description": "d"}, Schema("string", name="T", doc="d")),
        ({"type": "string", "connect.type": "bytes"}, Schema("bytes")),
        ({"type": "string", "format": "date"}, TEXT),
        ({"minLength": 1}, TEXT),
        ({"minimum": 1}, Schema("float64")),
        ({"const": 1}, LONG),
        ({"type": "string", "const": "a"}, TEXT),
        ({"enum": ["a", "b"]}, Schema("string", parameters=((ENUM, ""), (f"{ENUM}.a", "a"), (f"{ENUM}.b", "b")))),
        ({"type": "string", "enum": ["a"]}, Schema("string", parameters=((ENUM, ""), (f"{ENUM}.a", "a")))),
        ({"type": ["string", "null"]}, TEXT.with_(optional=True)),
        ({"type": ["string"]}, TEXT),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, LONG.with_(optional=True)),
        ({"type": ["string", "integer"]}, union(TEXT, LONG)),
        ({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}, union(TEXT, LONG, optional=True)),
        ({"type": "array", "items": {"type": "string"}}, Schema("array", values=TEXT)),
        (
            {"type": "object", "connect.type": "map", "additionalProperties": {"type": "integer"}},
            Schema("map", keys=TEXT, values=LONG),
        ),
        (
            {
                "type": "array",
                "connect.type": "map",
                "items": {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
            },
            Schema("map", keys=LONG, values=TEXT),
        ),
        (
            {
                "properties": {
                    "b": {"type": "string", "connect.index": 1},
                    "a": {"type": "integer", "connect.index": 0},
                }
            },
            struct(a=LONG, b=TEXT),
        ),
        (
            {"type": "integer", "title": DATE, "connect.type": "int32", "connect.version": 1, "default": 1},
            Schema("int32", name=DATE, version=1, default=86_400_000),
        ),
        (
            {
                "type": "number",
                "title": DECIMAL,
                "connect.type": "bytes",
                "connect.parameters": {"scale": "2"},
                "default": 1.50,
            },
            Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),), default=Decimal("1.5")),
        ),
        (
            {
                "properties": {"a": {"$ref": "#/definitions/x"}, "b": {"$ref": "#/definitions/x"}},
                "definitions": {"x": {"type": "integer"}},
            },
            struct(a=LONG, b=LONG),
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}]},
            struct(a=LONG, b=TEXT),
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}}, "allOf": [{"required": ["a"]}]},
            struct(a=LONG),
        ),
    ],
)  # fmt: skip
def test_schemas_of_connect(document: Any, expected: Schema) -> None:
    """Each of the rules by itself."""
    assert present(connect(document)) == expected


@pytest.mark.parametrize(
    ("document", "about"),
    [
        (True, "expected an object as schema, found True"),
        ({}, "a schema without a type"),
        ({"type": "null"}, "a value of the type 'null'"),
        ({"oneOf": [{"type": "null"}]}, "can only be null"),
        ({"type": "array"}, "no schema of its items"),
        ({"type": "array", "items": [{"type": "string"}]}, "no schema of its items"),
        ({"type": "object", "connect.type": "map"}, "no schema of its values"),
        ({"type": "integer", "connect.type": "string"}, "connect.type: expected the type of a number"),
        ({"properties": {"a": {"$ref": "#"}}}, "recursive schemas"),
        ({"allOf": [{"$ref": "#"}]}, "recursive schemas"),
        ({"$ref": "#/definitions/x"}, "names no schema"),
        ({"$ref": "other.json"}, r"no schema 'other.json' among the references \(there are: none\)"),
        ({"$ref": "#anchor"}, "expected a name or a JSON pointer"),
        ({"$ref": 1}, "expected a text"),
        ({"allOf": [{"type": "string"}, {"properties": {"a": {"type": "string"}}}]}, "allOf of these schemas"),
        ({"anyOf": "x"}, "anyOf: expected a list"),
        ({"properties": []}, "properties: expected an object"),
        ({"type": "integer", "default": "x"}, "default: the value is not of its schema: expected an integer"),
    ],
)
def test_schemas_that_connect_does_not_have(document: Any, about: str) -> None:
    """Are refused with the part that is wrong."""
    with pytest.raises(ValueError, match=about):
        connect(document)


def test_a_schema_has_an_end() -> None:
    """Nesting is bounded, and so is what references multiply."""
    deep: Any = {"type": "string"}
    for _ in range(80):
        deep = {"type": "array", "items": deep}
    with pytest.raises(ValueError, match="64 inside one another"):
        connect(deep)
    definitions: dict[str, Any] = {"l0": {"type": "string"}}
    for level in range(1, 20):
        pair = {name: {"$ref": f"#/definitions/l{level - 1}"} for name in "ab"}
        definitions[f"l{level}"] = {"properties": pair}
    with pytest.raises(ValueError, match="more than 20,000 types"):
        connect({"$ref": "#/definitions/l19", "definitions": definitions})


_WORDS = (
    "type", "properties", "items", "additionalProperties", "required", "oneOf", "anyOf", "allOf", "$ref", "enum",
    "const", "default", "title", "connect.type", "connect.index", "connect.version", "connect.parameters", "$id",
    "definitions",
)  # fmt: skip
_VALUES = st.sampled_from([None, True, 1, 1.5, "", "#", "#/definitions/a", "string", "object", "array", "map", "null"])
_DOCUMENTS = st.recursive(
    _VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_WORDS) | st.sampled_from("ab"), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(_DOCUMENTS)
def test_any_document_is_a_schema_or_a_mistake(document: Any) -> None:
    """A schema of a registry comes from outside: nothing but a `ValueError` comes of a bad one."""
    try:
        schema = connect(document)
    except ValueError:
        return
    assert connect(json.loads(definition_of(schema, _DEFAULTS))).type == schema.type


def test_references_by_name_and_by_id() -> None:
    """A reference has the name that the registry gives it, or the ``$id`` of what it names; pointers go inside."""
    city = json.dumps({"$id": "http://shop/city.json", "definitions": {"name": {"type": "string"}}, "type": "integer"})
    document = {
        "$id": "http://shop/order.json",
        "properties": {
            "a": {"$ref": "city.json"},
            "b": {"$ref": "http://shop/city.json#/definitions/name"},
            "c": {"$ref": "named"},
        },
    }

    assert present(connect(document, [("named", city)])) == struct(a=LONG, b=TEXT, c=LONG)


def test_properties_that_are_not_required() -> None:
    """Are optional with the option, and are what Connect requires without."""
    document = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}

    assert connect(document) == struct(a=LONG, b=TEXT.with_(omissible=True))
    loose = connect(document, use_optional_for_nonrequired=True)
    assert loose == struct(a=LONG, b=TEXT.with_(optional=True, omissible=True))
    for schema, options in ((connect(document), _DEFAULTS), (loose, JsonSchemaOptions(True))):
        again = json.loads(definition_of(schema, options))["properties"]["b"]
        assert again == {"type": "string", "connect.index": 1}


CONNECT = (
    *(Schema(kind) for kind in ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "bytes")),
    Schema("int64", True, name=TIMESTAMP, version=1),
    Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),), default=Decimal("1.25")),
    Schema("string", True, default="x", doc="a text"),
    Schema("string", parameters=((ENUM, ""), (f"{ENUM}.a", "a"))),
    Schema("map", keys=TEXT, values=LONG.with_(optional=True)),
    Schema("map", keys=TEXT.with_(optional=True), values=LONG),
    Schema("map", True, keys=LONG, values=TEXT),
    Schema("array", values=Schema("struct", True, name="Line", fields=(Field("n", LONG),))),
    union(LONG, Schema("struct", name="P", fields=(Field("x", TEXT),)), optional=True),
)


@pytest.mark.parametrize("inner", CONNECT)
def test_definitions_mean_the_schema(inner: Schema) -> None:
    """A Connect schema is the one of its definition, alone and as a field."""
    whole = Schema("struct", name="shop.Order", version=2, fields=(Field("a", inner), Field("b", TEXT)))
    for schema in (inner, whole):
        assert present(connect(json.loads(definition_of(schema, _DEFAULTS)))) == schema


def test_a_definition() -> None:
    """With the words of Confluent's, and the options of the converter."""
    schema = Schema("struct", name="O", fields=(Field("n", LONG), Field("t", TEXT.with_(optional=True))))

    assert json.loads(definition_of(schema, JsonSchemaOptions(True, False))) == {
        "type": "object",
        "title": "O",
        "properties": {
            "n": {"type": "integer", "connect.type": "int64", "connect.index": 0},
            "t": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
        },
        "required": ["n"],
        "additionalProperties": False,
    }
    with pytest.raises(RecordError, match="expected the schema of the array's elements"):
        definition_of(Schema("array"), _DEFAULTS)
