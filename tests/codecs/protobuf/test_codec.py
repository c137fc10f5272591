"""Messages read to values and written: against the ``protobuf`` library, record by record."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, blocks_of, decoded, encoded
from tests.codecs.protobuf.schemas import OLD, WIDE, class_of, codec_of_text
from tests.examples import examples

from turnout.codecs import EncodeErrors, Format, codec_of, notation_of
from turnout.codecs.protobuf.codec import Protobuf
from turnout.errors import ConfigError, RecordError
from turnout.records import Block, Moment, Schema, Struct, group

ORDER = codec_of_text(WIDE)
Order = class_of(WIDE)
THING = codec_of_text(OLD)
Thing = class_of(OLD)


def read(codec: Protobuf, message: Any) -> Any:
    (value,) = decoded(codec, message.SerializeToString())
    return value


def written(codec: Protobuf, value: Any) -> Any:
    (content,) = encoded(codec, codec.schema(), value)
    return content


def reason(codec: Protobuf, value: Any) -> str:
    """Why a value cannot be written."""
    (block,) = group(np.arange(1), codec.schema(), [value], checked=False)
    with pytest.raises((EncodeErrors, RecordError)) as refused:
        codec.encode(block)
    failure = refused.value
    return str(failure.errors[0]) if isinstance(failure, EncodeErrors) else str(failure)


def test_values_are_those_of_connect() -> None:
    """Unsigned numbers of 64 bits are as in Java, a oneof has one value, and messages with a meaning are times."""
    order = Order(
        i32=-1, u32=2**32 - 1, u64=2**64 - 1, single=0.1, size=2, packed=[-1, 1], texts=["a", ""], word="w", tiny=300,
        counts={"a": 1}, by_number={7: Order.Line(name="x")}, line=Order.Line(weight=0.5), sizes=[0, 9],
    )  # fmt: skip
    order.at.seconds, order.at.nanos = -1, 999_999_999
    order.day.year, order.day.month, order.day.day = 2026, 11, 23
    order.time.hours, order.time.nanos = 23, 1_000_000
    order.price.value, order.price.scale = b"\xff\x85", 2
    order.any.type_url = "example.com/x"

    value = read(ORDER, order)

    assert {
        "i32": -1, "u32": 2**32 - 1, "u64": -1, "single": np.float32(0.1).item(), "size": "LARGE", "packed": [-1, 1],
        "texts": ["a", ""], "choice_0": {"word": "w", "number": None, "other": None}, "tiny": 44, "counts": {"a": 1},
        "by_number": {7: {"name": "x", "weight": None}}, "line": {"name": "", "weight": 0.5}, "maybe": None,
        "sizes": ["SMALL", "UNKNOWN_ENUM_VALUE_Size_9"], "at": Moment(-1), "day": Moment(1_795_392_000_000),
        "time": Moment(82_800_001), "price": Decimal("-1.23"), "wrapped": None,
        "any": {"type_url": "example.com/x", "value": b""}, "text": "", "flag": False, "raw": b"", "lines": [],
    }.items() <= value.items()  # fmt: skip
    assert [Moment] * 3 == [type(value[name]) for name in ("at", "day", "time")]
    assert ORDER.schema() is not None
    assert list(value) == [one.name for one in ORDER.schema().fields]


def test_bytes_of_unchanged_values_stay_as_they_are() -> None:
    """This includes fields that the schema does not know, and an order that no serializer writes."""
    texts = [b"\x10\x02\x08\x01", Order(i32=1).SerializeToString() + b"\xf8\x7f\x05", None]
    (block, null), errors = blocks_of(ORDER, *texts)

    assert (texts[:2], {}) == (ORDER.encode(block), errors)
    assert texts[1:2] == ORDER.encode(block.take(np.array([1])))
    assert ORDER.encode(null) == [None]
    changed = block.with_columns(block.schema, block.columns)
    assert ORDER.encode(changed) == [b"\x08\x01\x10\x02", b"\x08\x01"]
    assert ORDER.encode(block) != codec_of_text(WIDE).encode(block)


def test_what_is_no_message_is_an_error() -> None:
    """The others are read."""
    good = Order(text="x").SerializeToString()
    date = Order()
    date.day.month = 13

    values = decoded(ORDER, good, b"\x08", b"\x72\x01\xff", None, date.SerializeToString(), b"", good)

    assert [type({}), str, str, type(None), str, dict, dict] == [type(value) for value in values]
    assert [values[at] for at in (1, 2, 4)] == [ERROR] * 3
    _, errors = blocks_of(ORDER, b"\x08", date.SerializeToString())
    assert "is no message shop.Order" in str(errors[0])
    assert "expected a Date" in str(errors[1])


def test_proto2_has_required_fields_defaults_and_groups() -> None:
    """An absent ``optional`` is null; a required field must be there, read and written."""
    full = Thing(id=1, name="x", inner=Thing.Inner(open=True), loose=[1, 2], kind=2)

    assert read(THING, full) == {"id": 1, "name": "x", "inner": {"open": True}, "loose": [1, 2], "kind": "B"}
    assert read(THING, Thing(id=0)) == {"id": 0, "name": None, "inner": None, "loose": [], "kind": None}
    assert read(codec_of_text(OLD, optional_for_proto2=False), Thing(id=0))["name"] == "none"
    assert full.SerializeToString() == written(THING, read(THING, full))
    _, errors = blocks_of(THING, b"", Thing(id=1).SerializeToString() + b"\x1b\x1c")
    assert [str(error) for error in errors.values()] == [
        "the value has no id, which its message requires",
        "the value has no inner.open, which its message requires",
    ]
    assert "id: expected a value" in reason(THING, {"id": None})


@pytest.mark.parametrize(
    ("value", "about"),
    [
        ({"i32": 2**31}, "i32: expected an integer from -2147483648 to 2147483647, found 2147483648"),
        ({"i32": True}, "i32: expected an integer"),
        ({"u32": -1}, "u32: expected an integer from 0"),
        ({"text": 5}, "text: expected a text, found 5"),
        ({"text": "\ud800"}, "text: 'utf-8' codec can't encode"),
        ({"raw": "x"}, "raw: expected bytes"),
        ({"flag": 1}, "flag: expected true or false, found 1"),
        ({"twice": "1"}, "twice: expected a number, found '1'"),
        ({"size": "HUGE"}, "size: expected a value of the enum shop.Size, found 'HUGE'"),
        ({"size": "UNKNOWN_ENUM_VALUE_Size_²"}, "expected a value of the enum"),
        ({"texts": "ab"}, "texts: expected a list, found 'ab'"),
        ({"texts": ["a", None]}, "texts: expected values in the list, found null"),
        ({"counts": [1]}, "counts: expected a map, found [1]"),
        ({"line": 5}, "line: expected the fields of a message shop.Order.Line, found 5"),
        ({"line": {"nme": "x"}}, "line: the message shop.Order.Line has no field nme; it has name, weight"),
        ({"lines": [{"name": 1}]}, "lines: name: expected a text, found 1"),
        ({"choice_0": {}}, "choice_0: expected a value in one of the fields word, number, other, found none"),
        ({"choice_0": {"wrd": 1}}, "choice_0: expected one of the fields word, number, other"),
        ({"at": "2026"}, "at: expected a time, found '2026'"),
        ({"at": Moment(2**60)}, "at: expected a time of the years 1 to 9999"),
        ({"day": Moment(1)}, "day: a Date has no time of day"),
        ({"time": Moment(86_400_000)}, "time: a Time is within a day"),
        ({"price": 1.5}, "price: expected a decimal, found 1.5"),
        ({"price": Decimal("1E+200000")}, "price: expected a decimal of at most 100,000 digits"),
        ({"delay": 1}, "the message shop.Order has no field delay; it has any, at"),
        (7, "expected the fields of a message shop.Order, found plain values"),
    ],
)
def test_what_does_not_fit_the_message_is_named(value: Any, about: str) -> None:
    """With its field, the value and what was expected."""
    assert about in reason(ORDER, value)


def test_one_bad_value_does_not_stop_the_others() -> None:
    """It alone has an error."""
    assert encoded(ORDER, ORDER.schema(), {"i32": 1}, {"i32": "1"}, {"i32": 0}) == [b"\x08\x01", ERROR, b""]


def test_values_of_transforms_are_written() -> None:
    """Schemaless ones, structs within them, renamed schemas, and defaults in the place of nulls."""
    schema = ORDER.schema()
    line = schema.field("line")
    assert line is not None
    with_default = Schema("struct", fields=(type(schema.fields[0])("i32", Schema("int32", optional=True, default=7)),))

    assert encoded(ORDER, None, {"i32": 1}) == [b"\x08\x01"]
    assert encoded(ORDER, None, {"line": Struct(line, {"name": "x"})}) == [b"\xba\x01\x03\x0a\x01x"]
    assert encoded(ORDER, with_default, {"i32": None}, {"i32": 1}) == [b"\x08\x07", b"\x08\x01"]
    assert encoded(ORDER, None, {"i32": [1]}) == [ERROR]


def test_a_wrapper_message_is_a_value_alone() -> None:
    """Of whatever type it wraps."""
    text = 'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message A {google.protobuf.UInt64Value a = 1;}'
    codec = codec_of_text(text, "google.protobuf.UInt64Value")

    assert decoded(codec, b"\x08\x05", b"", b"\x08" + b"\xff" * 9 + b"\x01") == [5, 0, -1]
    assert encoded(codec, codec.schema(), 5, 0, "x") == [b"\x08\x05", b"", ERROR]
    assert read(codec_of_text(text, wrapper_for_nullables=True), class_of(text)(a={"value": 5})) == {"a": 5}
    assert written(codec_of_text(text, wrapper_for_nullables=True), {"a": 5}) == b"\x0a\x02\x08\x05"


def test_a_route_names_a_file(tmp_path: Any) -> None:
    """It may also name a message of the file; an unusable file is a mistake of the route."""
    (tmp_path / "shop.proto").write_text(OLD + "message Last {optional int64 at = 1;}")
    config = {"format": "protobuf", "schema": str(tmp_path / "shop.proto"), "message": "old.Last"}

    codec = codec_of(Format.from_config(config))
    notation = notation_of(Format.from_config(config))

    assert decoded(codec, b"\x08\x05") == [{"at": 5}]
    assert (notation.encode({"at": 5}), notation.decode(b"\x08\x05")) == (b"\x08\x05", {"at": 5})
    for wrong, about in (
        ({"schema": None}, "expected either registry, or schema"),
        ({"schema": "/nowhere/x.proto"}, "No such file"),
        ({"message": "old.Lst"}, "no message 'old.Lst'"),
    ):
        with pytest.raises(ConfigError, match=about):
            codec_of(Format.from_config(config | wrong))


def test_people_write_times_as_texts() -> None:
    """In tests of routes, and explanations show them so."""
    from turnout.codecs.codec import SchemaNotation

    notation = SchemaNotation(ORDER)
    content = notation.encode({"at": "2026-11-23T10:00:00Z", "price": 1.5, "raw": "AAE=", "choice_0": {"number": 3}})

    shown: Any = notation.decode(content)
    assert (shown["at"], shown["raw"], shown["choice_0"]["number"]) == ("2026-11-23T10:00:00.000Z", "AAE=", 3)
    assert Decimal("1.50") == Decimal(str(shown["price"]))
    with pytest.raises(ValueError, match="i32: expected an integer of 32 bits"):
        notation.encode({"i32": "x"})
    assert (notation.encode(None), notation.encode("x")) == (None, b"x")


LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from([0, 2, -1, 7]),
}
LINES = st.builds(
    lambda name, weight: Order.Line(name=name, weight=weight), st.text(max_size=3), st.none() | st.floats()
)


def _values(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        keys = st.text(max_size=3) if field.name == "counts" else st.integers(-(2**31), 2**31 - 1)
        return st.dictionaries(keys, st.integers(-(2**63), 2**63 - 1) if field.name == "counts" else LINES, max_size=3)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        one: st.SearchStrategy[Any] = st.text(max_size=200) if field.name != "raw" else st.binary(max_size=200)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        one = LINES
    else:
        # Narrower than its type on the wire, as Connect has it.
        one = st.integers(-128, 127) if field.name == "tiny" else LIMITS[field.cpp_type]
    return st.lists(one, max_size=3) if field.is_repeated else one


OWN = [
    field
    for field in Order.DESCRIPTOR.fields
    if field.message_type is None or field.message_type.file == Order.DESCRIPTOR.file
]
ORDERS = st.fixed_dictionaries({}, optional={field.name: _values(field) for field in OWN}).map(
    lambda given: Order(**given)
)


@settings(max_examples=examples(150), deadline=None)
@given(orders=st.lists(ORDERS, max_size=4))
def test_what_the_library_has_written_comes_back(orders: list[Any]) -> None:
    """Each message means the same after it was read and written, to the library."""
    (*blocks,), errors = blocks_of(ORDER, *[order.SerializeToString() for order in orders])

    again = [text for block in blocks for text in ORDER.encode(block.with_columns(block.schema, block.columns))]
    assert errors == {}
    # By bytes in one order, as NaN is not equal to itself.
    assert [order.SerializeToString(deterministic=True) for order in orders] == [
        Order.FromString(text).SerializeToString(deterministic=True) for text in again
    ]


@settings(max_examples=examples(300), deadline=None)
@given(order=ORDERS, at=st.integers(0, 10_000), noise=st.binary(max_size=4), cut=st.booleans())
def test_damaged_bytes_are_read_as_the_library_reads_them(order: Any, at: int, noise: bytes, cut: bool) -> None:
    """Truncated varints, lengths beyond the end, wrong types: an error, or what the library finds in them."""
    content = order.SerializeToString()
    at %= len(content) + 1
    damaged = content[:at] if cut else content[:at] + noise + content[at + len(noise) :]

    blocks, errors = blocks_of(ORDER, damaged)

    try:
        expected = Order.FromString(damaged)
    except DecodeError:
        assert list(errors) == [0]
        return
    if errors:
        # A time or a decimal that is none.
        assert "expected a" in str(errors[0])
        return
    (block,) = blocks
    known = Order.FromString(damaged)
    known.DiscardUnknownFields()
    (text,) = ORDER.encode(block.with_columns(block.schema, block.columns))
    if not any(expected.HasField(name) for name in ("at", "day", "time", "price", "wrapped", "any")):
        assert [field.name for field, _ in known.ListFields()] == [
            field.name for field, _ in Order.FromString(text).ListFields()
        ]


@given(content=st.binary(max_size=60))
def test_any_bytes_have_a_value_or_an_error(content: bytes) -> None:
    """Nothing else is raised, by either syntax."""
    blocks_of(ORDER, content)
    blocks_of(THING, content)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 11,
        b"\x72\xff\xff\xff\xff\x0f",
        b"\x72\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0b" * 100_000,
        b"\xa2\x01\x80\x80\x80\x80\x08",
        b"\x92\x01\xff\xff\xff\xff\x07",
    ],
    ids=["endless varint", "4 GiB", "2**63 bytes", "groups in groups", "a list of 2 GiB", "packed 2 GiB"],
)
def test_hostile_bytes_are_an_error(content: bytes) -> None:
    """Lengths are not believed, and depth is bounded."""
    assert decoded(ORDER, content) == [ERROR]


def test_an_empty_message_has_no_columns() -> None:
    """It is written as no bytes."""
    codec = codec_of_text('syntax = "proto3"; message Empty {}')

    assert decoded(codec, b"", b"\x08\x01") == [{}, {}]
    assert codec.encode(Block(np.arange(1), codec.schema(), columns={})) == [b""]


PRESENCE = """
syntax = "proto2";
message Seen {
  optional int32 n = 1;
  optional int32 five = 2 [default = 5];
  optional string text = 3;
  optional bool flag = 4;
  optional double real = 5;
  optional bytes raw = 6;
}
"""


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "n": st.sampled_from([0, 1, -1]),
                "five": st.sampled_from([0, 5, 6]),
                "text": st.sampled_from(["", "x", "y" * 127, "z" * 128]),
                "flag": st.booleans(),
                "real": st.sampled_from([0.0, -0.0, 1.5]),
                "raw": st.sampled_from([b"", b"x"]),
            },
        ),
        min_size=1,
        max_size=90,
    )
)
@settings(deadline=None, max_examples=50)
def test_absent_values_among_defaults(values: list[dict[str, Any]]) -> None:
    """In one batch an absent value is null, and one that is set to its default is that; both are written so again."""
    codec, seen = codec_of_text(PRESENCE), class_of(PRESENCE)
    texts = [seen(**value).SerializeToString() for value in values]

    (block,), errors = codec.decode(np.arange(len(texts)), texts)

    absent = dict.fromkeys(("n", "five", "text", "flag", "real", "raw"))
    assert not errors
    assert [repr(value) for value in block.whole()] == [repr({**absent, **value}) for value in values]
    changed = block.with_columns(block.schema, block.columns)
    assert [seen.FromString(text or b"") for text in codec.encode(changed)] == [seen(**value) for value in values]
