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
    required = required_texts(pattern)
    for value in filter(has_match, values):
        seen = fold(value) if required.folded else value
        assert all(text in seen for text in required.texts)
        assert not required.alternatives or any(text in seen for text in required.alternatives)


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
    assert required_texts(pattern).texts == texts


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("(ab)c", ("abc",)),
        ("a|bc", ("a", "bc")),
        ("a|bc?", ("a", "b")),
        ("(ab|cd+)e.x", ("ab", "cd")),
        ("x(b|c)*y[12]z", ("y1z", "y2z")),
        ("[abc]?d\\b", ()),
        ("(?i)X(ab|[CD])", ("xc", "xd", "xab")),
        (r"\s-[FT]", tuple(f"{space}-{letter}" for space in "\t\n\f\r " for letter in "FT")),
        (r"-(W|R)\s?(\s|'|\")([0-9a-fA-F]{2}\s?){2,20}", tuple(f"-{a}{b}" for a in "WR" for b in "\t\n\f\r '\"")),
        ("[^a]b|c", ("b", "c")),
        ("(a|.)b(c|d|)", ()),
        ("[a-z]x|[[:alpha:]]y", ("x", "y")),
        ("a|[a-z]", ()),
        ("abc(d|e)?", ()),
        ("ab|(ab|cd)+x", ("ab", "cd")),
    ],
)
def test_one_of_what_is_required(pattern: str, texts: tuple[str, ...]) -> None:
    """Alternatives and small classes, where no text that is always there is as long."""
    assert required_texts(pattern).alternatives == texts
