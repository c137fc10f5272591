"""Verification of the entries of single messages, when their programs are too many to be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages, multivalued_messages
from tests.subscriptions.index.asking import expected, subscriptions_of
from turnout.conditions import all_of, kiwi
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import secondary_keys, single_checks
from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.match_one import single_of

_conditions = st.lists(conditions, min_size=1, max_size=12)
_messages = st.lists(st.one_of(messages, multivalued_messages), min_size=1, max_size=8)


@given(_conditions, _messages, st.booleans(), st.sampled_from([0, 0.5, 2]))
def test_is_the_interpreter(stored_conditions, given_messages, hot, least_literals):
    """Entries that end at their first literal, or have more checks, match as the interpreter says."""
    subscriptions = subscriptions_of(stored_conditions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single_checks, "_MOST_PROGRAMS", 0)
        patch.setattr(single_checks, "_LEAST_LITERALS", least_literals)
        if hot:
            patch.setattr(secondary_keys, "HOT", 0)
            patch.setattr(secondary_keys, "_LEAST_SAVED", 0)
        matcher = Matcher(subscriptions)
        found = sorted((row, id_) for row, message in enumerate(given_messages) for id_ in matcher.match(message).ids)

    assert found == expected(subscriptions, given_messages)


def test_most_programs_are_not_read(monkeypatch):
    """An entry whose only check is a literal that the message lacks is left without its program."""
    monkeypatch.setattr(single_checks, "_MOST_PROGRAMS", 0)
    own = [("a", str(n)) for n in range(5)] + [(str(n), "b") for n in range(5)]
    subscriptions = [Subscription(["d"], all_of(kiwi("k", k), kiwi("l", other)), id=k + other) for k, other in own]
    single = single_of(build(subscriptions, Costs(())))
    programs, read = list(single._program_of), []

    class Programs:
        def __getitem__(self, entry):
            read.append(entry)
            return programs[entry]

    monkeypatch.setattr(single, "_program_of", Programs())

    assert single.matched({"k": "x", "l": "3"}) == single.matched({"l": "3"}) == []
    assert read == []
    assert single.matched({"k": "a", "l": "3"}) == [3]
    assert single.matched({"k": "3", "l": "b"}) == [8]
    assert len(read) == 2
