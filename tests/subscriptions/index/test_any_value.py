"""Leaves about any value, in a batch, are what the interpreter says."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import leaves, messages, multivalued_messages, values
from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from tests.subscriptions.index.test_index import low_bounds
from turnout.conditions import Group, Kiwi, Logic, evaluate, kiwi, one_of, parse, with_ids
from turnout.conditions import leaves as leaves_of
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Index

_any = st.one_of(
    st.builds(Kiwi, st.just("*"), values.filter(lambda text: "\\" not in text), negated=st.booleans()),
    st.builds(
        Kiwi, st.just("*"), st.sampled_from(["*a*", "a*", "*b", "*", "a?b*", "*a*b*"]), ignore_case=st.booleans()
    ),
    leaves,
)
_conditions = st.recursive(
    _any,
    lambda children: st.builds(
        Group, st.sampled_from(list(Logic)), st.lists(children, min_size=1, max_size=4), negated=st.booleans()
    ),
    max_leaves=10,
)


@given(st.lists(_conditions, min_size=1, max_size=10), st.lists(multivalued_messages, min_size=1, max_size=8))
def test_is_the_interpreter(conditions, given_messages):
    """All rows together, one after another, by columns and by messages."""
    subscriptions = subscriptions_of(conditions)
    wanted = expected(subscriptions, given_messages)
    index = Index.of(subscriptions)
    assert wanted == pairs(index, given_messages)
    with low_bounds():
        assert wanted == pairs(Index.of(subscriptions), given_messages)
    found = Matcher(subscriptions).match_many(given_messages).ids()
    assert wanted == sorted((row, id_) for row, ids in enumerate(found) for id_ in ids)


@given(st.lists(_conditions, min_size=1, max_size=6), messages)
def test_leaf_ids(conditions, message):
    """The true leaves of a match are those that the interpreter names, one message at a time and together."""
    numbers = count()
    named = [with_ids(condition, lambda: f"leaf{next(numbers)}") for condition in conditions]
    matcher = Matcher(subscriptions_of(named))
    wanted = [
        (str(n), tuple(leaf.id for leaf in leaves_of(condition) if evaluate(leaf, message)))
        for n, condition in enumerate(named)
        if evaluate(condition, message)
    ]
    assert wanted == sorted((match.subscription_id, match.leaf_ids) for match in matcher.match(message))
    assert wanted == sorted((match.subscription_id, match.leaf_ids) for match in matcher.match_many([message])[0])


def test_a_literal_key() -> None:
    """The metadata key ``*`` is a key like any other where it is quoted."""
    literal, any_ = parse('"*":a'), parse("*:a")
    seen = [{"*": "a"}, {"b": "a"}, {"*": "b"}]
    assert [evaluate(literal, message) for message in seen] == [True, False, False]
    assert [evaluate(any_, message) for message in seen] == [True, True, False]
    subscriptions = subscriptions_of([literal, any_])
    assert pairs(Index.of(subscriptions), seen) == [(0, "0"), (0, "1"), (1, "1")]


@given(st.lists(_conditions, min_size=1, max_size=10), st.lists(messages, min_size=1, max_size=4))
def test_single_messages(conditions, given_messages):
    """One message at a time, with a metadata key of that name too, and with nothing remembered."""
    subscriptions = subscriptions_of(conditions)
    given_messages = [*given_messages, {**given_messages[0], "*": "ab"}, {}]
    wanted = expected(subscriptions, given_messages)
    matcher = Matcher(subscriptions)
    for _ in range(2):
        found = [(row, id_) for row, message in enumerate(given_messages) for id_ in matcher.match(message).ids]
        assert wanted == sorted(found)


def test_exactly_one_of_all_values() -> None:
    """Two values may each be one of two texts, and then it is not exactly one."""
    matcher = Matcher([Subscription(["d"], one_of(kiwi("*", "a"), kiwi("*", "b")), id="one")])
    seen = [{"x": "a"}, {"x": "a", "y": "b"}, {"x": "c"}, {"x": "a", "y": "a"}]
    assert matcher.match_many(seen).ids() == [["one"], [], [], ["one"]]


def test_numbers_of_any_value() -> None:
    """Each bound looks for a number by itself."""
    condition = parse("*>5 AND *<3 AND NOT *=7")
    seen = [{"a": "6", "b": "2"}, {"a": "6"}, {"a": "6", "b": "2", "c": "7.0"}, {"a": "x"}]
    assert Matcher(subscriptions_of([condition])).match_many(seen).ids() == [["0"], [], [], []]


def test_a_lone_number_beside_several_values() -> None:
    """A row with one value is matched with the others although another row has several."""
    subscriptions = subscriptions_of([parse("*=1"), parse("NOT *>0")])
    seen = [{"a": "1"}, {"a": "x", "b": "y"}]
    assert pairs(Index.of(subscriptions), seen) == [(0, "0"), (1, "1")]
