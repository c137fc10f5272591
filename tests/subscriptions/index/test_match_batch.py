"""Batches with many candidates or large conditions: their results and their memory."""

from __future__ import annotations

import tracemalloc

from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.conditions import any_of, kiwi, not_
from turnout.subscriptions.index import Column, Index


def test_few_messages_that_find_many_entries():
    """A few messages of which one finds too many entries are matched together, and the answer is the same."""
    subscriptions = subscriptions_of(kiwi("k", text) for text in ["a"] * 100 + ["b"])
    messages_of = [{"k": "b"}] * 5 + [{"k": "a"}] * 3

    assert expected(subscriptions, messages_of) == pairs(Index.of(subscriptions), messages_of)


def test_many_candidates_take_little_memory():
    """Ten thousand subscriptions that look at every message are verified a part of the batch at a time."""
    conditions = [not_(kiwi("k", f"v{n}")) for n in range(10_000)]
    index = Index.of(subscriptions_of(conditions))
    matches = index.match({"k": Column([f"v{n}" for n in range(300)])}, 300)

    assert len(matches.rows) == 300 * 9_999


def test_large_conditions_take_little_memory():
    """Alternatives with negations are looked at for every message: their leaves are verified a part at a time."""
    conditions = [any_of(*(not_(kiwi(f"k{key}", f"v{n + key}")) for key in range(40))) for n in range(1_000)]
    index = Index.of(subscriptions_of(conditions))
    columns = {f"k{key}": Column([f"v{row + key}" for row in range(200)]) for key in range(40)}
    tracemalloc.start()
    matches = index.match(columns, 200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(matches.rows) == 200 * 999
    assert peak < 200 << 20
