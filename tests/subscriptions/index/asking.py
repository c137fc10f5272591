"""What the tests of the index share: an index asked in each of its ways."""

from __future__ import annotations

from turnout.conditions import evaluate
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Column


def subscriptions_of(conditions):
    """A subscription for each condition, named by its number, with none, one or two destinations."""
    return [Subscription(["d", "e"][: n % 3], condition, id=str(n)) for n, condition in enumerate(conditions)]


def columns_of(messages):
    """The messages by key."""
    keys = {key for message in messages for key in message}
    return {key: Column([message.get(key) for message in messages]) for key in keys}


def pairs(index, messages):
    """(message, subscription id) of all matches, sorted."""
    matches = index.match(columns_of(messages), len(messages))
    ids = index.subscription_ids(matches.subscriptions).to_pylist()
    return sorted(zip(matches.rows.tolist(), ids, strict=True))


def expected(subscriptions, messages):
    """The same by the interpreter."""
    return sorted(
        (row, subscription.id)
        for row, message in enumerate(messages)
        for subscription in subscriptions
        if evaluate(subscription.condition, message)
    )
