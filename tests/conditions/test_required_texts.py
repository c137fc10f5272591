"""Texts that every match of an expression contains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions.pattern import fold
from turnout.conditions.regex import regex_searcher, required_texts
from turnout.errors import ConditionError

_parts = st.sampled_from(
    [
        *("a", "b", "S", "k", "é", ".", "^", "$", "|", "(", "(?:", "(?i:", "(?i)", ")", "[ab]", "[^a]", "[]b]"),
        *("*", "+", "?", "{2}", "{0}", "{1,}", "{,2}", "{", "[[:alpha:]]", "\\Qa\\E", "\\Q", "-"),
        *("\\.", "\\d", "\\b", "\\x41", "\\x{e9}", "\\pL"),
    ]
)


_values = st.text("abSskKAé.1-ſ{,2}", max_size=8)


@given(st.lists(_parts, min_size=1, max_size=8).map("".join), st.lists(_values, min_size=1, max_size=20))
def test_a_match_contains_what_is_required(pattern: str, values: list[str]) -> None:
    """Of every expression that RE2 takes."""
    try:
        has_match = regex_searcher(pattern)
    except ConditionError:
        return
    texts, folded = required_texts(pattern)
    for value in filter(has_match, values):
        assert all(text in (fold(value) if folded else value) for text in texts)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("abc", ("abc",)),
        (r"a\.b(cd(e|f)){2}g", ("a.b", "cd", "g")),
        ("ab?c", ("a", "c")),
        ("ab+c", ("ab", "c")),
        ("(?i)AB1", ("ab1",)),
        ("(?i)base", ("ba", "e")),
        ("(ab|cd)e", ("e",)),
        ("a|b", ()),
        ("(?i:a)b", ()),
        ("(" * 200 + "a" + ")" * 200, ()),
    ],
)
def test_what_is_required(pattern: str, texts: tuple[str, ...]) -> None:
    """Runs of characters that no quantifier and no alternative makes optional."""
    assert required_texts(pattern)[0] == texts
