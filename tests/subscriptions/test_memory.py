"""The memory store keeps the contract; it is also what other tests use as their store."""

import pytest

from tests.contracts.store import StoreContract, subscription
from turnout.errors import ConfigError
from turnout.subscriptions import open_store
from turnout.subscriptions.stores.memory import MemoryStore


class TestMemoryStore(StoreContract):
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
