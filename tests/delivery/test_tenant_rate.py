"""Rates of tenants as a dispatcher reads them from a store."""

from __future__ import annotations

from dataclasses import replace

from turnout.delivery.tenant_rate import TenantRates
from turnout.subscriptions import Subscription, open_store


def one(id_: str, deliveries: int | None) -> Subscription:
    return Subscription(["d"], "a:1", id=id_, deliveries=deliveries)


def test_the_newest_subscription_with_a_quota_counts():
    """Of each tenant alone; one that is stored without a quota changes nothing."""
    store = open_store("memory://")
    for id_, deliveries in (("@acme/z", 5), ("@acme/a", 7), ("@acme/b", None), ("@bolt/a", 3), ("@corp/a", None)):
        store.create(one(id_, deliveries))
    rates = TenantRates(store)
    acme, bolt = rates.of("@acme/z"), rates.of("@bolt/unknown")

    assert acme is not None
    assert bolt is not None
    assert (acme.rate, bolt.rate, rates.of("@corp/a"), rates.of("plain"), rates.of("")) == (7, 3, None, None, None)
    assert rates.of("@acme/a") is acme


def test_changes_are_followed():
    """Lanes that have a rate see its new value; a first quota of a known tenant is reported."""
    store = open_store("memory://")
    store.create(one("@acme/a", 7))
    store.create(one("@corp/a", None))
    rates = TenantRates(store)
    acme, corp = rates.of("@acme/a"), rates.of("@corp/a")
    before = store.revision()
    store.update("@acme/a", one("@acme/a", 9))

    assert acme is not None
    assert corp is None
    assert not rates.follow(store.changes(before).created)
    assert acme.rate == 9
    assert not rates.follow([replace(one("@acme/b", 1), revision=1), one("@new/a", 4)])
    assert acme.rate == 9
    store.update("@corp/a", one("@corp/a", 2))
    assert rates.follow(store.changes(before).created)
    first = rates.of("@corp/a")
    assert first is not None
    assert first.rate == 2


def test_a_reset_reads_the_store_again():
    """Also versions whose change was missed, into the rate that lanes already have."""
    store = open_store("memory://")
    store.create(one("@acme/a", 7))
    rates = TenantRates(store)
    acme = rates.of("@acme/a")
    store.update("@acme/a", one("@acme/a", 9))
    rates.reset()

    assert acme is not None
    assert rates.of("@acme/a") is acme
    assert acme.rate == 9
