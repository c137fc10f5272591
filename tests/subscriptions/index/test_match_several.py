"""Messages with several values of a key match what the interpreter says, also under XOR."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.conditions import Compare, Group, Kiwi, Logic, Operator, all_of, kiwi, not_, one_of
from turnout.subscriptions.index import Index

_TEXTS = ("", "1", "2", "a", "b")
_leaves = st.one_of(
    st.builds(Kiwi, st.sampled_from("kz"), st.sampled_from(_TEXTS), negated=st.booleans()),
    st.builds(Compare, st.just("k"), st.sampled_from(Operator), st.sampled_from([0.0, 1.0, 2.0])),
)
_conditions = st.recursive(
    _leaves,
    lambda children: st.builds(
        Group, st.sampled_from(list(Logic)), st.lists(children, min_size=1, max_size=4), negated=st.booleans()
    ),
    max_leaves=8,
)
_values = st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=3, unique=True).map(
    lambda texts: texts[0] if len(texts) == 1 else tuple(texts)
)
_messages = st.dictionaries(st.sampled_from("kz"), _values, max_size=2)


@given(st.lists(_conditions, min_size=1, max_size=8), st.lists(_messages, min_size=1, max_size=6))
def test_is_the_interpreter(conditions, given_messages):
    """Few keys and texts, so that values of one key answer several leaves of a condition."""
    subscriptions = subscriptions_of(conditions)
    assert expected(subscriptions, given_messages) == pairs(Index.of(subscriptions), given_messages)


def test_values_do_not_exclude_each_other() -> None:
    """That one value is a text does not make the leaves about other texts of its key false."""
    subscriptions = subscriptions_of(
        [
            one_of(kiwi("k", "a"), all_of(kiwi("k", "b"), kiwi("z", "1"))),
            not_(one_of(Compare("k", Operator.AT_LEAST, 4.8), not_(kiwi("k", "")))),
        ]
    )
    seen = [{"k": ("a", "b"), "z": "1"}, {"k": ("a", "b")}, {"k": ("6.6", "")}, {"k": ""}]
    assert expected(subscriptions, seen) == pairs(Index.of(subscriptions), seen)
