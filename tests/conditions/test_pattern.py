"""Patterns are matched in one walk through the value, and mean what the regular expression of their pieces means."""

from __future__ import annotations

import re
import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from turnout.conditions import evaluate, kiwi
from turnout.conditions.pattern import ANY, ONE, escape, fold, lexemes, parse_pattern, pattern_matcher
from turnout.errors import ConditionError

_patterns = st.lists(st.sampled_from(["*", "?", "a", "b", "ab", "A", "Σ", "\n", "\\*", "😀", "."]), max_size=8).map(
    "".join
)
_values = st.text(alphabet="abAΣςσ*\n😀.", max_size=10)


def regex(pattern, *, ignore_case):
    """The pattern as a regular expression: what it means."""
    written = {ANY: ".*", ONE: "."}
    parts = (
        written[piece] if not isinstance(piece, str) else re.escape(fold(piece) if ignore_case else piece)
        for piece in parse_pattern(pattern)
    )
    return re.compile("".join(parts), re.DOTALL)


@settings(max_examples=examples(500))
@given(_patterns, _values, st.booleans())
def test_means_its_regular_expression(pattern, value, ignore_case):
    """A matcher agrees with the regular expression on every pattern and value."""
    value = fold(value) if ignore_case else value
    expected = regex(pattern, ignore_case=ignore_case).fullmatch(value) is not None

    assert expected is pattern_matcher(pattern, ignore_case=ignore_case)(value)


def test_many_stars_end_at_once():
    """A pattern of twenty stars over 200,000 letters that nearly match takes time linear in the text."""
    begun = time.thread_time()

    assert not pattern_matcher("*a" * 20 + "*b")("a" * 200_000)
    assert not pattern_matcher("*a?" * 20 + "*b")("a" * 200_000)
    assert pattern_matcher("*a" * 20 + "*")("a" * 200_000)
    assert time.thread_time() - begun < 2


@given(st.text("ab", min_size=30, max_size=90), st.sampled_from(["*a?b*", "a*b??a?b*", "*?aab?b*b?"]))
def test_a_part_that_nearly_fits_often(value, pattern):
    """If a part's text has many partial matches, the result equals that of a regular expression."""
    assert (regex(pattern, ignore_case=False).fullmatch(value) is not None) is pattern_matcher(pattern)(value)
    dense = "a" * len(value) + value
    assert (regex(pattern, ignore_case=False).fullmatch(dense) is not None) is pattern_matcher(pattern)(dense)


def test_a_part_is_not_used_twice():
    """The end and the beginning of a value may not overlap."""
    assert not pattern_matcher("ab*ba")("aba")
    assert pattern_matcher("ab*ba")("abba")
    assert not pattern_matcher("a*?")("a")


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


def test_words_of_all_of_unicode():
    """Letters, marks and decimal digits are parts of words, wherever in Unicode they are; nothing else is."""
    kinds = ("L", "M", "Nd")
    characters = list(map(chr, range(128, sys.maxunicode + 1)))
    expected = [character for character in characters if unicodedata.category(character).startswith(kinds)]

    # One text is a tenth of the time of a million.
    assert lexemes(" ".join(characters)) == expected
