"""Java's names of time zones."""

from __future__ import annotations

from tests.transforms.java.test_date_pattern import ZONES

from turnout.transforms.java.zone import NAMES


def test_every_name_is_compared() -> None:
    """No name of a zone is read that Java was not asked about."""
    assert {name.name for name in NAMES} <= {name for name, *_ in ZONES["read"]}
