"""Patterns compared with patterns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions.pattern import (
    included_by_rows,
    includes,
    meet,
    met_by_rows,
    parse_pattern,
    pattern_matcher,
    tokens_of,
)

_globs = st.lists(st.sampled_from(["a", "b", "*", "?"]), max_size=6).map("".join)


@given(_globs, _globs, st.lists(st.text(alphabet="ab", max_size=6), max_size=30))
def test_patterns_beside_patterns(one, other, texts) -> None:
    """An included pattern matches nothing that the other does not, and patterns that do not meet share no text."""
    first, second = tokens_of(parse_pattern(one)), tokens_of(parse_pattern(other))
    matches, others = pattern_matcher(one), pattern_matcher(other)
    for text in texts:
        assert not includes(second, first) or others(text) or not matches(text)
        assert meet(first, second) or not (matches(text) and others(text))
    # What is seen at once is what the steps find.
    assert includes(second, first) == included_by_rows(second, first)
    assert meet(first, second) == met_by_rows(first, second)
