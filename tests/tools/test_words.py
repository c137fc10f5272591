"""The check of words finds what it forbids; `make lint` runs it over the sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.phrases import Phrases
from tools.words import Rules, check_page, check_source, check_subject, main

RULES = Rules(frozenset({"What"}), {"shelf": "cache"}, {"turnout/a.py:shelf": "a piece of furniture"})


def test_openers_of_all_kinds_of_docstrings_are_found() -> None:
    """Module, class and function; a noun phrase and a verb pass."""
    source = '"""What it is."""\nclass A:\n    """Noun."""\n    def b(self):\n        """What it does."""\n'

    assert [finding.line for finding in check_source("turnout/b.py", source, RULES)] == [1, 4]


def test_texts_of_constants_and_headings_are_found() -> None:
    """Lines of code in a page are no headings."""
    source = 'A = 1\n"""What it is."""\nB: int = 2\n"""Number of things."""\n'
    page = "# Title\n```\n# What it prints\n```\n## What it does\n"

    assert [finding.line for finding in check_source("turnout/b.py", source, RULES)] == [2]
    assert [finding.line for finding in check_page("docs/a.md", page, RULES)] == [5]


PHRASES = Phrases({"nobody": "no client", "goes? on": "continues"}, {"turnout/a.py:goes on": "a title"})


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""Noun.\n\nNobody reads it.\n"""', 3),
        ("a = 1  # it goes on", 1),
        ("# The run\n# goes\n# on from here.", 2),
        ("raise ValueError(f'{1} goes on')", 1),
        ("def a():\n    b = 'x', 'nobody'", 2),
    ],
)
def test_phrases_are_found_in_comments_and_strings(source: str, line: int) -> None:
    """With the text to write instead; also across lines."""
    rules = Rules(frozenset(), {}, {}, PHRASES)
    (finding,) = check_source("turnout/b.py", source, rules)

    assert finding.line == line
    assert "write " in str(finding)


def test_names_and_exceptions_have_no_phrases() -> None:
    """Identifiers have rules of their own; an exception is for one phrase of one file."""
    assert not list(PHRASES.in_source("turnout/b.py", "nobody = goes_on = 'mongoes onto'"))
    assert not list(PHRASES.in_source("turnout/a.py", "'It Goes on'"))
    assert list(PHRASES.in_source("turnout/a.py", "'nobody'"))
    assert [found.line for found in PHRASES.in_text("turnout/a.html", "<p>\n</p>Nobody.")] == [2]


@pytest.mark.parametrize("source", ["shelf = 1", "def shelf(): ...", "class shelf: ...", "def a(shelf): ..."])
def test_banned_identifiers_are_found_where_they_are_bound(source: str) -> None:
    """With the word to use instead; an exception needs the path."""
    (finding,) = check_source("turnout/b.py", source, RULES)

    assert "use cache" in str(finding)
    assert not list(check_source("turnout/a.py", source, RULES))
    assert not list(check_source("turnout/b.py", "print(shelf)", RULES))


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("fix(spark): keep rows with a null key", ""),
        ("wip", "Conventional"),
        ("fix: " + "x" * 70, "letters"),
        ("fix: it.", "full stop"),
    ],
)
def test_subjects_of_commits(subject: str, fault: str) -> None:
    """Conventional Commits of at most 72 letters without a full stop."""
    assert fault in check_subject(subject)
    assert bool(check_subject(subject)) == bool(fault)


def test_the_message_of_a_commit_is_checked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(f"fix(spark): {'x' * 61}\n\nA body.\n", encoding="utf-8")
    assert main([str(message)]) == 1
    assert "73 letters" in capsys.readouterr().out
    for subject in (
        "fix(spark): keep rows with a null key",
        "Merge branch 'delivery' into a branch with a rather long name",
    ):
        message.write_text(subject, encoding="utf-8")
        assert main([str(message)]) == 0
