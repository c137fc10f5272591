"""JSON with declared fields."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, blocks_of, codec, decoded, encoded

from turnout.codecs import parse_ddl
from turnout.codecs.json_nodes import Misfit, json_text
from turnout.codecs.json_reading import Reader
from turnout.records import Moment

RICH = (
    "tiny TINYINT, small SMALLINT, i INT, big BIGINT, f FLOAT, d DOUBLE, flag BOOLEAN, s STRING, raw BINARY,"
    " price DECIMAL(10,2), day DATE, at TIMESTAMP, list ARRAY<INT>, map MAP<STRING, DOUBLE>,"
    " inner STRUCT<x: INT, when: TIMESTAMP>, any VARIANT"
)


def one(type_: str, *values: str) -> list[Any]:
    """Return the value of a field of this type for each JSON text; the word ``error`` if it is refused."""
    decoded_values = decoded(codec(format="json", schema=f"a {type_}"), *[f'{{"a":{value}}}' for value in values])
    return [value if value == ERROR else value["a"] for value in decoded_values]


def ms(text: str) -> Moment:
    (values,) = one("TIMESTAMP", f'"{text}"')
    return Moment(values)


def test_an_object_becomes_a_struct() -> None:
    """Every declared field is there, in the order of the schema; others are left out, the last of a name counts."""
    typed = codec(format="json", schema="a INT, b STRING, c DOUBLE")

    assert decoded(typed, '{"b":"x","a":1}', "{}", '{"z":[],"a":1,"a":2,"c":1}') == [
        {"a": 1, "b": "x", "c": None}, {"a": None, "b": None, "c": None}, {"a": 2, "b": None, "c": 1.0},
    ]  # fmt: skip
    blocks, _ = blocks_of(typed, '{"b":"x","a":1}', '{"a":2}')
    assert ("object", typed.schema(), ["a", "b", "c"]) == (blocks[0].kind, blocks[0].schema, list(blocks[0].columns))


def test_null_is_a_tombstone_and_has_no_schema() -> None:
    """The JSON null as well as no value."""
    blocks, errors = blocks_of(codec(format="json", schema="a INT"), None, " null\n", '{"a":1}')

    assert {("null", None), ("object", "struct")} == {(b.kind, b.schema and b.schema.type) for b in blocks}
    assert not errors


def test_what_is_no_object_of_these_types_is_an_error() -> None:
    """With the place in the value, what was expected, and what was found."""
    typed = codec(format="json", schema="a INT, b STRUCT<c: ARRAY<BOOLEAN>>, m MAP<STRING, INT>")
    texts = ["[]", "5", "{", "", '{"a":1}x', '{"a":"x"}', '{"b":{"c":[true,1]}}', '{"m":{"k":1.5}}', '{"a":1}']

    _, errors = blocks_of(typed, *texts)

    assert list(range(8)) == sorted(errors)
    assert 'a: expected an integer of 32 bits, found "x"' in str(errors[5])
    assert "b.c[1]: expected true or false, found 1" in str(errors[6])
    assert "m['k']: expected an integer of 32 bits, found 1.5" in str(errors[7])


@pytest.mark.parametrize(("type_", "bits"), [("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64)])
def test_integers_have_a_range_and_no_fraction(type_: str, bits: int) -> None:
    """Beyond it, and with a fraction, an exponent or quotes, they are refused."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    assert [low, high, 0] == one(type_, str(low), str(high), "-0")
    assert one(type_, str(low - 1), str(high + 1), "1.5", "1.0", "1e2", '"1"') == [ERROR] * 6


def test_a_string_takes_anything() -> None:
    """The JSON of what is no string, as it is written."""
    texts = ["1.50", "true", '{"a": [1 , "x"]}', "[ ]", '"1"', "null"]

    assert one("STRING", *texts) == ["1.50", "true", '{"a": [1 , "x"]}', "[ ]", "1", None]


