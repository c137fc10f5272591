"""Quotas of tenants: what is counted, and what is refused."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from turnout.conditions import parse
from turnout.errors import QuotaExceededError, SubscriptionInvalidError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.model import settings_from_mapping
from turnout.subscriptions.service import SubscriptionService
from turnout.subscriptions.store import create_many
from turnout.subscriptions.tenants import Quota, Usage, UsageCounter


def one(text: str = "a:1", id_: str = "") -> Subscription:
    return Subscription(["d"], parse(text), id=id_)


@pytest.mark.parametrize(
    ("text", "leaves", "unselective"),
    [
        ("a:1", 1, 0),
        ("a:1 AND NOT b:2", 2, 0),
        ("a:*", 1, 1),
        ("total>5", 1, 0),
        ("a:1 OR NOT b:2", 2, 1),
        ("a:* AND b:2", 2, 0),
    ],
)
def test_what_a_subscription_takes(text, leaves, unselective):
    """Leaves, and the terms that no text or number can be looked up for."""
    assert Usage.of(one(text)) == (1, leaves, unselective)


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        (Quota(subscriptions=2), "the quota of subscriptions is 2, and 3 would be used"),
        (Quota(leaves=3), "the quota of leaves is 3, and 4 would be used"),
        (Quota(unselective=0), "the quota of unselective is 0, and 1 would be used"),
    ],
)
def test_an_exceeded_quota(quota, words):
    """It is named with its value and what would be used; nothing of the bulk is stored, and others' do not count."""
    store = open_store("memory://")
    create_many(store.for_tenant("bolt"), [one(), one("a:*")])
    acme = store.for_tenant("acme")
    service = SubscriptionService(acme, quota=quota, usage=UsageCounter(acme))
    first = service.create(one())
    revision = acme.revision()

    with pytest.raises(QuotaExceededError, match=words):
        service.create_many([one(), one("a:1 AND NOT b:2" if quota.unselective is None else "a:*")])
    assert acme.revision() == revision
    acme.delete(first)
    assert service.create_many([one(), one()])


def test_updates_count_what_they_add():
    """An update is refused where the new version takes more than is left; one that takes less is always stored."""
    store = open_store("memory://")
    service = SubscriptionService(store, quota=Quota(leaves=2), usage=UsageCounter(store))
    store.create(one("a:1 AND NOT b:2 AND NOT c:3", "a"))

    with pytest.raises(QuotaExceededError, match="leaves is 2, and 4 would be used"):
        service.update("a", one("a:1 AND NOT b:2 AND NOT c:3 AND NOT d:4"))
    assert service.update("a", one("a:1 AND NOT b:2 AND NOT c:4")) == 2
    assert service.update("a", one("a:1 AND NOT b:2")) == 3


def test_threads_do_not_share_what_is_left():
    """Of many threads that create at once, as many succeed as the quota has room for."""
    store = open_store("memory://")
    usage = UsageCounter(store)
    refused: list[QuotaExceededError] = []

    def create() -> None:
        try:
            SubscriptionService(store, quota=Quota(subscriptions=5), usage=usage).create(one())
        except QuotaExceededError as exceeded:
            refused.append(exceeded)

    threads = [threading.Thread(target=create) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(store.snapshot()), len(refused)) == (5, 7)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ([], "quota: expected an object, found \\[\\]"),
        ({"leafs": 1}, "quota.leafs: unknown field; there are subscriptions, leaves, unselective, deliveries"),
        ({"leaves": -1}, "quota.leaves: expected a whole number, found -1"),
        ({"leaves": True}, "quota.leaves: expected a whole number, found True"),
        ({"deliveries": 0}, "quota.deliveries: expected 1 to 1,000,000 a second, found 0"),
        ({"deliveries": 2.5}, "quota.deliveries: expected a whole number, found 2.5"),
    ],
)
def test_quotas_that_mean_nothing(mapping, words):
    """Are refused with the field, what was found and what was expected."""
    with pytest.raises(SubscriptionInvalidError, match=words):
        Quota.from_mapping(mapping)


def test_the_quota_of_deliveries_is_recorded():
    """With each subscription that a tenant stores; what the tenant says of it itself does not count."""
    store = open_store("memory://")
    acme = store.for_tenant("acme")
    limited = SubscriptionService(acme, quota=Quota(deliveries=5), usage=UsageCounter(acme), by_tenant=True)
    free = SubscriptionService(acme, by_tenant=True)
    line = '{"id": "%s", "route": {"destinations": ["d"], "condition": {"existsCondition": {"key": "a"}}}%s}'
    spoofed = ', "quota": {"deliveries": 900}'
    limited.create(replace(one(id_="made"), deliveries=900))
    limited.create_read(limited.read_lines([line % ("line", spoofed)]))
    free.create_read(free.read_lines([line % ("free", spoofed)]))
    free.update("made", replace(one(id_="made"), deliveries=900))
    SubscriptionService(store).create(replace(one(id_="whole"), deliveries=7))

    assert {version.id: version.deliveries for version in store.snapshot()} == {
        "@acme/free": None,
        "@acme/line": 5,
        "@acme/made": 5,
        "whole": 7,
    }


@pytest.mark.parametrize("quota", [5, {}, {"deliveries": 0}, {"deliveries": True}, {"deliveries": 1, "leaves": 1}])
def test_recorded_quotas_that_mean_nothing(quota):
    """A line with another form is refused with the form and what was found."""
    with pytest.raises(
        SubscriptionInvalidError, match=re.escape("quota: expected {'deliveries': 1 to 1,000,000}, found")
    ):
        settings_from_mapping({"quota": quota})
