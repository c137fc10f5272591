"""Semantics of conditions: one table of cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.conditions import all_of, any_of, cidr, compare, evaluate, exists, kiwi, not_, one_of, regex


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        (kiwi("k", "abc"), "abc", True),
        (kiwi("k", "abc"), "ABC", False),
        (kiwi("k", "abc"), "abcd", False),
        (kiwi("k", "a*c"), "a\n\nc", True),
        (kiwi("k", "a?c"), "a😀c", True),
        (kiwi("k", "a?c"), "ac", False),
        (kiwi("k", "*"), "", True),
        (kiwi("k", ""), "", True),
        (kiwi("k", ""), "x", False),
        (kiwi("k", r"\*\?\\"), r"*?\\"[:3], True),
        (kiwi("k", "STRASSE", ignore_case=True), "strasse", True),
        (kiwi("k", "ΟΔΟΣ", ignore_case=True), "οδος", True),
        (kiwi("k", "hel*", partial=True), "oh, hello!", True),
        (kiwi("k", "oh, hello!", partial=True), "oh, hello!", False),
        (kiwi("k", "*", partial=True), "?!", False),
        (kiwi("k", "", partial=True), "", False),
        (kiwi("k", "été", partial=True), "un été-là", True),
        (kiwi("k", "e\u0301te", partial=True), "e\u0301te 2", True),
        (kiwi("k", "e", partial=True), "e\u0301te", False),
        (compare("k", "<", 10), "9.5", True),
        (compare("k", "<", 10), "nine", False),
        (compare("k", "=", 1), "1.00", True),
        (compare("k", "=", 1), " 1", False),
        (compare("k", ">", 1), "1e999", True),
        (exists("k"), "", True),
        (cidr("k", "10.0.0.0/8"), "10.255.0.1", True),
        (cidr("k", "10.0.0.0/8"), "11.0.0.1", False),
        (cidr("k", "::ffff:0:0/96"), "::ffff:10.0.0.1", True),
        (cidr("k", "10.0.0.0/8"), "::ffff:10.0.0.1", False),
        (cidr("k", "fe80::/10"), "fe80::1%eth0", False),
        (regex("k", "b+c"), "abbcd", True),
        (regex("k", "^b"), "ab", False),
        (regex("k", "(?i)ÄB"), "xäb", True),
        (regex("k", "a.b"), "a\nb", False),
        (regex("k", "(?s)a.b"), "a\nb", True),
        (regex("k", "^.$"), "😀", True),
        (regex("k", "a"), "a\ud800", False),
    ],
)
def test_leaves(condition, value, expected):
    """A leaf of a value; its negation is the inverse; without the key it is false and its negation true."""
    assert expected is evaluate(condition, {"k": value})
    assert expected is not evaluate(not_(condition), {"k": value})
    assert evaluate(condition, {}) is False
    assert evaluate(not_(condition), {}) is True


@pytest.mark.parametrize(("count", "expected"), [(0, False), (1, True), (2, False), (3, False)])
def test_xor_is_exactly_one(count, expected):
    """Xor of three is true for exactly one true child, whatever its place."""
    message = {f"k{n}": "v" for n in range(count)}

    assert expected is evaluate(one_of(*(kiwi(f"k{n}", "v") for n in range(3))), message)
    assert expected is not evaluate(not_(one_of(*(kiwi(f"k{n}", "v") for n in range(3)))), message)


@given(st.lists(conditions, min_size=1, max_size=3), messages)
def test_de_morgan(children, message):
    """Negations mean the same inside and outside of groups."""
    outside = evaluate(not_(all_of(*children)), message)

    assert outside == evaluate(any_of(*map(not_, children)), message)
