"""Reading of JSON without a schema."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, codec, decoded, encoded, rewritten

from turnout.records import BigInt

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
    """The result is the same as in Java."""
    assert [{"a": float("inf")}, [float("-inf")]] == decoded(JSON, '{"a":1e400}', "[-1e400]")


@given(st.lists(ANY, min_size=1, max_size=20))
def test_what_is_read_is_what_python_reads(values: list[Any]) -> None:
    """It is written so that Python reads the same value."""
    texts = [json.dumps(value) for value in values]

    assert values == decoded(JSON, *texts) == rewritten(JSON, *texts)