def test_numbers_that_are_none_are_read() -> None:
    """They are read as texts and as many programs write them, but not in the middle of a text."""
    names = ["NaN", "Infinity", "-Infinity"]
    quoted = [f'"{name}"' for name in [*names, "+INF", "-INF", "+Infinity"]]

    for type_ in ("DOUBLE", "FLOAT"):
        values = one(type_, *names, *quoted)
        assert math.isnan(values[0])
        assert math.isnan(values[3])
        assert [math.inf, -math.inf] * 2 + [math.inf] == [*values[1:3], *values[4:6], values[8]]
    assert [ERROR, ERROR, math.inf] == one("DOUBLE", '"nan"', '"1.5"', "1e400")
    assert one("STRING", '"NaN"', '"a \\"NaN"') == ["NaN", 'a "NaN']
    assert one("FLOAT", "0.1", "16777217") == [0.10000000149011612, 16777216.0]


def test_decimals_are_numbers_or_texts_rounded_to_their_scale() -> None:
    """Half up; more digits than declared are refused."""
    read = one("DECIMAL(10,2)", "1", "1.005", "-1.005", "1e2", '"1,000.5"', "99999999.99")

    assert [str(value) for value in read] == ["1.00", "1.01", "-1.01", "100.00", "1000.50", "99999999.99"]
    assert one("DECIMAL(10,2)", "123456789", '"NaN"', '"x"', "true", "1e400", '"1_0"') == [ERROR] * 6
    assert [Decimal(10**38 - 1)] == one("DECIMAL(38,0)", "9" * 38)


def test_timestamps_are_iso_8601_or_seconds() -> None:
    """Missing parts are the minimum; without a zone they are in UTC."""
    whole = ms("2013-01-01T10:00:00Z")
    same = ["2013-01-01T10:00:00", "2013-01-01 10:00", "2013-1-1T10", "2013-01-01T12:00:00+02:00", "2013-01-01T8:0:0-2",
            "2013-01-01T10:00:00.000999Z", "2013-01-01T10:00:00 UTC", " 2013-01-01T10:00:00Z "]  # fmt: skip

    assert whole == 1_357_034_400_000
    assert [whole] * len(same) == [ms(text) for text in same]
    assert [Moment] == [type(value) for value in one("TIMESTAMP", '"2013"')]
    assert [ms(text) for text in ("2013", "2013-01", "2013-01-01")] == [1_356_998_400_000] * 3
    assert one("TIMESTAMP", "1", "-1") == [1_000, -1_000]
    assert [ms("2013-06-01T10:00:00Z")] == [ms("2013-06-01T12:00:00 Europe/Paris")]
    wrong = [
        '"x"',
        '""',
        "1.5",
        "true",
        '"2013-02-30T00:00:00Z"',
        '"2013-01-01T24:00:00"',
        '"300000-01-01"',
        '"10:00:00"',
    ]
    assert [ERROR] * len(wrong) == one("TIMESTAMP", *wrong)


def test_dates_are_what_a_text_begins_with() -> None:
    """The rest of it is left alone; numbers are refused."""
    day = 15706 * 86_400_000

    assert [day] * 4 == one("DATE", '"2013-01-01"', '"2013-1-1T23:59:59-10:00"', '"2013"', '"2013-01"')
    assert one("DATE", "15706", '"2013-02-30"', '"20130101"', '""') == [ERROR] * 4


def test_years_may_have_more_digits_or_a_sign() -> None:
    """They are written so that they can be read again."""
    typed = codec(format="json", schema="at TIMESTAMP, day DATE")
    text = b'{"at":"+12013-01-01T00:00:00.000Z","day":"-0044-03-15"}'

    (value,) = decoded(typed, text)

    assert [text] == encoded(typed, typed.schema(), value)


def test_binary_is_base64() -> None:
    """With its padding."""
    assert one("BINARY", '"AA=="', '"/+8="', '""', '"AA"', "1") == [b"\x00", b"\xff\xef", b"", ERROR, ERROR]


def test_a_column_that_must_not_be_null_refuses_nulls() -> None:
    """Missing ones, too."""
    assert one("INT NOT NULL", "1", "null") == [1, ERROR]
    assert decoded(codec(format="json", schema="a INT NOT NULL"), "{}") == [ERROR]


def test_names_that_msgspec_refuses_are_read_the_slow_way() -> None:
    """A quote in a name is rare, and right."""
    typed = codec(format="json", schema='`a"b` INT')

    assert decoded(typed, '{"a\\"b":1}') == [{'a"b': 1}]
    assert encoded(typed, typed.schema(), *[{'a"b': 1}] * 20) == [b'{"a\\"b":1}'] * 20


