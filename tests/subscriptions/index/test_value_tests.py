"""Tests of values are prepared where one message may need many, and answer like the reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.conditions import Regex, all_of, any_of, kiwi, not_
from turnout.conditions.regex import RegexSet
from turnout.subscriptions import Matcher
from turnout.subscriptions.index import Index, build
from turnout.subscriptions.index import segment as segments
from turnout.subscriptions.index.literal_choice import Costs

_expressions = st.sampled_from(["a.c|x", "[ab]+c?$", "^.b", "(?i)AB", "b{2}", "\\bc", "ü", ".*", "z"])
_texts = st.text("abcxz üA", max_size=8)


@given(st.lists(_expressions, min_size=1, max_size=40), st.lists(_texts, min_size=1, max_size=4), st.booleans())
def test_groups_of_expressions(expressions, values, are_large):
    """Many expressions of a key find what each of them finds, also where an automaton has too little memory."""
    conditions = [Regex("k", text) for text in expressions]
    nested = [any_of(all_of(Regex("k", text), kiwi("j", "1")), not_(Regex("k", "a"))) for text in expressions[:3]]
    subscriptions = subscriptions_of([*conditions, *map(not_, conditions), *nested])
    messages = [*({"k": value, "j": "1"} for value in values), {"k": tuple(dict.fromkeys([*values, "q"]))}, {"j": "1"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_GROUP", 8)
        if are_large:
            patch.setattr(RegexSet, "found", lambda _self, _value: None)
        assert expected(subscriptions, messages) == pairs(Index.of(subscriptions), messages)
        matcher = Matcher(subscriptions)
        assert [len(matcher.match(message)) for message in messages] == [
            len(expected(subscriptions, [message])) for message in messages
        ]


def test_too_large_for_one_automaton():
    """Expressions that together need too much memory are divided."""
    expressions = [f"{letter}[a-z]{{900}}[0-9]{{90}}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    subscriptions = subscriptions_of([Regex("k", text) for text in expressions])
    tests = build.build(subscriptions, Costs()).value_tests()

    assert RegexSet.of(expressions) is None
    assert len(tests._groups) > 1
    messages = [{"k": f"-{letter}{'q' * 900}{'1' * 90}"} for letter in "az"]
    assert expected(subscriptions, messages) == pairs(Index.of(subscriptions), messages)


def test_a_surrogate_is_in_no_expression():
    """A value that has no UTF-8 matches no expression, alone or in a group."""
    group = RegexSet.of(["a", "."])

    assert group is not None
    assert group.found("a\ud800") == []
    assert sorted(group.found("xa") or ()) == [0, 1]
    assert group.found("") == []


def test_what_is_asked_together_is_prepared(monkeypatch):
    """No pattern of many under one literal is compiled by a message; those under a literal alone are not kept."""
    many = [all_of(kiwi("k", f"?{n // 10}?{n % 10}*", partial=True), kiwi("kind", "one")) for n in range(40)]
    few = [all_of(kiwi("k", f"?{n}?b*", partial=True), kiwi("kind", f"other{n}")) for n in range(5)]
    segment = build.build(subscriptions_of([*many, *few]), Costs())

    assert len(segment.value_tests()._known) == len(many)
    matcher = Matcher(subscriptions_of(many))
    monkeypatch.setattr(segments, "pattern_matcher", None)
    assert len(matcher.match({"k": "a x1y7", "kind": "one"})) == 1
