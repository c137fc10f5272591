"""Tests of turnout.loops.texts: numbers, hashes and patterns are those of the reference."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isnan

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.loops.conftest import padded
from turnout.conditions.anchor import address_text, parsed_number
from turnout.conditions.pattern import pattern_matcher
from turnout.loops import texts

_MOST_STEPS = 1 << 20

pytestmark = pytest.mark.usefixtures("compiled_loops")


def _both(loop, *arguments):
    """Return the result of a loop, compiled and interpreted."""
    compiled, interpreted = loop(*arguments), loop.interpreted(*arguments)
    assert compiled == interpreted or (compiled != compiled and interpreted != interpreted)
    return compiled


@given(st.one_of(st.text("0123456789+-.eE x", max_size=24), st.floats().map(repr), st.integers().map(str)))
@example("9007199254740993")
@example("0.1e-2")
@example("1e22")
@example("-0.0")
@example("1e999")
@example("٣")
def test_numbers_are_those_of_the_reference(text: str) -> None:
    """Decimals are exact; longer ones are left to Python, which infinity says."""
    raw = text.encode()
    number = _both(texts.number_in, padded(raw), 0, len(raw))
    expected = parsed_number(text)

    if expected is None:
        assert isnan(number)
    else:
        assert number in (expected, inf)


_groups = st.lists(st.text("0123456789abcdefF", max_size=5), max_size=9).map(":".join)
_addresses = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map(lambda address: address.exploded),
    st.text("0123456789.:af", max_size=12),
    st.builds("{}{}{}".format, _groups, st.sampled_from(["::", ":", ""]), st.one_of(_groups, st.ip_addresses(v=4))),
)


@given(_addresses)
@example("::")
@example("1::")
@example(":::")
@example("1:2:3:4:5:6:7::")
@example("::1:2:3:4:5:6:7:8")
@example("::ffff:1.2.3.4")
@example("1:2:3:4:5:6:7:1.2.3.4")
@example("01.2.3.4")
@example("1.2.3.256")
@example("1.2.3.")
def test_addresses_are_those_of_the_reference(text: str) -> None:
    """Bytes of an address of IPv4 or IPv6, in each of their forms; other texts are none."""
    raw, output = text.encode(), np.zeros(16, np.uint8)
    size = _both(texts.address_in, padded(raw), 0, len(raw), output)

    expected = address_text(text)
    assert (expected and expected.partition(":")[2]) == (output[:size].tobytes().hex() or None)


def test_plain_numbers_are_decided() -> None:
    """Whole numbers, decimals and powers of ten need no other way."""
    for text in ("0", "7", "-12.50", ".5", "3.", "1e3", "25E-2", "9007199254740992"):
        assert texts.number_in(padded(text.encode()), 0, len(text)) == float(text)


@given(
    st.text("ab*?\\ü", max_size=8).filter(lambda text: not text.replace("\\\\", "").endswith("\\")),
    st.text("abü*", max_size=10),
)
@example("*a?b*", "aüb")
@example("*?", "ü")
@example("\\**", "*x")
@example("", "")
def test_patterns_are_those_of_the_reference(pattern: str, text: str) -> None:
    """A question mark is a character, however many bytes that has."""
    raw, value = pattern.encode(), text.encode()
    found = _both(texts.glob_matches, padded(raw), 0, len(raw), padded(value), 0, len(value), _MOST_STEPS)

    assert found == pattern_matcher(pattern)(text)


def test_a_pattern_that_compares_too_often_is_left() -> None:
    """Its time is bounded."""
    pattern, value = b"*aaaaaaab*", b"a" * 1_000

    assert _both(texts.glob_matches, padded(pattern), 0, len(pattern), padded(value), 0, len(value), 100) == -1


@given(st.binary(max_size=40), st.integers(0, 1 << 20))
def test_hashes_have_31_bits(data: bytes, seed: int) -> None:
    """Interpreted and compiled ones are the same, and what is behind the text is not read."""
    value = _both(texts.hash_of_text, padded(data), 0, len(data), seed)

    assert 0 <= value < 1 << 31
    assert value == texts.hash_of_text(padded(data + b"x"), 0, len(data), seed)


@given(st.lists(st.lists(st.binary(max_size=9), min_size=3, max_size=3), min_size=1))
def test_pieces_are_joined_value_by_value(columns: list[list[bytes]]) -> None:
    """Interpreted and compiled; some of them are the same bytes of the data."""
    pieces = [piece for column in columns for piece in column]
    sizes = np.array(list(map(len, pieces)), np.int64)
    begins = np.cumsum(sizes) - sizes
    data = np.frombuffer(b"".join(pieces), np.uint8)
    for weave in (texts.weave.interpreted, texts.weave.dispatcher()):
        out, offsets = np.zeros(sizes.sum(), np.uint8), np.zeros(4, np.int64)

        weave(data, begins, begins + sizes, out, offsets)

        rows = list(map(b"".join, zip(*columns, strict=True)))
        assert [out[begin:end].tobytes() for begin, end in pairwise(offsets.tolist())] == rows
