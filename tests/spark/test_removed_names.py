"""Names of `turnout.spark` that are gone."""

from __future__ import annotations

import pytest

from turnout import spark as ts
from turnout.errors import TurnoutError


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("tap", "turnout.history.tap.taps"),
        ("redrive", "turnout.history.redrive.redrive"),
        ("RedriveResult", "turnout.history.redrive.RedriveReport"),
        ("lineage", "turnout.history.lineage.walk"),
    ],
)
def test_a_removed_name(name: str, other: str) -> None:
    """It is not offered any more, and its use says what to call instead."""
    with pytest.raises(TurnoutError, match=other):
        getattr(ts, name)

    assert name not in ts.__all__
