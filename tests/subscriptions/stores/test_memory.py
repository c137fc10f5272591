"""The memory store keeps the contract; it is also what other tests use as their store."""

import pytest
from tests.contracts.store import StoreContract, TenantHistoryContract, subscription

from turnout.errors import ConfigError, HistoryForgottenError
from turnout.subscriptions import open_store
from turnout.subscriptions.stores.memory import MemoryStore


class TestMemoryStore(StoreContract, TenantHistoryContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()


def test_named_memory_is_shared():
    """One name is one store within a process; no name is a new one each time."""
    created = open_store("memory://shared").create(subscription())

    assert created == open_store("memory://shared").read(created).id
    assert len(open_store("memory://").snapshot()) == 0


@pytest.mark.parametrize("url", ["subscriptions.db", "postgres://x", ""])
def test_unknown_scheme(url):
    """A URL of no known scheme is refused, with those there are."""
    with pytest.raises(ConfigError, match="memory://"):
        open_store(url)


def test_forgets_beyond_the_retention():
    """Without a retention nothing is remembered but the present revision."""
    store = open_store("memory://?retention=0")
    first = store.create(subscription())
    store.create(subscription())
    store.delete(first)

    assert len(store.as_of(3).snapshot()) == 1
    with pytest.raises(HistoryForgottenError, match=r"revision 2: it remembers revisions 3 .* to 3"):
        store.as_of(2)


@pytest.mark.parametrize("query", ["retention=soon", "retain=3d"])
def test_bad_options(query):
    """An option that says nothing is a wrong request."""
    with pytest.raises(ConfigError, match="retention"):
        open_store(f"memory://?{query}")
