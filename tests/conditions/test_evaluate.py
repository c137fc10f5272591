"""What conditions mean: one table, read as sentences."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, leaves, messages
from turnout.conditions import all_of, any_of, cidr, compare, evaluate, exists, explain, kiwi, not_, one_of, parse
from turnout.conditions.check import check_of, holds
from turnout.conditions.pattern import escape, lexemes
from turnout.errors import ConditionError


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


@given(leaves, messages)
def test_checks_are_leaves(leaf, message):
    """The data that the indexes verify with says what the interpreter says."""
    assert evaluate(leaf, message) == holds(check_of(leaf), message)


@given(st.text())
def test_escape(text):
    """An escaped text matches itself and nothing else."""
    assert evaluate(kiwi("k", escape(text)), {"k": text})
    assert not evaluate(kiwi("k", escape(text)), {"k": text + "x"})


def test_lexemes():
    """Letters, marks, decimal digits and _ make words; everything else parts them."""
    assert lexemes("a_1-b.c½d") == ["a_1", "b", "c", "d"]
    assert lexemes("naïve e\u0301a 東京 ١٢ Ⅷ") == ["naïve", "e\u0301a", "東京", "١٢"]


@pytest.mark.parametrize(
    ("pattern", "position"), [("a*b", 1), ("*", None), ("a?*", None), ("**", 0), (r"\**", None), ("a\\", 1)]
)
def test_tree_dialect(pattern, position):
    """Kiwi tree takes ``*`` only at the end, and says where it found another and what takes it."""
    if position is None:
        assert kiwi("k", pattern, tree=True).pattern == pattern
        return
    with pytest.raises(ConditionError) as caught:
        kiwi("k", pattern, tree=True)

    assert position == caught.value.position
    assert re.search("kiwi bird|backslash", str(caught.value))


def test_explain():
    """Down to the leaf: what was found, how many hold, and which leaves decided it."""
    condition = parse("subject:orders* AND NOT location:Helsinki AND (a:1 OR b:2)")
    explanation = explain(condition, {"subject": "orders 17", "location": "Helsinki", "a": "1"})

    assert not explanation.holds
    assert [str(part.condition.key) for part in explanation.decisive] == ["location"]
    assert str(explanation).splitlines() == [
        "- AND: 2 of 3 hold",
        "  + subject:orders*: 'subject' is 'orders 17'",
        "  - NOT location:Helsinki: 'location' is 'Helsinki'",
        "  + OR: 1 of 2 hold",
        "    + a:1: 'a' is '1'",
        "    - b:2: 'b' is missing",
    ]


@given(conditions, messages)
def test_explanations_are_true(condition, message):
    """An explanation's outcome is the interpreter's, for the whole and for each leaf that decided it."""
    explanation = explain(condition, message)

    assert evaluate(condition, message) == explanation.holds
    assert all(evaluate(part.condition, message) == part.holds for part in explanation.decisive)
