"""The store protocol and its optional abilities."""

from __future__ import annotations

import pytest

from turnout.conditions import parse
from turnout.errors import HistoryForgottenError, SubscriptionInvalidError
from turnout.subscriptions import Store, StoreBase, Subscription, open_store
from turnout.subscriptions.store import MultiTenantStore, VersionedStore, creations_of, tenant_store, view_as_of


class PlainStore(StoreBase):
    """A store of a package, without optional abilities."""

    def __init__(self) -> None:
        memory = open_store("memory://")
        self.create, self.create_many, self.read = memory.create, memory.create_many, memory.read
        self.update, self.delete = memory.update, memory.delete
        self.search_by_condition, self.search_by_metadata = memory.search_by_condition, memory.search_by_metadata
        self.revision, self.changes, self.snapshot = memory.revision, memory.changes, memory.snapshot


def test_store_without_optional_abilities() -> None:
    """It is a store; its past and its tenants are errors, and the creations of its subscriptions unknown."""
    with PlainStore() as store:
        store.create(Subscription(["d"], parse("a:1"), id="x"))

        assert isinstance(store, Store)
        assert not isinstance(store, VersionedStore | MultiTenantStore)
        assert creations_of(store) == {}
        with pytest.raises(HistoryForgottenError, match="keeps no history: its state at 1 is not known"):
            view_as_of(store, 1)
        with pytest.raises(SubscriptionInvalidError, match="this store has no tenants; found the tenant 'acme'"):
            tenant_store(store, "acme")


def test_store_with_all_abilities() -> None:
    """The functions ask the store itself."""
    with open_store("memory://") as store:
        tenant_store(store, "acme").create(Subscription(["d"], parse("a:1"), id="x"))

        assert set(creations_of(store)) == {"@acme/x"}
        assert view_as_of(store, 0).revision == 0
