"""Java's numbers, texts and maps."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Final

from turnout.transforms.java.calendar import wrapped

_DIGITS = re.compile(r"(-?)(\d+)")
_EXPONENT = re.compile(r"E(-?\d+)")
_MAX, _MIN = (1 << 31) - 1, -(1 << 31)
_LONG_BOUND = 1 << 63


def read_integer(text: str, at: int, end: int) -> tuple[int, int] | None:
    """Return the 32-bit number at the offset *at*, and its end offset, at most *end*; None if none begins there.

    Digits may be those of any script, and an exponent with a large E counts: ``1E3`` is 1000.
    """
    match = _DIGITS.match(text, at, end)
    if match is None:
        return _named(text, at, end)
    sign, digits = match.groups()
    stop = match.end()
    if not digits.isascii():
        first_outside = next((index for index, char in enumerate(digits) if char > "\uffff"), None)
        if first_outside == 0:
            return None
        if first_outside is not None:
            stop -= len(digits) - first_outside
            digits = digits[:first_outside]
    if len(digits) < 10 and not text.startswith("E", stop, end):
        return int(sign + digits), stop
    power = _EXPONENT.match(text, stop, end)
    exponent = 0
    if power is not None and len(size := power.group(1).lstrip("-0")) < 19:
        # Without leading zeros, possibly thousands.
        sign_of_power = "-" if power.group(1).startswith("-") else ""
        exponent = wrapped(int(sign_of_power + (size or "0")), 32)
        stop = power.end()
    return _as_int(sign == "-", digits, exponent), stop


def _named(text: str, at: int, end: int) -> tuple[int, int] | None:
    """Texts of NaN and the infinities."""
    for word, value in (("NaN", 0), ("\u221e", _MAX), ("-\u221e", _MIN)):
        if text.startswith(word, at, end):
            return value, at + len(word)
    return None


def _as_int(negative: bool, digits: str, exponent: int) -> int:
    """``Number.intValue``: the low bits of a number that fits into 64, else the nearest bound."""
    digits = digits.lstrip("0123456789"[:1] if digits.isascii() else "".join(z for z in set(digits) if int(z) == 0))
    if not digits:
        return 0
    size = len(digits) + exponent
    if size > 19:
        return _MIN if negative else _MAX
    if size <= -1:
        return 0
    number = int(Decimal(digits[:60]).scaleb(exponent + max(0, len(digits) - 60)))
    number = -number if negative else number
    if -_LONG_BOUND <= number < _LONG_BOUND and exponent >= 0:
        return wrapped(number, 32)
    return max(_MIN, min(_MAX, number))


# --- numbers that are a whole text ------------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?\d+")
_BIG_DECIMAL = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE]([+-]?\d++))?")
_EXPONENT_BOUND = 1 << 31
"""Exponents and scales are below it."""


_MOST_DIGITS = 10_000
"""Digits of an integer without bounds: making one takes the square of their number."""


def parsed_integer(text: str, digits: int = _MOST_DIGITS) -> int | None:
    """Return the whole number that a text is (``new BigInteger(text)``), None if it is none, or has more *digits*.

    Zeros at its beginning do not count.
    """
    if not _INTEGER.fullmatch(text) or (not text.isascii() and max(text) > "\uffff"):
        return None
    number = Decimal(text)
    return int(number) if number.adjusted() < digits else None


def parsed_decimal(text: str) -> Decimal | None:
    """Parse a decimal number with its scale, as Java's ``new BigDecimal(text)``; None for other texts."""
    match = _BIG_DECIMAL.fullmatch(text)
    if match is None or (not text.isascii() and max(text) > "\uffff"):
        return None
    power = (match.group(1) or "0").lstrip("+-0") or "0"
    if len(power) > 10 or int(power) >= _EXPONENT_BOUND:
        return None
    number = Decimal(text)
    return number if scale_of(number) < _EXPONENT_BOUND else None


