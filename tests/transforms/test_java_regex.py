from __future__ import annotations

import pytest

from turnout.transforms.java_regex import JavaRegexError, check_java_regex, groups_of


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a|b", "(?i)x", "(?<name>a)\\k<name>", "[a-z&&[^aeiou]]", "[]a]", "\\Q[\\E", "a{2,3}+", "\\p{L}+", "a++",
        "(?>x)", "(?<=a)b", "[[a]b]", "x{2}", "\\x{1F600}", "}", "]", "(?x) a # comment", "[a-]", "\\h\\R\\b",
    ],
)  # fmt: skip
def test_what_java_compiles_passes(pattern: str) -> None:
    """Java's own syntax is understood, also where Python's differs."""
    check_java_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["[", "(", ")", "*", "+a", "a**", "{2}", "a{2,1}", "\\", "(?z)", "\\y", "\\p", "(?<1>a)", "[z-a]", "\\k<n>"],
)
def test_what_java_refuses_is_refused(pattern: str) -> None:
    """The error is found without a JVM."""
    with pytest.raises(JavaRegexError):
        check_java_regex(pattern)


def test_groups_are_counted_and_named() -> None:
    """A replacement may name groups by number or by name."""
    assert groups_of("(a)(?:b)(?<y>c)((?i)d)") == (3, {"y": 2})