def test_every_field_is_written() -> None:
    """Nulls too, as Spark's to_json does with ignoreNullFields=false."""
    typed = codec(format="json", schema=RICH)
    value = {
        "tiny": 1, "small": None, "i": -3, "big": 2**62, "f": 0.10000000149011612, "d": float("nan"), "flag": True,
        "s": "ü", "raw": b"\x00\xff", "price": Decimal("12.50"), "day": Moment(86_400_000),
        "at": Moment(1_357_034_400_000), "list": [1, None], "map": {"k": float("inf")},
        "inner": {"x": None, "when": Moment(0)}, "any": {"z": Moment(5)},
    }  # fmt: skip

    (text,) = encoded(typed, typed.schema(), value)

    expected = (
        '{"tiny":1,"small":null,"i":-3,"big":4611686018427387904,"f":0.1,"d":"NaN","flag":true,"s":"ü","raw":"AP8=",'
        '"price":12.50,"day":"1970-01-02","at":"2013-01-01T10:00:00.000Z","list":[1,null],"map":{"k":"Infinity"},'
        '"inner":{"x":null,"when":"1970-01-01T00:00:00.000Z"},"any":{"z":"1970-01-01T00:00:00.005Z"}}'
    )
    assert expected == text.decode()


def bits(n: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1)


MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "tiny": bits(8), "small": bits(16), "i": bits(32), "big": bits(64), "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False), "flag": st.booleans(), "s": st.text(), "raw": st.binary(),
    "price": st.decimals(-99999999, 99999999, places=2),
    "day": MILLIS.map(lambda at: Moment(at // 86_400_000 * 86_400_000)),
    "at": MILLIS.map(Moment), "list": st.lists(st.none() | bits(32)),
    "map": st.dictionaries(st.text(), st.none() | st.floats(allow_nan=False)),
    "inner": st.builds(lambda x, when: {"x": x, "when": when}, st.none() | bits(32), st.none() | MILLIS.map(Moment)),
    "any": st.none() | st.dictionaries(st.text(), bits(64)),
}  # fmt: skip
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in FIELDS.items()}).map(
    lambda row: {name: row[name] for name in FIELDS}
)


@given(st.lists(ROWS, min_size=1, max_size=12))
def test_what_is_written_is_read_again(rows: list[dict[str, Any]]) -> None:
    """For all types, alone and in columns."""
    typed = codec(format="json", schema=RICH)

    assert rows == decoded(typed, *encoded(typed, typed.schema(), *rows))


MESSY = st.sampled_from([
    "1", "-0", "1.0", "1.5", "1e2", "127", "128", "2147483648", "1e400", '"1"', '""', '"x"', "true", "null", "[]", "{}",
    "[1]", '{"x":1}', '{"x":1,"when":"2013-01-01T10:00:00Z"}', '{"when":5}', '"NaN"', '"2013-01-01"',
    '"2013-01-01T10:00:00.5+02:00"',
    '"AA=="', '"99999999.99"', "12345678901", '"2013-1-1"', "123456789012345678901234567890", '{"k":1.5,"l":null}',
])  # fmt: skip


@pytest.mark.heavy
@given(st.dictionaries(st.sampled_from(list(FIELDS)), MESSY, max_size=4))
def test_the_slow_reading_agrees_with_the_strict_one(texts: dict[str, str]) -> None:
    """If both accept a value, the results are equal."""
    text = f"{{{','.join(f'{json.dumps(name)}: {value} ' for name, value in texts.items())}}}"
    declared = parse_ddl(RICH)
    reader = Reader.declared(declared)
    try:
        slow = reader._node.slow(json_text(text.encode()))
    except Misfit:
        slow = ERROR

    assert repr(decoded(codec(format="json", schema=RICH), text)) == repr([slow])


def test_base64_in_a_column_is_what_python_writes() -> None:
    """Many values at once."""
    typed = codec(format="json", schema="raw BINARY")
    values = [bytes([n, 255 - n]) for n in range(200)]

    texts = encoded(typed, typed.schema(), *[{"raw": value} for value in values])

    assert [b64encode(value).decode() for value in values] == [json.loads(text)["raw"] for text in texts]