def scale_of(number: Decimal) -> int:
    """Return the number of digits after the point; negative for unwritten trailing zeros."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "NaN and infinities have no scale"
    return -exponent


def low_bits(number: Decimal, bits: int) -> int:
    """Return the number without its fraction, cut to its low bits (``BigDecimal.longValue`` and its like)."""
    if scale_of(number) <= -bits:
        # Ten to that power has as many zero bits at its end; 1e999999999 need not be written out to know that.
        return 0
    if number.adjusted() < _MOST_DIGITS:
        return wrapped(int(number), bits)
    # Of a longer one only the low bits are made: all of it would take the square of its length.
    context = Context(prec=number.adjusted() + 2, rounding=ROUND_DOWN, Emax=MAX_EMAX, Emin=MIN_EMIN)
    return wrapped(int(context.remainder(number.to_integral_value(context=context), Decimal(1 << bits))), bits)


def single(number: int | float | str | Decimal | Fraction) -> float:
    """Round a number or the number in a text to single precision, once; infinite if it is too large."""
    real = double(number)
    if math.isinf(real) or real != real:
        return real
    try:
        rounded = float(struct.unpack("<f", struct.pack("<f", real))[0])
    except OverflowError:
        rounded = math.copysign(math.inf, real)
    if rounded == real or isinstance(number, float):
        return rounded
    # Rounding twice is wrong only if the first result is halfway between two of the coarser numbers.
    bits = struct.unpack("<I", struct.pack("<f", rounded))[0]
    neighbours = (bits - 1, bits + 1) if bits & 0x7FFFFFFF else (bits + 1,)
    for neighbour in map(_of_bits, neighbours):
        if (_finite(rounded) + _finite(neighbour)) / 2 == real:
            # Decimals are compared exactly, and have any number of digits.
            exact = number if isinstance(number, Fraction) else Decimal(number)
            if exact != real:
                return max(rounded, neighbour) if exact > real else min(rounded, neighbour)
    return rounded


def double(number: int | float | str | Decimal | Fraction) -> float:
    """Round a number or the number in a text to double precision; infinite if it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if not isinstance(number, str) and number > 0 else -math.inf


def _of_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def _finite(number: float) -> float:
    """Return the number; for an infinity the first one beyond single precision."""
    return math.copysign(2.0**128, number) if math.isinf(number) else number


BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that ``String.trim`` removes: up to U+0020, and none of Unicode's other spaces."""

_SPACES: Final = " \t\n\x0b\f\r"
r"""The characters that ``\s`` matches in Java."""


def trim(text: str) -> str:
    r"""Return the text as ``String.trim`` does.

    >>> trim(" a\x00"), trim("\u00a0a\u2003")
    ('a', '\xa0a\u2003')
    """
    return text.strip(BLANKS)


def split_list(text: str) -> list[str]:
    """Return the entries of a ``LIST`` option; empty entries are kept.

    >>> split_list(" a , b"), split_list("a,,b"), split_list(" ")
    (['a', 'b'], ['a', '', 'b'], [])
    """
    trimmed = trim(text)
    return [entry.strip(_SPACES) for entry in trimmed.split(",")] if trimmed else []


def is_word(text: str, word: str) -> bool:
    """Return whether the text is an ASCII word of lower case letters, as ``String.equalsIgnoreCase`` compares."""
    return text.casefold() == word


def in_hash_order(keys: Iterable[str]) -> list[str]:
    """Return the distinct keys in the iteration order of a HashMap into which they were put one by one."""
    distinct = list(dict.fromkeys(keys))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    return sorted(distinct, key=lambda key: _spread(key) & buckets - 1)


def hash_code(text: str) -> int:
    """Return the ``hashCode`` of a string, without its sign."""
    data = text.encode("utf-16-be", "surrogatepass")
    return reduce(lambda code, unit: (31 * code + unit) & 0xFFFFFFFF, struct.unpack(f">{len(data) // 2}H", data), 0)


def _spread(key: str) -> int:
    code = hash_code(key)
    return code ^ code >> 16
