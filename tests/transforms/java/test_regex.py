from __future__ import annotations

import time
from unittest.mock import patch

import pytest

from turnout.errors import RecordError
from turnout.transforms.java import regex as java_regex
from turnout.transforms.java.regex import JavaRegex, check_java_regex
from turnout.transforms.java.regex_characters import JavaRegexError


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a|b", "(?i)x", "(?<name>a)\\k<name>", "[a-z&&[^aeiou]]", "[]a]", "\\Q[\\E", "a{2,3}+", "\\p{L}+", "a++",
        "(?>x)", "(?<=a)b", "[[a]b]", "x{2}", "\\x{1F600}", "}", "]", "(?x) a # comment", "[a-]", "\\h\\R\\b", "{2}",
        "a{2}{3}",
    ],
)  # fmt: skip
def test_what_java_compiles_passes(pattern: str) -> None:
    """Java's own syntax is understood, also where Python's differs."""
    check_java_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "[",
        "(",
        ")",
        "*",
        "+a",
        "a**",
        "{a}",
        "a{2,1}",
        "\\p{foo}",
        "[&&]",
        "\\E",
        "\\",
        "(?z)",
        "\\y",
        "\\p",
        "(?<1>a)",
        "[z-a]",
        "\\k<n>",
    ],
)  # fmt: skip
def test_what_java_refuses_is_refused(pattern: str) -> None:
    """The error is found without a JVM."""
    with pytest.raises(JavaRegexError):
        check_java_regex(pattern)


def test_groups_are_counted_and_named() -> None:
    """A replacement may name groups by number or by name."""
    regex = JavaRegex.of("(a)(?:b)(?<y>c)((?i)d)")

    assert (regex.groups, regex.names) == (3, {"y": 2})


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("\\w+", "é", False),
        ("(?U)\\w+", "é", True),
        ("(?i)É", "é", False),
        ("(?iu)É", "é", True),
        (".", "\u2028", False),
        ("(?d).", "\r", True),
        ("a$.*", "a\r\n", False),
        ("[a-z&&[^b]]", "b", False),
        ("[^a-z&&[def]]", "a", True),
        ("(?x)[a # b\n c]", "c", True),
        ("a?+a", "a", False),
        ("(?>a|ab)c", "abc", False),
        ("\\Qa.b\\E+", "a.bb", True),
        ("(a)\\11", "aa1", True),
        ("(a)|\\2b", "b", False),
        ("\\ud83d\\ude00", "\U0001f600", True),
        ("a{2}{3}", "aa", True),
    ],
)
def test_a_pattern_means_what_it_means_to_java(pattern: str, text: str, matches: bool) -> None:
    """The expected results are those of java.util.regex."""
    assert JavaRegex.of(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "replaced"),
    [
        ("a|ab", "X", "ab", "Xb"),
        ("(.*?)", "x-$1", "foo", "x-foo"),
        ("(.)(.)", "$2$1", "abc", "bac"),
        ("(.)", "$12", "ab", "a2b"),
        ("(?<n>.)", "${n}${n}", "ab", "aab"),
        ("(a)|b", "[$1]", "b", "[]"),
        (".", "\\$", "a", "$"),
        ("z", "x", "a", "a"),
    ],
)
def test_the_first_find_is_replaced(pattern: str, replacement: str, text: str, replaced: str) -> None:
    """With groups by number and name, an escape, and nothing for a group that took no part."""
    assert replaced == JavaRegex.of(pattern).replaced(text, replacement)


@pytest.mark.parametrize(
    ("replacement", "exception"),
    [
        ("$9", "java.lang.IndexOutOfBoundsException"),
        ("${x}", "java.lang.IllegalArgumentException"),
        ("$", "java.lang.IllegalArgumentException"),
        ("\\", "java.lang.IllegalArgumentException"),
    ],
)
def test_a_replacement_that_java_cannot_use_fails_the_record(replacement: str, exception: str) -> None:
    """With the exception that Java throws."""
    with pytest.raises(RecordError) as failure:
        JavaRegex.of("(.)").replaced("a", replacement)

    assert failure.value.exception == exception


def test_a_pattern_that_runs_away_fails_the_record_in_bounded_time() -> None:
    """Catastrophic backtracking costs its record, not the task."""
    with patch.object(java_regex, "SECONDS", 0.2):
        begun = time.monotonic()
        with pytest.raises(RecordError, match=r"more than 0\.2 s"):
            JavaRegex.of("(?:(?:a|aa)+)+b(?<=c)").matches("a" * 60 + "b")

    assert time.monotonic() - begun < 5


def test_a_text_that_is_too_long_fails_the_record() -> None:
    """No topic has so many characters."""
    with pytest.raises(RecordError, match="too long"):
        JavaRegex.of(".*").matches("a" * (java_regex.LONGEST + 1))
