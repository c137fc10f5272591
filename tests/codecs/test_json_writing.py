"""Writing of JSON without a schema."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, decoded, encoded
from tests.codecs.test_json_reading import ANY, JSON

from turnout.records import Block, Field, Float32, Int8, Moment, Schema, Struct
from turnout.records.schema import TIMESTAMP
from turnout.records.types import Columns


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


@given(st.lists(st.none() | st.integers(-(2**70), 2**70).map(Moment) | st.integers(0, 5).map(Moment), max_size=60))
def test_a_column_of_moments_is_written_as_one_moment_after_the_other(moments: list[Moment | None]) -> None:
    """With moments of any year, nulls, and the same moment several times."""
    rows = np.arange(len(moments))
    columns: Columns = {"at": moments, "n": rows.tolist()}

    assert JSON.encode(Block(rows, None, columns=columns)) == [
        encoded(JSON, None, {"at": moment, "n": row})[0] for row, moment in enumerate(moments)
    ]


def test_names_of_any_kind_are_written() -> None:
    """This includes names with quotes and control characters, and names that are not texts."""
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
