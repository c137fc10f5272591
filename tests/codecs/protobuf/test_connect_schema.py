"""Connect schemas of messages. What is expected was derived from the rules of Confluent's ProtobufData, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.codecs.protobuf.schemas import OLD, WIDE

from turnout.codecs.protobuf.connect_schema import Message, plan_of
from turnout.codecs.protobuf.descriptors import text_of_registry
from turnout.codecs.protobuf.kind import ProtobufOptions
from turnout.records import Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP

NAMESPACE = "io.confluent.connect.protobuf."


def plan(text: str, message: str | None = None, **options: bool) -> Message:
    return plan_of(text_of_registry(text).message(message), ProtobufOptions(**options))


def field(name: str, text: str = WIDE, message: str | None = None, **options: bool) -> Schema:
    found = plan(text, message, **options).schema.field(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "type_", "parameters"),
    [
        ("i32", "int32", {"Tag": "1"}),
        ("s32", "int32", {"Type": "sint32", "Tag": "2"}),
        ("sf32", "int32", {"Type": "sfixed32", "Tag": "3"}),
        ("u32", "int64", {"Type": "uint32", "Tag": "4"}),
        ("f32", "int64", {"Type": "fixed32", "Tag": "5"}),
        ("i64", "int64", {"Tag": "6"}),
        ("u64", "int64", {"Type": "uint64", "Tag": "9"}),
        ("single", "float32", {"Tag": "11"}),
        ("twice", "float64", {"Tag": "12"}),
        ("flag", "boolean", {"Tag": "13"}),
        ("text", "string", {"Tag": "14"}),
        ("raw", "bytes", {"Tag": "15"}),
        ("tiny", "int8", {"Tag": "33"}),
        (
            "size",
            "string",
            {"Enum": "Size", "Enum.SMALL": "0", "Enum.LARGE": "2", "Enum.BIG": "-1", "Tag": "16"},
        ),
    ],
)
def test_scalars_have_connects_types(name: str, type_: str, parameters: dict[str, str]) -> None:
    """Unsigned 32 bits need 64, and the parameters keep what the type alone does not say."""
    schema = field(name)

    assert (type_, True) == (schema.type, schema.optional)
    assert {NAMESPACE + key: value for key, value in parameters.items()} == dict(schema.parameters)


@pytest.mark.parametrize(
    ("name", "logical", "parameters"),
    [
        ("at", TIMESTAMP, {}),
        ("day", DATE, {}),
        ("time", TIME, {}),
        ("price", DECIMAL, {"scale": "2", "connect.decimal.precision": "8"}),
    ],
)
def test_messages_with_a_meaning_are_logical_types(name: str, logical: str, parameters: dict[str, str]) -> None:
    """Times, dates and decimals; a decimal's scale is an option of its field."""
    schema = field(name)

    assert (logical, 1) == (schema.logical, schema.version)
    assert parameters.items() <= dict(schema.parameters).items()


def test_lists_maps_and_messages_nest() -> None:
    """Their elements are optional, and a map has the name of its entry."""
    lines, by_number, line = field("lines"), field("by_number"), field("line")

    assert (
        lines.type,
        lines.values and lines.values.type,
        lines.values and lines.values.name,
    ) == ("array", "struct", "Line")
    assert (by_number.type, by_number.name, by_number.keys and by_number.keys.type) == ("map", "by_number", "int32")
    assert (line.optional, [one.name for one in line.fields]) == (True, ["name", "weight"])


def test_a_oneof_is_a_struct_of_optional_fields() -> None:
    """First among the fields; its name ends in its index."""
    schema = plan(WIDE).schema
    union = schema.fields[0]

    assert (union.name, union.schema.name, union.schema.optional) == ("choice_0", NAMESPACE + "Union.choice", True)
    assert [one.name for one in union.schema.fields] == ["word", "number", "other"]
    assert all(one.schema.optional for one in union.schema.fields)
    assert schema.field("maybe") is not None


def test_options_change_the_schema() -> None:
    """Those of ProtobufConverter."""
    assert plan(WIDE, enhanced_protobuf_schema_support=True).schema.name == "shop.Order"
    assert field("size", int_for_enums=True).type == "int32"
    assert plan(WIDE, generate_index_for_unions=False).schema.fields[0].name == "choice"
    assert plan(WIDE, flatten_unions=True).schema.fields[0].name == "word"
    assert [field(name, optional_for_nullables=True).optional for name in ("maybe", "i32")] == [True, False]
    assert (
        field("wrapped", wrapper_for_nullables=True).type,
        field("wrapped", wrapper_for_nullables=True).optional,
    ) == ("int64", True)
    assert field("i32", wrapper_for_nullables=True).optional is False
    assert field("wrapped").type == "struct"


def test_a_record_that_is_a_wrapper_is_its_value() -> None:
    """Unless that is switched off."""
    text = 'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message A {google.protobuf.Int32Value a = 1;}'
    name = "google.protobuf.Int32Value"

    assert plan(text, name).schema.type == "int32"
    assert plan(text, name, wrapper_for_raw_primitives=False).schema.type == "struct"


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ("message A { A a = 1; }", "the message A contains itself (A in A)"),
        ("message A { repeated B b = 1; } message B { map<string, A> a = 1; }", "the message A contains itself"),
        ("message A { int32 HasField = 1; }", "has a field HasField"),
    ],
)
def test_what_has_no_schema_is_refused(body: str, about: str) -> None:
    """With a sentence."""
    with pytest.raises(ValueError) as refused:
        plan(f'syntax = "proto3"; {body}')

    assert about in str(refused.value)


def test_messages_that_hold_each_other_many_times_are_refused() -> None:
    """Thirty short messages have a thousand million fields."""
    chain = "".join(f"message M{at} {{ M{at + 1} a = 1; M{at + 1} b = 2; }}" for at in range(30))

    with pytest.raises(ValueError, match="more than 10,000 fields"):
        plan(f'syntax = "proto3"; {chain} message M30 {{ int32 n = 1; }}')


def test_proto2_knows_absent_values() -> None:
    """An absent ``optional`` is null, and a required field never is."""
    members: dict[str, Any] = {member.name: member for member in plan(OLD).members}

    assert [members[name].nullable for name in ("id", "name", "inner")] == [False, True, True]
    without: dict[str, Any] = {member.name: member for member in plan(OLD, optional_for_proto2=False).members}
    assert not without["name"].nullable


def test_a_version_is_the_schemas() -> None:
    """Versions are counted as by a registry."""
    assert plan_of(text_of_registry(WIDE).message(), version=3).schema.version == 3
