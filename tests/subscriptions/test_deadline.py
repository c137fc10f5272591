"""Time limits of one call."""

from __future__ import annotations

import pytest

from turnout.errors import StoreUnavailableError
from turnout.subscriptions.store import remaining, within


def test_a_limit_holds_in_its_block_alone() -> None:
    """Without one there is what the caller allows."""
    assert remaining(9.0) == 9.0
    with within(2.0):
        assert 0 < remaining(9.0) <= 2.0
        assert remaining(0.5) <= 0.5
    assert remaining(9.0) == 9.0


def test_a_limit_that_has_passed_is_an_error() -> None:
    """The store is not asked any more."""
    with pytest.raises(StoreUnavailableError), within(1.0, since=0.0):
        remaining(9.0)
