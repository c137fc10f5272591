"""Shared helpers for tests of the index: queries in each of its forms."""

from __future__ import annotations

from turnout.base.multivalued import ANY_KEY, by_leaf_keys, leaf_key, metadata_of
from turnout.conditions import all_of, evaluate, kiwi, not_
from turnout.loops.segment_arrays import RANGES, S_RANGES
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Column, Index
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


def as_read(index):
    """The index as if it came from a file."""
    layers = [Layer(Segment(segment.head, segment.arrays), gone) for (segment, gone), _ in index._layers]
    return Index(layers, index.revision)


def pairs(index, messages):
    """Return (message, subscription id) of all matches, sorted; equal together, two by two, one by one, and as read."""
    together = _pairs(index, messages)
    for size in (1, 2):
        parts = [(begin, messages[begin : begin + size]) for begin in range(0, len(messages), size)]
        assert together == [(begin + row, id_) for begin, some in parts for row, id_ in _pairs(index, some)]
    assert together == _pairs(as_read(index), messages)
    return together


def _pairs(index, messages):
    matches = index.match(columns_of(messages), len(messages))
    assert sorted(matches.rows.tolist()) == matches.rows.tolist()
    ids = index.subscription_ids(matches.subscriptions).to_pylist()
    found = sorted(zip(matches.rows.tolist(), ids, strict=True))
    matches = index.match_messages(list(map(metadata_of, messages)))
    ids = index.subscription_ids(matches.subscriptions).to_pylist()
    assert found == sorted(zip(matches.rows.tolist(), ids, strict=True))
    return found


def candidates(segment, message):
    """Return the number of entries that one message finds, and of subscriptions that it matches."""
    index = Index([Layer(segment)], 0)
    found = index.match_messages([message])
    (buffers,) = segment.matcher._free
    scratch = buffers.scratch
    ranges = scratch.cells[int(scratch.state[S_RANGES]) :][: 2 * int(scratch.state[RANGES])]
    return int((ranges[1::2] - ranges[::2]).sum()), len(found.rows)


def expected(subscriptions, messages):
    """The same by the interpreter."""
    return sorted(
        (row, subscription.id)
        for row, message in enumerate(messages)
        for subscription in subscriptions
        if evaluate(subscription.condition, message)
    )
