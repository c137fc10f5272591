"""The use cases beyond the store: pages, and the kiwi-tree registries kept in step. The rules are in tests/rpc."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from tests.contracts.store import subscription
from turnout.conditions import all_of, kiwi, not_
from turnout.errors import StoreUnavailableError, SubscriptionInvalidError, SubscriptionNotFoundError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.service import KiwiTree, KiwiTrees, SubscriptionService


@pytest.fixture
def store():
    with open_store("memory://") as store:
        yield store


@pytest.fixture
def trees():
    trees = KiwiTrees(KiwiTree(), KiwiTree())
    yield trees
    trees.complete.close()
    trees.partial.close()


@pytest.fixture
def service(store, trees):
    return SubscriptionService(store, kiwi_trees=trees)


def subscribed(*leaves):
    return Subscription(["d"], all_of(*leaves) if len(leaves) > 1 else leaves[0])


def test_limits(service):
    """No limit means a hundred, and a huge one the largest page; a negative one is refused."""
    service.create_many(subscription(metadata={"n": str(n)}) for n in range(1_100))

    assert len(service.search_by_metadata({}).items) == 100
    assert len(service.search_by_metadata({}, limit=5_000).items) == 1_000
    with pytest.raises(SubscriptionInvalidError, match="-1"):
        service.search_by_metadata({}, limit=-1)
    with pytest.raises(SubscriptionInvalidError, match="key"):
        service.search_by_condition("", "x")


def test_patterns_are_registered(service, trees):
    """Kiwi tree leaves are registered where they belong, other kinds nowhere."""
    service.create(
        subscribed(kiwi("a", "x*", tree=True), kiwi("b", "y", partial=True, tree=True), not_(kiwi("c", "*z*")))
    )

    assert trees.complete.pairs() == [("a", "x*")]
    assert trees.partial.pairs() == [("b", "y")]


def test_patterns_go_with_their_last_user(service, trees):
    """A pair stays while another subscription uses it."""
    ids = [service.create(subscribed(kiwi("a", "x", tree=True))) for _ in range(2)]
    service.delete(ids[0])
    assert trees.complete.pairs() == [("a", "x")]

    service.delete(ids[1])
    assert trees.complete.pairs() == []
    service.create(subscribed(kiwi("a", "x", tree=True)))


def test_a_locked_pair(service, trees, store):
    """While a pair is locked, creating with it says to try again, and stores nothing."""
    trees.complete.lock_create("a", "x")
    with pytest.raises(StoreUnavailableError, match="try again"):
        service.create(subscribed(kiwi("a", "x", tree=True)))
    assert len(store.snapshot()) == 0

    trees.complete.unlock_create("a", "x")
    service.create(subscribed(kiwi("a", "x", tree=True)))


def test_a_bulk_deletion_releases_its_patterns(service, trees, store):
    """Patterns that only deleted subscriptions used are released; of a refused bulk none is."""
    ids = [service.create(subscribed(kiwi("a", pattern, tree=True))) for pattern in ("x", "x", "y", "z")]
    with pytest.raises(SubscriptionNotFoundError, match="'nobody'"):
        service.delete_many([*ids, "nobody"])
    assert len(trees.complete.pairs()) == 3
    assert service.delete_many([*ids[1:], ids[1]]) == 3

    assert trees.complete.pairs() == [("a", "x")]
    assert [one.id for one in store.snapshot()] == ids[:1]


def test_delete_goes_on_where_a_pair_is_locked(service, trees, store):
    """A delete does not fail for a pair that another delete holds; the pair stays."""
    created = service.create(subscribed(kiwi("a", "x", tree=True)))
    trees.complete.lock_create("a", "x")
    service.delete(created)

    assert len(store.snapshot()) == 0
    assert trees.complete.pairs() == [("a", "x")]


def test_a_pair_that_is_removed_while_it_is_needed(service, trees, store, monkeypatch):
    """A delete that finds the pair unused, between a create's two steps, does not leave it unregistered."""
    create_many = store.create_many

    def interrupted(new):
        trees.complete.lock_create("a", "x")
        trees.complete.delete("a", "x")
        threading.Timer(0.2, trees.complete.unlock_create, ("a", "x")).start()
        return create_many(new)

    monkeypatch.setattr(store, "create_many", interrupted)
    service.create(subscribed(kiwi("a", "x", tree=True)))

    assert trees.complete.pairs() == [("a", "x")]


def test_a_registry_that_goes_away_in_between(service, trees, store, monkeypatch):
    """A subscription whose pair cannot be registered is not kept."""
    create_many = store.create_many

    def interrupted(new):
        trees.complete.lock_create("a", "x")
        return create_many(new)

    monkeypatch.setattr(store, "create_many", interrupted)
    with pytest.raises(StoreUnavailableError):
        service.create(subscribed(kiwi("a", "x", tree=True)))
    assert len(store.snapshot()) == 0


def test_create_and_delete_at_once(service, trees, store):
    """A stored subscription's pair is registered, for any concurrent creations and deletions."""

    def work():
        for _ in range(60):
            try:
                service.delete(service.create(subscribed(kiwi("a", "x", tree=True))))
            except StoreUnavailableError:
                continue

    def keep():
        for _ in range(400):
            try:
                service.create(subscribed(kiwi("a", "x", tree=True)))
            except StoreUnavailableError:
                time.sleep(0.001)
            else:
                return

    threads = [threading.Thread(target=work) for _ in range(3)] + [threading.Thread(target=keep)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(store.snapshot()) == 1
    assert trees.complete.pairs() == [("a", "x")]


def test_optional_parts_stay_out():
    """Using subscriptions loads neither grpc nor pymongo, and a missing one is reported with the remedy."""
    program = """
import sys
import turnout.subscriptions.service, turnout.subscriptions.lines, turnout.subscriptions.matcher
from turnout.subscriptions import open_store
open_store("memory://")
loaded = {"grpc", "pymongo", "pyspark", "nats", "structlog"} & set(sys.modules)
assert not loaded, loaded
for name, url, extra in (("grpc", "grpc://h:1", "subscriptions"), ("pymongo", "mongodb://h", "mongo")):
    sys.modules[name] = None
    try:
        open_store(url)
    except ImportError as missing:
        assert f'install "turnout[{extra}]"' in str(missing), missing
    else:
        raise AssertionError(url)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
