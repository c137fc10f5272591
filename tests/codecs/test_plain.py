"""Kafka's converters of one plain value, and raw bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, blocks_of, codec, decoded, encoded

from turnout.errors import RecordError
from turnout.records import Field, Float32, Int16, Int32, Moment, Schema
from turnout.records.schema import TIMESTAMP

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "short": st.integers(-(2**15), 2**15 - 1), "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1), "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False), "boolean": st.booleans(), "string": st.text(), "bytes": st.binary(),
    "raw": st.binary(),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_what_is_written_is_read_again(name: str) -> None:
    """With the optional schema of its type, which a tombstone has, too."""
    of = codec(format=name)

    @given(st.lists(st.none() | VALUES[name], min_size=1))
    def check(values: list[Any]) -> None:
        texts = encoded(of, of.schema(), *values)
        blocks, errors = blocks_of(of, *texts)

        assert values == decoded(of, *texts)
        assert not errors
        assert {of.schema()} == {block.schema for block in blocks}

    check()


@pytest.mark.parametrize(("name", "size"), [("short", 2), ("integer", 4), ("long", 8), ("float", 4), ("double", 8)])
def test_numbers_are_big_endian_and_have_a_size(name: str, size: int) -> None:
    """More or fewer bytes are an error of their record."""
    one = b"\x3f\x80" + b"\0" * (size - 2)

    values = decoded(codec(format=name), b"", one[:-1], one, one + b"\0", None)

    assert [*values[:2], *values[3:]] == [ERROR, ERROR, ERROR, None]
    assert values[2] == {"short": 0x3F80, "integer": 0x3F80 << 16, "long": 0x3F80 << 48, "float": 1.0}.get(name, 2**-7)


def test_a_boolean_is_the_byte_0_or_1() -> None:
    """Nothing else is one."""
    assert decoded(codec(format="boolean"), b"\0", b"\1", b"\2", b"", b"\1\1") == [False, True, ERROR, ERROR, ERROR]


def test_strings_replace_what_is_no_utf_8() -> None:
    """Like Java, with one mark for half of a surrogate pair."""
    texts = ["ü".encode(), b"a\xffb", b"\xed\xa0\x80", b""]

    assert decoded(codec(format="string"), *texts) == ["ü", "a\ufffdb", "\ufffd", ""]


def test_a_string_is_written_of_anything() -> None:
    """The text is Java's: null fields are left out of a struct, but not of a map."""
    of = codec(format="string")
    at = Schema("int64", True, name=TIMESTAMP)
    schema = Schema("struct", fields=(Field("a", Schema("int8", True)), Field("b", Schema("array", values=at))))

    assert encoded(of, schema, {"a": None, "b": [Moment(0), None]}) == [b"Struct{b=[1970-01-01T00:00:00.000Z, null]}"]
    assert encoded(of, None, {"a": 1.0, "b": None}, 1e10, True, 5, None) == [
        b"{a=1.0, b=null}",
        b"1.0E10",
        b"true",
        b"5",
        None,
    ]


def test_a_number_is_written_of_its_own_type_only() -> None:
    """With the right schema, or without one of the right width."""
    assert encoded(codec(format="integer"), None, Int32(5), 5) == [b"\0\0\0\5", ERROR]
    assert encoded(codec(format="short"), None, Int16(5)) == [b"\0\5"]
    assert encoded(codec(format="long"), None, 5, Int32(5), 2**63) == [b"\0" * 7 + b"\5", ERROR, ERROR]
    assert encoded(codec(format="float"), None, Float32(1.5), 1.5) == [b"?\xc0\0\0", ERROR]
    assert encoded(codec(format="integer"), Schema("int64"), 5) == [ERROR]
    with pytest.raises(RecordError):
        encoded(codec(format="boolean"), Schema("int64"), 5)


def test_bytes_are_written_of_bytes_only() -> None:
    """All other values are refused."""
    assert encoded(codec(format="bytes"), None, bytearray(b"x"), "x") == [b"x", ERROR]
    with pytest.raises(RecordError):
        encoded(codec(format="bytes"), Schema("string"), "x")


def test_raw_values_are_left_alone() -> None:
    """Bytes in, the same bytes out; what a transform makes of them is written as text or as JSON."""
    raw = codec(format="raw")

    assert encoded(raw, raw.schema(), *decoded(raw, b"\x00\xff", None)) == [b"\x00\xff", None]
    assert encoded(raw, None, "text", 5, {"a": b"\x00"}, b"\xff") == [b"text", b"5", b'{"a":"AA=="}', b"\xff"]
