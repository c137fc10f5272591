"""Anchors that many subscriptions share."""

from __future__ import annotations

from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.conditions import all_of, any_of, kiwi
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.build import build


def test_hot_anchors():
    """Subscriptions that share their rarest text are distinguished by a second one, and by members of sets."""
    conditions = [all_of(kiwi("a", "x"), kiwi("b", f"b{n % 40}"), kiwi("c", f"c{n % 7}")) for n in range(2_000)]
    conditions += [all_of(kiwi("a", "x"), any_of(kiwi("b", f"b{n % 40}"), kiwi("b", "b1"))) for n in range(200)]
    conditions += [all_of(kiwi("a", "x"), kiwi("t", f"t{n % 40}", partial=True)) for n in range(200)]
    subscriptions = subscriptions_of(conditions)
    index = Index.of(subscriptions, sample=[{"a": "x", "b": "b1", "c": "c2"}])
    given_messages = [{"a": "x", "b": "b1", "c": "c3", "t": "t3 t5"}, {"a": "x", "b": "b17", "c": "c1"}, {"a": "y"}]

    assert expected(subscriptions, given_messages) == pairs(index, given_messages)


def paired_entries(second):
    """The number of entries that are found by two texts, of 20 that share each of five values."""
    conditions = [all_of(kiwi("a", f"a{n // 20}"), kiwi("b", f"b{second(n)}")) for n in range(100)]
    return len(build(subscriptions_of(conditions), Costs([])).arrays.pair_key)


def test_a_second_text_that_all_share_is_not_looked_up():
    """Entries of one text are found by a second one only where these differ, so that candidates are saved."""
    assert paired_entries(lambda n: n // 20) == 0
    assert paired_entries(lambda n: n % 10) == 100
