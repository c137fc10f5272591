"""Durations as text."""

from __future__ import annotations

import pytest

from turnout.base.clocks import parse_duration
from turnout.server.config import seconds_of


@pytest.mark.parametrize("text", ["", "s", "1", "1 s", "-1s", "1w", "1h30m", "٣h", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    """A number in plain digits with one unit, and nothing else."""
    assert parse_duration(text) is None


@pytest.mark.parametrize("text", ["250ms", "30s", "1.5m", "2h", "7d"])
def test_a_servers_settings_have_the_same_units(text: str) -> None:
    """Numbers without a unit are theirs alone."""
    assert seconds_of(text) == parse_duration(text)
