"""The original's tree of patterns."""

from __future__ import annotations

import pytest

from turnout.errors import ConditionError, StoreUnavailableError, SubscriptionInvalidError
from turnout.subscriptions.service import LOCK_SECONDS, KiwiTree, PairNotFoundError


def test_kiwi_tree(tmp_path):
    """Pairs are kept in a file; creating twice has no effect; deleting a missing pair is an error."""
    tree = KiwiTree(tmp_path / "pairs.db")
    tree.create("k", "p*")
    tree.create("k", "p*")
    tree.create("k", "q?")
    tree.delete("k", "q?")
    with pytest.raises(PairNotFoundError):
        tree.delete("k", "q?")
    with pytest.raises(ConditionError, match="kiwi bird"):
        tree.create("k", "*p")
    with pytest.raises(SubscriptionInvalidError, match="key"):
        tree.create("", "p")
    tree.close()
    again = KiwiTree(tmp_path / "pairs.db")

    assert again.pairs() == [("k", "p*")]
    again.close()


def test_a_lock_ends_by_itself():
    """A lock of a client that died expires."""
    now = [0.0]
    tree = KiwiTree(clock=lambda: now[0])
    tree.lock_create("k", "p")
    with pytest.raises(StoreUnavailableError):
        tree.lock_create("k", "p")
    now[0] = LOCK_SECONDS + 1
    tree.lock_create("k", "p")
    tree.unlock_create("k", "p")
    tree.unlock_create("k", "p")
    tree.create("k", "p")
    tree.close()
