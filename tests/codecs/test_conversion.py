"""Plain JSON as values of a schema: exactly, or refused with the field, what was found and what was expected."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs.conversion import UNIONS, Fitting, alike, problem_of
from turnout.records import Field, Schema
from turnout.records.block import rows_of
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP

DAY = 86_400_000
MICROS = (("turnout.avro.logicalType", "timestamp-micros"),)
PRICE = Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"), ("connect.decimal.precision", "5")))
UNION = Schema(
    "struct",
    name=UNIONS[0],
    fields=(Field("int", Schema("int32", True)), Field("string", Schema("string", True))),
)


def struct(**fields: Schema) -> Schema:
    return Schema("struct", fields=tuple(Field(name, schema) for name, schema in fields.items()))


def fitted(schema: Schema, text: str, *, drops_unknown: bool = False) -> Any:
    """The value of a text, or why it has none."""
    return value_of(Fitting(schema, drops_unknown=drops_unknown), text)


def value_of(fitting: Fitting, text: str) -> Any:
    blocks, errors = fitting.read(rows_of(1), [text.encode()])
    if errors:
        return str(errors[0]).partition("; ")[0]
    (block,) = (block for block in blocks if len(block))
    return block.whole()[0]


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (Schema("int32"), "7.0", 7),
        (Schema("int32"), "2147483648", "expected an integer (int32), found 2147483648"),
        (Schema("int64"), "9223372036854775807", 2**63 - 1),
        (Schema("int64"), "9223372036854775808", "expected an integer (int64), found 9223372036854775808"),
        (Schema("int64"), "1e999999999", "expected an integer (int64), found 1e999999999"),
        (Schema("int64"), '"7"', 'expected an integer (int64), found "7"'),
        (Schema("int64"), "true", "expected an integer (int64), found true"),
        (Schema("float64"), "7", 7.0),
        (Schema("float64"), '"Infinity"', float("inf")),
        (Schema("string"), "7", "expected a text, found 7"),
        (Schema("boolean"), "1", "expected true or false, found 1"),
        (Schema("bytes"), '"/wA="', b"\xff\x00"),
        (Schema("bytes"), '"?"', 'expected base64, found "?"'),
        (PRICE, "12.5", Decimal("12.50")),
        (PRICE, '"12.50"', Decimal("12.50")),
        (PRICE, "-0.0", Decimal("0.00")),
        (PRICE, "1e2", Decimal("100.00")),
        (PRICE, "1000.1", "expected a decimal of at most 2 digits after the point and 5 in all, found 1000.1"),
        (PRICE, "1e1000000", "expected a decimal of at most 2 digits after the point and 5 in all, found 1e1000000"),
        (PRICE, '"NaN"', 'expected a decimal of at most 2 digits after the point and 5 in all, found "NaN"'),
        (Schema("int32", name=DATE, version=1), '"1970-01-02"', DAY),
        (Schema("int32", name=DATE, version=1), "1", DAY),
        (Schema("int32", name=DATE, version=1), '"1970-01-02T01:00:00Z"', None),
        (Schema("int32", name=TIME, version=1), '"01:00:00.5"', 3_600_500),
        (Schema("int32", name=TIME, version=1), '"24:00:00"', None),
        (Schema("int64", name=TIMESTAMP, version=1), '"1970-01-01T01:00:00.123000+01:00"', 123),
        (Schema("int64", name=TIMESTAMP, version=1), "123", 123),
        (Schema("int64", name=TIMESTAMP, version=1), '"1970-01-01T00:00:00.1234Z"', None),
        (Schema("int64", name=TIMESTAMP, version=1), '"1970-13-01T00:00:00Z"', None),
        (Schema("int64", parameters=MICROS), '"1970-01-01T00:00:00.000123Z"', 123),
        (Schema("int64", parameters=MICROS), "123", 123),
        (UNION, "7", {"int": 7, "string": None}),
        (UNION, '"x"', {"int": None, "string": "x"}),
        (UNION, '{"int": null, "string": "x"}', {"int": None, "string": "x"}),
        (UNION, "[]", "expected one of int, string, found []"),
        (Schema("array", values=Schema("int32")), "[1, 2.5]", "[1]: expected an integer (int32), found 2.5"),
        (Schema("map", keys=Schema("string"), values=Schema("int32")), '{"a": 1}', {"a": 1}),
    ],
)  # fmt: skip
def test_values(schema: Schema, text: str, expected: Any) -> None:
    """None stands for any refusal that names the text."""
    found = fitted(struct(f=schema), f'{{"f": {text}}}')

    if expected is None:
        assert isinstance(found, str)
        assert found.startswith("f: expected a")
        assert found.endswith(f"found {text}")
    elif isinstance(expected, str):
        assert found == ("f" if expected.startswith("[") else "f: ") + expected
    else:
        assert found == {"f": expected}
        assert type(found["f"]) is type(expected) or isinstance(found["f"], int)


def test_names() -> None:
    """A field that the schema has not is refused or dropped; one that is missing has its default, or is null."""
    inner = struct(a=Schema("int32", default=7), b=Schema("string", True), c=Schema("string"))
    schema = struct(inner=inner, many=Schema("array", True, values=inner))

    assert fitted(schema, '{"inner": {"c": "x"}}') == {"inner": {"a": 7, "b": None, "c": "x"}, "many": None}
    assert fitted(schema, '{"inner": {"a": 1}}') == (
        "inner.c: expected a value, which the schema that is written requires, found nothing"
    )
    unknown = '{"inner": {"c": "x"}, "many": [{"c": "x", "d": 1}]}'
    assert fitted(schema, unknown) == "many[0].d: the schema that is written has no such field"
    assert fitted(schema, unknown, drops_unknown=True)["many"] == [{"a": 7, "b": None, "c": "x"}]
    assert fitted(schema, '{"inner": null}') == "inner: expected an object, found null"
    assert fitted(schema, "[]") == "expected an object, found array"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab1-:.TZ", max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abfgh"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


ANY = Fitting(struct(f=PRICE, g=Schema("int64", True, name=TIMESTAMP, version=1), h=UNION.with_(optional=True)))


@given(JSON_VALUES)
def test_any_json_is_a_value_or_refused(value: Any) -> None:
    """Whatever a text has, there is a value of the schema or a reason, and no other error."""
    for text in (json.dumps(value), json.dumps({"f": value}), json.dumps({"f": 1, "g": value, "h": value})):
        found = value_of(ANY, text)
        assert isinstance(found, str) or set(found) == {"f", "g", "h"}


def test_schemas_that_are_alike() -> None:
    """Attributes that values do not have make no difference; types, scales and units do."""
    assert alike(struct(f=Schema("int64", doc="x")), struct(f=Schema("int64", True), g=Schema("string", True)))
    assert not alike(struct(f=Schema("int64")), struct(f=Schema("int64"), g=Schema("string")))
    assert not alike(struct(f=Schema("int64")), struct(g=Schema("int64", True)))
    assert not alike(struct(f=PRICE), struct(f=PRICE.with_(parameters=(("scale", "3"),))))
    assert not alike(Schema("int64", parameters=MICROS), Schema("int64"))
    assert not alike(UNION, UNION.with_(name=None))


def test_problems_that_values_do_not_show() -> None:
    """A text of base64 fits a string, and most decimals fit a double: the schemas are compared."""
    assert problem_of(struct(f=Schema("bytes")), struct(f=Schema("string"))) == (
        "f: bytes do not fit a string; the schema that is written needs bytes"
    )
    decimals = Schema("array", values=PRICE)
    assert "f[]: a decimal does not fit float64 exactly" in str(
        problem_of(struct(f=decimals), struct(f=Schema("array", values=Schema("float64"))))
    )
    assert problem_of(struct(f=Schema("int32")), struct(f=Schema("int64"), g=PRICE)) is None
