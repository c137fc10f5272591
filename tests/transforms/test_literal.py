from __future__ import annotations

import pytest

from turnout.transforms.literal import Literal, parse_literal
from turnout.transforms.schema import DATE, Schema


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("", "string", ""),
        ("true", "boolean", True),
        ("True", "string", "True"),
        ("1", "int8", 1),
        ("128", "int16", 128),
        ("1e3", "int16", 1000),
        ("1.5", "float32", 1.5),
        ("1e300", "float64", 1e300),
        ("10:20", "int8", 10),
        ("1,000", "int8", 1),
        ("two words", "string", "two words"),
        ('{"a": 1}', "map", {"a": 1}),
        ("[1, 300]", "array", [1, 300]),
        ("[a]", "string", "[a]"),
    ],
)
def test_the_text_tells_the_type(text: str, type_: str, value: object) -> None:
    """The narrowest type that holds a number, and words for everything else."""
    found = parse_literal(text)

    assert found.schema is not None
    assert (type_, value) == (found.schema.type, found.value)


def test_null_has_no_schema() -> None:
    """The word null is no value at all."""
    assert Literal(None, None) == parse_literal("null")


def test_dates_are_days_in_milliseconds() -> None:
    """A date's text makes Connect's Date."""
    assert Literal(Schema("int32", name=DATE, version=1), 1_577_836_800_000) == parse_literal("2020-01-01")
