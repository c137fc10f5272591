"""Claims about two conditions: none has a counterexample, and what is planted is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.conditions import Group, Logic, all_of, any_of, evaluate, kiwi, not_, parse
from turnout.subscriptions.analysis import Verdict, form_of, subsumed

some_messages = st.lists(messages, min_size=5, max_size=15)


def verdict(one: str, other: str) -> Verdict:
    narrow, wide = parse(one), parse(other)
    return subsumed(narrow, form_of(narrow), wide, form_of(wide))


@given(conditions, conditions, some_messages)
def test_claims_have_no_counterexample(one, other, some) -> None:
    """Equal digests, "always", "never" and "subsumed" are true of every message that is drawn."""
    form, other_form = form_of(one), form_of(other)
    answer = subsumed(one, form, other, other_form)
    for message in some:
        mine, theirs = evaluate(one, message), evaluate(other, message)
        assert form.digest != other_form.digest or mine == theirs
        assert form.always in (None, mine)
        assert answer is not Verdict.YES or theirs or not mine


@given(conditions, conditions)
def test_planted_ones_are_found(one, other) -> None:
    """Both sides of a rule of logic have one digest, a part implies the whole, and a contradiction is never true."""
    both, either = all_of(one, other), any_of(one, other)
    form = form_of(both)
    if not (form.exact and form_of(either).exact):
        return

    assert form.digest == form_of(not_(any_of(not_(other), not_(one)))).digest
    assert form_of(all_of(one, not_(one))).always is False
    assert form_of(any_of(one, not_(one))).always is True
    assert subsumed(both, form, one, form_of(one)) is Verdict.YES
    assert subsumed(one, form_of(one), either, form_of(either)) is Verdict.YES


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a:x AND b:y", "a:x", "yes"),
        ("a:x", "a:x AND b:y", "no"),
        ("a:orders.eu.*", "a:orders.*", "yes"),
        ("a:orders.*", "a:orders.eu.*", "no"),
        ("n>9", "n>5", "yes"),
        ("n>5 AND n<7", "n>5 AND n<8", "yes"),
        ("ip IN 10.1.0.0/16", "ip IN 10.0.0.0/8", "yes"),
        ("a:x", "a:x OR b:y", "yes"),
        ("a:x OR a:y", "a:x OR a:y OR a:z", "yes"),
        ("a:x", "NOT a:y", "yes"),
        ("a:abc*", "a:i:ABC*", "yes"),
    ],
)
def test_subsumption(one, other, expected) -> None:
    """A condition whose messages are all another's is truth from one that has a message of its own."""
    assert verdict(one, other) == expected


def test_too_large() -> None:
    """Of a condition beyond the bound nothing is claimed but that its own words mean the same."""
    many = [kiwi(f"k{n}", "v") for n in range(400)]
    one, other = Group(Logic.OR, tuple(many)), Group(Logic.OR, tuple(reversed(many)))

    assert not form_of(one).exact
    assert form_of(one).digest == form_of(other).digest
    assert form_of(one).always is None
    assert subsumed(many[0], form_of(many[0]), one, form_of(one)) is Verdict.UNKNOWN
