"""The store protocol and its optional abilities."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from turnout.conditions import parse
from turnout.errors import ConfigError, HistoryForgottenError, SubscriptionInvalidError
from turnout.subscriptions import Matcher, Store, StoreBase, Subscription, open_store, store_url
from turnout.subscriptions import store as stores
from turnout.subscriptions.lines import import_lines, subscription_to_json
from turnout.subscriptions.store import (
    ChangeSet,
    MultiTenantStore,
    VersionedStore,
    apply,
    creations_of,
    tenant_store,
    view_as_of,
)
from turnout.subscriptions.store_url import existing, with_timeout


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


def test_store_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry point is all that a URL needs; bulks, change sets and lines do without the optional abilities."""
    plain = PlainStore()
    point = SimpleNamespace(name="plain", load=lambda: lambda _url: plain)
    for module in (stores, store_url):
        monkeypatch.setattr(module, "entry_points", lambda group: [point])

    with open_store(existing(with_timeout("plain://anywhere", 5.0))) as opened:
        assert apply(opened, ChangeSet((Subscription(["d"], "a:1", id="x"),))) == 1
        assert import_lines(opened, [json.dumps(subscription_to_json(Subscription(["d"], "a:2", id="y")))]).created == 1
        assert [match.subscription_id for match in Matcher.from_store(opened).match({"a": "2"})] == ["y"]
    with pytest.raises(ConfigError, match="expected one of plain://; did you mean"):
        open_store("plane://anywhere")


def test_store_with_all_abilities() -> None:
    """The functions ask the store itself."""
    with open_store("memory://") as store:
        tenant_store(store, "acme").create(Subscription(["d"], parse("a:1"), id="x"))

        assert set(creations_of(store)) == {"@acme/x"}
        assert view_as_of(store, 0).revision == 0
