"""The guess is the name that was probably meant."""

from __future__ import annotations

import pytest

from turnout.base.terminal import did_you_mean, nearest

NAMES = ["exclude", "include", "renames", "stream", "start", "servers"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("exlude", "exclude"),
        ("EXCLUDE", "exclude"),
        ("steram", "stream"),
        ("starrt", "start"),
        ("strat", "start"),
        ("serverz", "servers"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name(word: str, expected: str | None) -> None:
    """One slip of the fingers comes before what merely looks alike; case does not count."""
    assert nearest(word, NAMES) == expected
    assert did_you_mean(word, NAMES) == (f'; did you mean "{expected}"?' if expected else "")


def test_a_swap_comes_before_a_likeness() -> None:
    """This holds even if the letters have less in common."""
    assert nearest("kfaka", ["nats", "kafka", "json"]) == "kafka"
