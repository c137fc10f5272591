"""Bulks that are too long."""

from __future__ import annotations

import pytest

from tests.contracts.store import subscription
from turnout.errors import StoreUnavailableError
from turnout.rpc import storage


@pytest.mark.parametrize("bound", ["MAX_BULK", "MAX_BULK_BYTES"])
def test_bulks(store, monkeypatch, bound):
    """A bulk that is too long to be held is RESOURCE_EXHAUSTED, and nothing of it is stored."""
    monkeypatch.setattr(storage, bound, 3)
    with pytest.raises(StoreUnavailableError, match="RESOURCE_EXHAUSTED: a bulk has at most"):
        store.create_many(subscription() for _ in range(4))
    assert len(store.snapshot()) == 0


def test_bulks_of_ids(store, monkeypatch):
    """A bulk of too many ids is RESOURCE_EXHAUSTED, and none of them is deleted."""
    ids = store.create_many(subscription() for _ in range(4))
    monkeypatch.setattr(storage, "MAX_BULK", 3)
    with pytest.raises(StoreUnavailableError, match="RESOURCE_EXHAUSTED: a bulk has at most 3 ids"):
        store.delete_many(ids)
    store.delete_many(ids[:3])

    assert len(store.snapshot()) == 1
