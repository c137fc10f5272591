"""Matcher that follows its store: while the store is away, and how often it is asked."""

from __future__ import annotations

import pytest

from tests.contracts.store import subscription
from turnout.errors import StoreUnavailableError
from turnout.subscriptions import open_store
from turnout.subscriptions.matcher import LiveMatcher


@pytest.fixture
def store():
    with open_store("memory://") as store:
        yield store


def test_live_matcher_answers_while_the_store_is_away(store):
    """The index as it was answers while the store is away, and catches up when it is back."""
    store.create(subscription(id="x"))
    now = [0.0]
    away = [False]

    class Store:
        def __getattr__(self, name):
            return getattr(store, name)

        def changes(self, since):
            if away[0]:
                raise StoreUnavailableError("away")
            return store.changes(since)

    live = LiveMatcher(Store(), max_age=1.0, clock=lambda: now[0])
    away[0] = True
    store.create(subscription(id="y"))
    live.changed()
    assert {match.subscription_id for match in live.match({"subject": "orders"}).matches} == {"x"}

    away[0] = False
    now[0] += 2.0
    assert {match.subscription_id for match in live.match({"subject": "orders"}).matches} == {"x", "y"}


def test_live_matcher_asks_no_more_than_it_must(store):
    """Between two changes of its own, the store is asked once per *max_age*."""
    now = [0.0]
    asked = []

    class Store:
        def __getattr__(self, name):
            return getattr(store, name)

        def changes(self, since):
            asked.append(now[0])
            return store.changes(since)

    live = LiveMatcher(Store(), max_age=1.0, clock=lambda: now[0])
    for step in range(40):
        now[0] = step / 10
        live.match({})

    assert len(asked) == 3
