"""Hashes of facts that collide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.subscriptions import Matcher
from turnout.subscriptions.index import Index, facts

_conditions = st.lists(conditions, min_size=1, max_size=12)
_messages = st.lists(messages, min_size=1, max_size=8)


@given(_conditions, _messages)
def test_hashes_decide_nothing(stored_conditions, given_messages):
    """With hashes that are nearly all the same, the texts that are compared keep every answer right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_hash64", lambda raw, salt: (len(raw) % 2) << 63)
        subscriptions = subscriptions_of(stored_conditions)

        assert expected(subscriptions, given_messages) == pairs(Index.of(subscriptions), given_messages)
        matcher = Matcher(subscriptions)
        for message in given_messages:
            ids = sorted(match.subscription_id for match in matcher.match(message))

            assert [id_ for _, id_ in expected(subscriptions, [message])] == ids
