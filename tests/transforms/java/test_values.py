"""Java's numbers and maps."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from turnout.transforms.java.values import in_hash_order, low_bits, parsed_decimal, parsed_integer, read_integer, single


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12x", (12, 2)),
        ("-12", (-12, 3)),
        ("1E3 ", (1000, 3)),
        ("15E-1", (1, 5)),
        ("1e3", (1, 1)),
        ("-", None),
        ("+1", None),
        ("4294967297", (1, 10)),
        ("9" * 30, (2**31 - 1, 30)),
        ("-" + "9" * 30, (-(2**31), 31)),
        ("NaN", (0, 3)),
        ("\u0661\u0662", (12, 2)),
        ("", None),
    ],
)
def test_a_number_ends_where_its_digits_do(text: str, number: tuple[int, int] | None) -> None:
    """In 32 bits as Java's intValue, with exponents and the digits of any script."""
    assert number == read_integer(text, 0, len(text))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.50", Decimal("1.50")),
        ("+.5", Decimal(".5")),
        ("1.", Decimal(1)),
        ("1e3", Decimal("1E+3")),
        ("10e2147483647", Decimal("1.0E+2147483648")),
        ("1e2147483648", None),
        ("1.5e-2147483647", None),
        ("1e99999999999", None),
        ("1_0", None),
        (" 1", None),
        ("NaN", None),
        ("Infinity", None),
        (".", None),
    ],
)
def test_decimals_are_bigdecimals(text: str, number: Decimal | None) -> None:
    """Neither blanks nor words, and the scale is kept."""
    assert str(number) == str(parsed_decimal(text))


def test_integers_are_strict() -> None:
    """A sign and digits, as many as there are."""
    assert [parsed_integer(text) for text in ("+5", "-05", "5.0", "", "1 ")] == [5, -5, None, None, None]
    assert parsed_integer("1" + "0" * 4500) == 10**4500


@pytest.mark.parametrize(
    ("number", "bits", "low"),
    [("300", 8, 44), ("129.9", 8, -127), ("-1.9", 64, -1), ("1e999999999", 64, 0), ("1e-999999999", 8, 0)],
)
def test_low_bits_need_not_be_written_out(number: str, bits: int, low: int) -> None:
    """The fraction goes first."""
    assert low == low_bits(Decimal(number), bits)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16777217", 16777216.0),
        ("16777217.0000000000000000001", 16777218.0),
        ("7.006492321624086e-46", 1.401298464324817e-45),
        ("7.006492321624085e-46", 0.0),
        ("3.4028235677973366e38", 3.4028234663852886e38),
        ("3.4028235677973367e38", math.inf),
        ("-1e400", -math.inf),
    ],
)
def test_single_precision_is_rounded_once(text: str, number: float) -> None:
    """Going through double precision would end on the wrong side."""
    assert number == single(text)


def test_keys_come_by_their_buckets() -> None:
    """Checked against a HashMap of Java 17, one that has grown too."""
    assert in_hash_order(["id", "b", "a"]) == ["a", "b", "id"]
    assert in_hash_order(["id", "b", "id"]) == ["b", "id"]
    assert in_hash_order(["ünï", "\U0001f600", "Aa", "BB"]) == ["Aa", "BB", "\U0001f600", "ünï"]
    grown = in_hash_order([f"key{n}" for n in range(13)])
    assert ",".join(name.removeprefix("key") for name in grown) == "1,2,0,5,6,3,4,9,7,8,11,10,12"
