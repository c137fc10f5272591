"""The matches of many messages, looked at as ids, as destinations and as objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.conditions import all_of, any_of, evaluate, kiwi
from turnout.conditions.model import with_ids
from turnout.subscriptions import Match, Matcher, Subscription, match_results

_LAYERS = 17
"""Number of later subscriptions that form a layer; further ones are in none yet."""


def _grown(stored_conditions):
    """A matcher of subscriptions in two layers, some of which are gone, and a few in none."""
    subscriptions = [Subscription(["d", "e"][: n % 3], one, id=str(n)) for n, one in enumerate(stored_conditions)]
    matcher = Matcher([*subscriptions[::3], Subscription(["x"], kiwi("k", "?*"), id="gone")])
    for subscription in subscriptions[1::3]:
        matcher.add(subscription)
    for n in range(_LAYERS):
        matcher.add(Subscription(["x"], kiwi("none", "such"), id=f"unlike{n}"))
    for subscription in subscriptions[2::3]:
        matcher.add(subscription)
    matcher.remove("gone")
    return matcher, subscriptions


@given(st.lists(conditions, min_size=1, max_size=12), st.lists(messages, min_size=1, max_size=6))
def test_is_the_interpreter(stored_conditions, given_messages):
    """Ids, destinations and objects say of every message what the interpreter says, in one order."""
    matcher, subscriptions = _grown(stored_conditions)
    true = [
        [subscription for subscription in subscriptions if evaluate(subscription.condition, message)]
        for message in given_messages
    ]
    batch = matcher.match_many(given_messages)

    assert [sorted(filter_.id for filter_ in own) for own in true] == [sorted(own) for own in batch.ids()]
    assert [own.ids for own in batch] == batch.ids()
    assert [own.destinations for own in batch] == batch.destinations()
    assert [[match.subscription_id for match in own] for own in batch] == batch.ids()
    assert [[match.destinations for match in own] for own in batch] == batch.destinations()
    assert [len(own) for own in batch] == [len(own) for own in true]
    assert [sorted(matcher.match(message)) for message in given_messages] == [sorted(own) for own in batch]


def test_equal_to_lists():
    """A batch is equal to lists of lists of matches, and to nothing that says something else."""
    matcher = Matcher([Subscription(["d"], with_ids(kiwi("k", "a"), lambda: "leaf"), id="x")])
    match = Match("x", ("d",), ("leaf",))
    batch = matcher.match_many([{"k": "a"}, {"k": "b"}])

    assert batch == [[match], []]
    assert batch == matcher.match_many([{"k": "a"}, {}])
    assert batch != [[match]]
    assert batch != [[], [match]]
    assert batch[0] == [match]
    assert batch[0] != ["x"]
    assert batch != ([match], [])


def test_is_a_sequence():
    """A batch and its parts have a length, places from both ends, slices and a text."""
    matcher = Matcher([Subscription([], kiwi("k", "a*"), id=name) for name in "xy"])
    batch = matcher.match_many([{"k": "b"}, {"k": "a"}])

    assert len(batch) == 2
    assert batch[-1] == batch[1:][0]
    assert [len(own) for own in batch] == [0, 2]
    assert batch[1][0] == batch[1][:1][0]
    assert repr([list(own) for own in batch]) == repr(batch)
    assert batch[1][0] in batch[1]
    with pytest.raises(IndexError):
        batch[2]


def test_many_messages(monkeypatch):
    """More matches than are worked on at a time keep their own messages."""
    monkeypatch.setattr(match_results, "_PORTION", 64)
    matcher = Matcher(Subscription([], any_of(kiwi("k", str(n)), kiwi("k", "all")), id=str(n)) for n in range(7))
    given_messages = [{"k": "all" if n % 5 == 0 else str(n % 9)} for n in range(513)]

    assert [[match.subscription_id for match in matcher.match(message)] for message in given_messages] == [
        sorted(own) for own in matcher.match_many(given_messages).ids()
    ]


def test_changes_do_not_reach_a_batch():
    """The results of a batch do not change with later changes of subscriptions."""
    matcher = Matcher([Subscription(["d"], all_of(kiwi("k", "a"), kiwi("l", "b")), id="x")])
    batch = matcher.match_many([{"k": "a", "l": "b"}])
    matcher.remove("x")
    matcher.add(Subscription(["e"], kiwi("k", "a"), id="y"))

    assert batch.ids() == [["x"]]
    assert matcher.match_many([{"k": "a"}]).ids() == [["y"]]


def test_no_messages():
    """No messages have no matches, whatever the index holds."""
    assert Matcher([Subscription([], kiwi("k", "a"), id="x")]).match_many([]) == []
    assert Matcher().match_many([{"k": "a"}]).ids() == [[]]


def test_one_message():
    """The matches of one message are those of a batch of one, also when the message is changed afterwards."""
    matcher, _ = _grown([any_of(kiwi("k", "a*"), kiwi("l", "b")) for _ in range(7)])
    message = {"k": "abc", "l": "b"}
    (batch,), one = matcher.match_many([dict(message)]), matcher.match(message)
    message.clear()

    assert one == list(batch)
    assert (one.ids, one.destinations, len(one)) == (batch.ids, batch.destinations, 7)
    assert list(one[:2]) == batch[:2]
    assert matcher.match({}) == []
