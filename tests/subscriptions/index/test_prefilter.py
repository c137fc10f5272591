"""Numeric checks that are evaluated together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from tests.subscriptions.index.asking import expected, subscriptions_of
from turnout.subscriptions import Matcher
from turnout.subscriptions.index import match_one, prefilter

_conditions = st.lists(conditions, min_size=1, max_size=12)
_messages = st.lists(messages, min_size=1, max_size=8)


@given(_conditions, _messages, st.sampled_from([0, 1]))
def test_numeric_checks_first(stored_conditions, given_messages, checks):
    """However many numeric checks are evaluated together, what is left to one message's other checks is the same."""
    subscriptions = subscriptions_of(stored_conditions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_one, "_MANY_ENTRIES", 0)
        patch.setattr(prefilter, "_CHECKS", checks)
        matcher = Matcher(subscriptions)

        assert [[id_ for _, id_ in expected(subscriptions, [message])] for message in given_messages] == [
            sorted(matcher.match(message).ids) for message in given_messages
        ]
