"""Numeric checks and equalities that are evaluated together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from tests.subscriptions.index.asking import all_rows_together, expected, subscriptions_of
from turnout.conditions import all_of, kiwi, not_
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import match_one, prefilter
from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.build import build

_conditions = st.lists(conditions, min_size=1, max_size=12)
_messages = st.lists(messages, min_size=1, max_size=8)


@given(_conditions, _messages, st.sampled_from([0, 1, 3]))
def test_some_checks_first(stored_conditions, given_messages, checks):
    """However many checks are evaluated together, what is left to the others is the same, one by one and in batches."""
    subscriptions = subscriptions_of(stored_conditions)
    with pytest.MonkeyPatch.context() as patch, all_rows_together():
        patch.setattr(match_one, "_MANY_ENTRIES", 0)
        patch.setattr(prefilter, "_CHECKS", checks)
        patch.setattr(prefilter, "_LEAST_SHARE", 0)
        patch.setattr(prefilter, "_LEAST_DECIDED", 0)
        matcher = Matcher(subscriptions)
        wanted = [[id_ for _, id_ in expected(subscriptions, [message])] for message in given_messages]

        assert [sorted(matcher.match(message).ids) for message in given_messages] == wanted
        assert [sorted(ids) for ids in matcher.match_many(given_messages).ids()] == wanted


@pytest.mark.parametrize("many", [1, 1 << 12])
def test_equalities_that_end_a_loop_early(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Of many programs that begin with one; those that begin with a negation are mostly true, and so are few."""
    monkeypatch.setattr(prefilter, "_MANY_PROGRAMS", many)

    def is_useful(*, negated: bool) -> bool:
        pairs = [(str(n), str(9 - n)) for n in range(10)]
        seconds = [(k, not_(kiwi("l", other)) if negated else kiwi("l", other)) for k, other in pairs]
        subscriptions = [Subscription(["d"], all_of(kiwi("k", k), second), id=k) for k, second in seconds]
        return build(subscriptions, Costs(())).prefilter.is_useful

    assert is_useful(negated=True)
    assert is_useful(negated=False) == (many > 1)
