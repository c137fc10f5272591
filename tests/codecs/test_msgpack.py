"""The format ``msgpack``, with msgspec and ormsgpack as what values are compared with."""

from __future__ import annotations

import struct
import sys
from decimal import Decimal
from typing import Any

import msgspec.msgpack as peer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, blocks_of, codec, decoded, encoded

from turnout.codecs import Format, codec_of, notation_of
from turnout.codecs.msgpack import MAX_DEPTH, Extension, PreciseMoment
from turnout.errors import ConfigError
from turnout.records import BigInt, Field, Float32, Int8, Int16, Moment, Schema, Struct
from turnout.records.schema import DATE, DECIMAL, TIMESTAMP

_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
_KEYS = st.text() | st.binary() | st.integers(-(2**63), 2**63 - 1)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner), max_leaves=20)


@pytest.fixture(scope="module")
def msgpack() -> Any:
    return codec(format="msgpack")


@given(st.lists(_VALUES, min_size=1))
def test_what_others_write_is_read_and_written_again(values: list[Any]) -> None:
    """Each value by itself, with any keys; the bytes are those of the shortest form, which msgspec writes."""
    of = codec(format="msgpack")
    texts = [peer.encode(value) for value in values]

    assert decoded(of, *texts) == values
    assert encoded(of, None, *values) == [
        None if value is None else text for value, text in zip(values, texts, strict=True)
    ]


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(text: bytes) -> None:
    """Inputs that msgspec refuses are refused, except timestamps and strings, which it checks differently."""
    of = codec(format="msgpack")
    (value,) = decoded(of, text)
    try:
        expected = peer.decode(text)
    except (ValueError, TypeError):
        return

    assert value is expected or value != ERROR or isinstance(expected, str)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xc1", b"\x01\x02", b"\x92\x01", b"\xa1\xff", b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\x01", b"\x81\x81\x01\x01\x02", b"\xc7\x05\x05abc", b"\x01" + b"\xd8\x7f" + bytes(16),
    ],
)  # fmt: skip
def test_what_is_none_is_an_error_of_its_record(msgpack: Any, text: bytes) -> None:
    """Truncated, with bytes left over, announcing gigabytes, or with a map as a key."""
    assert decoded(msgpack, b"\x01", text, b"\x02") == [1, ERROR, 2]


def test_depth_is_bounded(msgpack: Any) -> None:
    """For arrays and maps; a long flat value with as many of them is none that is deep."""
    fits, deep = b"\x91" * MAX_DEPTH + b"\xc0", b"\x91" * (MAX_DEPTH + 1) + b"\xc0"
    maps = b"\x81\xa0" * (MAX_DEPTH + 1) + b"\xc0"
    flat = b"\xdc\x10\x00" + b"\x91\x01" * 4096

    assert [value == ERROR for value in decoded(msgpack, fits, deep, maps, b"\x91" * 100_000, flat)] == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_timestamps_are_date_objects(msgpack: Any) -> None:
    """In the three forms; what is finer than a millisecond stays in it, and it is written as it was read."""
    short, long = b"\xd6\xff" + (7).to_bytes(4, "big"), b"\xd7\xff" + (123_456_789 << 34 | 7).to_bytes(8, "big")
    before = b"\xc7\x0c\xff" + struct.pack(">Iq", 999_000_000, -1)
    values = decoded(msgpack, short, long, before)

    assert values == [7000, 7123, -1]
    assert [type(value) for value in values] == [Moment, PreciseMoment, Moment]
    assert values[1].nanoseconds == 456_789
    assert encoded(msgpack, None, *values) == [short, long, before]


def test_other_extensions_stay_what_they_are(msgpack: Any) -> None:
    """Their bytes, with their type; so do timestamps of no moment that there is."""
    texts = [
        b"\xd5\x05ab", b"\xd4\x80x", b"\xd7\xff" + b"\xff" * 8, b"\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**62),
        b"\xc7\x03\xffabc",
    ]  # fmt: skip
    values = decoded(msgpack, *texts)

    assert [(type(value), value.kind) for value in values] == [
        (Extension, 5), (Extension, -128), (Extension, -1), (Extension, -1), (Extension, -1),
    ]  # fmt: skip
    assert encoded(msgpack, None, *values) == texts
    assert encoded(codec(format="json"), None, {"at": values[0]}) == [b'{"at":"YWI="}']


def test_texts_and_bytes_are_two_things(msgpack: Any) -> None:
    """Of values, and of names in a map."""
    text = peer.encode({"a": "x", b"b": b"x"})

    assert decoded(msgpack, text) == [{"a": "x", b"b": b"x"}]
    assert encoded(msgpack, None, {"a": "x", b"b": b"x"}) == [text]


def test_integers_are_of_64_bits_with_or_without_a_sign(msgpack: Any) -> None:
    """One beyond int64 is a big integer; one beyond both cannot be written, and says so."""
    large = peer.encode([2**64 - 1, 1])
    ((first, second),) = decoded(msgpack, large)

    assert (type(first), type(second)) == (BigInt, int)
    assert encoded(msgpack, None, [first, second], [2**64], {"n": -(2**63) - 1}) == [large, ERROR, ERROR]


def test_typed_values_are_written_as_what_they_hold(msgpack: Any) -> None:
    """A struct with date objects and a decimal, and the narrow numbers of schemaless data."""
    schema = Schema(
        "struct",
        fields=(
            Field("at", Schema("int64", name=TIMESTAMP)),
            Field("day", Schema("int32", name=DATE)),
            Field("sum", Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),))),
        ),
    )
    value = {"at": Moment(1000), "day": Moment(86_400_000), "sum": Decimal("1.50")}
    (text,) = encoded(msgpack, schema, value)
    narrow = {"a": Int8(1), "b": [Int16(2), Float32(1.5)], "c": Struct(Schema("struct"), {"d": None})}

    assert decoded(msgpack, text) == [{"at": 1000, "day": 86_400_000, "sum": "1.50"}]
    assert [peer.decode(text) for text in encoded(msgpack, None, narrow)] == [{"a": 1, "b": [2, 1.5], "c": {"d": None}}]


def test_what_has_no_form_is_an_error(msgpack: Any) -> None:
    """Half of a pair of surrogates, and a moment beyond 64 bits of seconds; others pass."""
    assert encoded(msgpack, None, "\ud800", Moment(2**80), "x") == [ERROR, ERROR, b"\xa1x"]


def test_nil_is_a_tombstone(msgpack: Any) -> None:
    """It is treated like the JSON null; a tombstone remains one."""
    blocks, _ = blocks_of(msgpack, b"\xc0", None)

    assert {block.kind for block in blocks} == {"null"}
    assert encoded(msgpack, None, None) == [None]


def test_objects_of_one_shape_are_one_block(msgpack: Any) -> None:
    """Transforms can then work by column."""
    blocks, _ = blocks_of(msgpack, *(peer.encode({"n": n, "city": "Oulu"}) for n in range(300)))

    assert [(list(block.columns), len(block)) for block in blocks] == [(["n", "city"], 300)]


def test_tests_write_values_as_json() -> None:
    """They do so as for formats of numbers."""
    notation = notation_of(Format("msgpack"))

    assert (notation.encode({"n": 1}), notation.decode(b"\x81\xa1n\x01")) == (b"\x81\xa1n\x01", {"n": 1})


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mistake of the route."""
    monkeypatch.setitem(sys.modules, "ormsgpack", None)

    with pytest.raises(ConfigError, match=r'install "turnout\[msgpack\]"'):
        codec_of(Format("msgpack"))
