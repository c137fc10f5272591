"""JSON without a schema."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, blocks_of, codec, decoded, encoded, rewritten

from turnout.records import BigInt, Field, Float32, Int8, Moment, Schema, Struct
from turnout.records.schema import TIMESTAMP

JSON = codec(format="json")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
ANY = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4))


def test_json_of_any_shape_goes_through() -> None:
    """Schemaless JSON keeps its numbers, its nulls and its names; the JSON null is a tombstone."""
    values = [b'{"a": [1, null, {"\xc3\xbc": 1.5}], "b": null}', b'"text"', b"5", b"null", None, b"{}", b"[]"]

    expected = [{"a": [1, None, {"ü": 1.5}], "b": None}, "text", 5, None, None, {}, []]
    assert expected == rewritten(JSON, *values)


def test_values_are_grouped_by_their_names() -> None:
    """Objects with the same names in the same order are one block; all others are plain or null."""
    blocks, _ = blocks_of(JSON, '{"a":1,"b":2}', "1", '{"b":2,"a":1}', None, '{"a":3,"b":4}', '"x"')

    assert [(block.kind, block.rows.tolist()) for block in blocks] == [
        ("object", [0, 4]),
        ("plain", [1, 5]),
        ("object", [2]),
        ("null", [3]),
    ]
    assert {name: list(column) for name, column in blocks[0].columns.items()} == {"a": [1, 3], "b": [2, 4]}


def test_what_is_no_json_is_an_error_of_its_row() -> None:
    """No end, no UTF-8, a name without quotes, too deep, nothing at all: the others are read."""
    texts: list[bytes | str] = ["{", b'"\xff"', "{a:1}", "[" * 100_000, "", "NaN", "1 2", '{"a":1}']

    assert decoded(JSON, *texts) == [ERROR] * 7 + [{"a": 1}]


def test_integers_beyond_64_bits_have_no_width() -> None:
    """They are a BigInt wherever they stand, and are written with all their digits."""
    (value,) = decoded(JSON, '{"a":9223372036854775808,"b":[{"c":-9223372036854775809}],"d":9223372036854775807}')

    assert [BigInt, BigInt, int] == [type(value["a"]), type(value["b"][0]["c"]), type(value["d"])]
    assert json.loads(encoded(JSON, None, value)[0]) == {"a": 2**63, "b": [{"c": -(2**63) - 1}], "d": 2**63 - 1}


def test_a_number_beyond_a_double_is_an_infinity() -> None:
    """As Java reads it."""
    assert [{"a": float("inf")}, [float("-inf")]] == decoded(JSON, '{"a":1e400}', "[-1e400]")


def test_everything_that_connect_can_hold_is_written() -> None:
    """Times in ISO 8601, bytes in base64, decimals with their scale, numbers of any width, NaN as text."""
    inner = Schema("struct", fields=(Field("at", Schema("int64", name=TIMESTAMP)),))
    odd = {
        "at": Moment(1_356_998_400_123), "price": Decimal("1.50"), "raw": b"\x00\xff", "single": Float32(0.1),
        "tiny": Int8(3), "nan": float("nan"), "struct": Struct(inner, {"at": Moment(0)}), "map": {1: 2, None: True},
    }  # fmt: skip
    expected = (
        b'{"at":"2013-01-01T00:00:00.123Z","price":1.50,"raw":"AP8=","single":0.1,"tiny":3,"nan":"NaN",'
        b'"struct":{"at":"1970-01-01T00:00:00.000Z"},"map":{"1":2,"null":true}}'
    )

    assert [expected] * 20 == encoded(JSON, None, *[odd] * 20)
    assert [b'{"x":[' + expected + b"]}"] == encoded(JSON, None, {"x": [odd]})
    assert encoded(JSON, None, float("-inf"), Moment(0)) == [b'"-Infinity"', b'"1970-01-01T00:00:00.000Z"']


def test_names_of_any_kind_are_written() -> None:
    """Also those with quotes and control characters, and those that are no texts."""
    value = {'q"\\\n': 1, "class": 2, "": 3, "ü": 4, 5: 6}

    texts = encoded(JSON, None, *[value] * 20)

    assert [json.loads(text) for text in texts] == [{'q"\\\n': 1, "class": 2, "": 3, "ü": 4, "5": 6}] * 20


def test_a_value_that_cannot_be_written_does_not_hold_up_the_others() -> None:
    """Half a surrogate pair has no UTF-8, a Python object no JSON."""
    good = {"a": "x"}

    assert encoded(JSON, None, *[good, {"a": "\ud800"}, {"a": object()}] * 5) == [b'{"a":"x"}', ERROR, ERROR] * 5


@given(st.lists(ANY, min_size=1, max_size=20))
def test_what_is_written_is_read_again(values: list[Any]) -> None:
    """For any JSON."""
    assert values == decoded(JSON, *encoded(JSON, None, *values))


@given(st.lists(ANY, min_size=1, max_size=20))
def test_what_is_read_is_what_python_reads(values: list[Any]) -> None:
    """And it is written so that Python reads the same."""
    texts = [json.dumps(value) for value in values]

    assert values == decoded(JSON, *texts) == rewritten(JSON, *texts)
