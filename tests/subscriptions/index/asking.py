"""Shared helpers for tests of the index: queries in each of its forms."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from turnout.conditions import all_of, evaluate, kiwi, not_
from turnout.multivalued import ANY_KEY, by_leaf_keys, leaf_key
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Column, Index
from turnout.subscriptions.index import index as index_module
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.segment import Segment


def subscriptions_of(conditions):
    """A subscription for each condition, named by its number, with none, one or two destinations."""
    return [Subscription(["d", "e"][: n % 3], condition, id=str(n)) for n, condition in enumerate(conditions)]


def wanting(value, id_=""):
    """A subscription to one value."""
    return Subscription(["d"], all_of(kiwi("k", value), not_(kiwi("other", "x"))), id=id_)


def columns_of(messages):
    """The messages by the keys of leaves."""
    messages = [by_leaf_keys(message, [ANY_KEY, leaf_key(ANY_KEY)]) for message in messages]
    keys = {key for message in messages for key in message}
    columns = {key: [message.get(key) for message in messages] for key in keys}
    return {key: Column(values, several=tuple in set(map(type, values))) for key, values in columns.items()}


@contextmanager
def all_rows_together():
    """No batch is so small that its rows are matched one after another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_FEW_ROWS", -1)
        yield


@contextmanager
def few_rows_given_up():
    """Match a small batch row by row at first, then all rows together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_VERY_FEW_ROWS", -1)
        patch.setattr(index_module, "_CANDIDATES_OF_FEW", -1)
        patch.setattr(index_module, "_SKIPPED_BATCHES", 0)
        yield


def as_read(index):
    """The index as if it came from a file: without the texts that are kept where it was built."""
    layers = [Layer(Segment(segment.head, segment.arrays), gone) for (segment, gone), _ in index._layers]
    return Index(layers, index.revision)


def pairs(index, messages):
    """Return (message, subscription id) of all matches, sorted; equal row by row, together and mixed."""
    with all_rows_together():
        together = _pairs(index, messages)
        assert together == _pairs(as_read(index), messages)
    with few_rows_given_up():
        assert together == _pairs(index, messages)
    assert together == _pairs(index, messages)
    assert together == _pairs(as_read(index), messages)
    return together


def _pairs(index, messages):
    matches = index.match(columns_of(messages), len(messages))
    assert sorted(matches.rows.tolist()) == matches.rows.tolist()
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
