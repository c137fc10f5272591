"""Digests of conditions: contradictions and equivalent forms."""

from __future__ import annotations

import pytest

from turnout.conditions import parse
from turnout.subscriptions.analysis import form_of


@pytest.mark.parametrize(
    "text",
    [
        "a:x AND a:y",
        "n<5 AND n>9",
        "n=5 AND n=6",
        "n<5 AND NOT n:*",
        "a EXISTS AND NOT a EXISTS",
        "a:abc* AND a:abd*",
        "a:*.log AND a:*.txt",
        "a:x* AND NOT a:*",
        "a:7 AND a>8",
        "ip IN 10.0.0.0/8 AND ip IN 11.0.0.0/8",
        "ip IN 10.1.0.0/16 AND NOT ip IN 10.0.0.0/8",
        "(a:x OR a:y) AND a:z",
        "a:x* AND (a:y OR (b:1 AND b:2))",
    ],
)
def test_contradictions(text) -> None:
    """Conditions that can never be true are recognized."""
    assert form_of(parse(text)).always is False


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a:x AND b:y", "b:y AND a:x"),
        ("a:x", "a:x AND a EXISTS"),
        ("a:x", "a:x AND NOT a:y"),
        ("a:x", "a:x AND a:x*"),
        ("n>=5 AND n<=9", "NOT n<5 AND n<=9"),
        ("n>5", "n>5.0 AND n>4"),
        ("a:*", "a EXISTS"),
        (r"a:\x", "a:x"),
        ("NOT (a:x OR b:y)", "NOT a:x AND NOT b:y"),
        ("a:x OR (a:x AND b:y)", "a:x"),
        ("(a:x AND b:y) OR (a:x AND NOT b:y)", "a:x"),
    ],
)
def test_equivalents(one, other) -> None:
    """Equivalent conditions have the same digest."""
    assert form_of(parse(one)).digest == form_of(parse(other)).digest


def test_independent_globs_are_no_more_work_than_their_diagram() -> None:
    """Globs that imply nothing about each other, as those of detection rules, do not make a condition too large."""
    groups = ["(" + " OR ".join(f"line:*{letter}{number}*" for number in range(8)) + ")" for letter in "ghkm"]

    form, backwards = form_of(parse(" AND ".join(groups))), form_of(parse(" AND ".join(reversed(groups))))

    assert form.exact
    assert form.digest == backwards.digest
    assert form_of(parse(f"{groups[0]} AND NOT {groups[0]}")).always is False
