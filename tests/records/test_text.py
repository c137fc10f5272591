"""Text of values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from turnout.records.schema import Float32, Moment
from turnout.records.text import json_of, readable, text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (1.0, "1.0"),
        (1e21, "1.0E21"),
        (Float32(0.10000000149011612), "0.1"),
        (Decimal("1.50"), "1.50"),
        (Moment(0), "1970-01-01T00:00:00Z"),
        (b"abc", "abc"),
        (b"\xff", None),
        ({"a": [1, None]}, '{"a":[1,null]}'),
    ],
)
def test_values_have_the_text_that_java_prints(value: object, text: str | None) -> None:
    """Times in ISO 8601, what is nested as JSON; bytes that are not UTF-8 have none."""
    found = text_of(value)

    assert (found[:19] + "Z" if isinstance(value, Moment) and found else found) == text


def test_json_has_no_numbers_that_json_cannot_hold() -> None:
    """NaN is a text, bytes are base64."""
    assert json_of({"a": float("nan"), "b": b"\0\1", "c": Decimal(3)}) == {"a": "NaN", "b": "AAE=", "c": 3}


def test_bytes_for_people_replace_what_is_not_utf_8() -> None:
    """None is returned as None."""
    assert (readable(b"a\xff"), readable(None)) == ("a\ufffd", None)
